use super::*;

mod batch;
mod cases;
mod fields;
mod payload;
mod properties;

/// Reads one job as `POST /v1/jobs` does, with default limits.
fn one(text: &str) -> Result<NewJob, Rejection> {
    parse_one(
        &Bytes::copy_from_slice(text.as_bytes()),
        None,
        &Limits::default(),
    )
}

fn accepted(text: &str) -> NewJob {
    one(text).unwrap_or_else(|rejection| panic!("{text:.300} was refused: {rejection}"))
}

fn rejected(text: &str) -> Rejection {
    match one(text) {
        Err(rejection) => rejection,
        Ok(job) => panic!("{text:.300} was accepted: {job:?}"),
    }
}

/// A job with one field more than it needs.
fn with(field: &str, value: &str) -> String {
    format!(r#"{{"url":"http://sink.test/","{field}":{value}}}"#)
}

/// The codes and pointers of a rejection, in order.
fn faults(rejection: &Rejection) -> Vec<(Code, &str)> {
    let problems = rejection.problems().iter();
    problems
        .map(|problem| (problem.code, problem.pointer.as_str()))
        .collect()
}

/// Checks that a field with this value is refused with one problem that names the field.
fn check_refused(field: &str, value: &str) {
    let text = match field {
        "url" => format!(r#"{{"url":{value}}}"#),
        _ => with(field, value),
    };
    let rejection = rejected(&text);
    let pointer = format!("/{field}");
    assert_eq!(
        faults(&rejection),
        [(Code::FieldInvalid, pointer.as_str())],
        "{text:.300}"
    );
    assert_eq!(rejection.code().status(), 422);
}

/// Checks that the text as a whole is refused, with line and column.
fn check_json_invalid(text: &str, position: &str) {
    let rejection = rejected(text);
    assert_eq!(faults(&rejection), [(Code::JsonInvalid, "")], "{text:.300}");
    assert_eq!(rejection.code().status(), 400);
    let detail = &rejection.problems()[0].detail;
    assert!(detail.contains(position), "{text:.300}: {detail}");
}
