//! Many jobs in one request, and the older shape.

use super::*;

fn batch(text: &str) -> Result<Vec<NewJob>, Rejection> {
    parse_batch_json(&Bytes::copy_from_slice(text.as_bytes()), &Limits::default())
}

fn lines(text: &str) -> Result<Vec<NewJob>, Rejection> {
    parse_batch_ndjson(&Bytes::copy_from_slice(text.as_bytes()), &Limits::default())
}

fn legacy(text: &str) -> Result<NewJob, Rejection> {
    parse_legacy(
        &Bytes::copy_from_slice(text.as_bytes()),
        None,
        &Limits::default(),
    )
}

fn check_faults<T: std::fmt::Debug>(result: Result<T, Rejection>, expected: &[(Code, &str)]) {
    assert_eq!(faults(&result.unwrap_err()), expected);
}

fn jobs(count: usize) -> String {
    vec![r#"{"url":"http://sink.test/"}"#; count].join(",")
}

#[test]
fn jobs_keep_their_order_and_their_bodies() {
    let request = r#"{"jobs":[{"url":"http://a.test/","payload":[1, 2]},{"url":"http://b.test/","payload":"x"}]}"#;
    let jobs = batch(request).unwrap();
    assert_eq!(jobs.len(), 2);
    assert_eq!(
        (jobs[0].url.as_str(), &jobs[0].body[..]),
        ("http://a.test/", &b"[1, 2]"[..])
    );
    assert_eq!(
        (jobs[1].url.as_str(), &jobs[1].body[..]),
        ("http://b.test/", &b"\"x\""[..])
    );
}

#[test]
fn every_bad_item_is_listed_by_index() {
    let request = r#"{"jobs":[{"url":"x"},{"url":"http://a.test/"},7,{"url":"http://a.test/","x":1,"max_attempts":0}]}"#;
    check_faults(
        batch(request),
        &[
            (Code::UrlInvalid, "/jobs/0/url"),
            (Code::FieldInvalid, "/jobs/2"),
            (Code::UnknownField, "/jobs/3/x"),
            (Code::FieldInvalid, "/jobs/3/max_attempts"),
        ],
    );
}

#[test]
fn a_batch_has_one_to_a_thousand_jobs() {
    assert_eq!(
        batch(&format!(r#"{{"jobs":[{}]}}"#, jobs(1000)))
            .unwrap()
            .len(),
        1000
    );
    let all = [(Code::FieldInvalid, "/jobs")];
    check_faults(batch(&format!(r#"{{"jobs":[{}]}}"#, jobs(1001))), &all);
    check_faults(batch(&format!(r#"{{"jobs":[{}]}}"#, jobs(20_000))), &all);
    check_faults(batch(r#"{"jobs":[]}"#), &all);
    check_faults(batch(r#"{"jobs":{}}"#), &all);
    check_faults(batch("{}"), &all);
    check_faults(
        batch(r#"{"jobs":null,"x":1}"#),
        &[(Code::UnknownField, "/x"), all[0]],
    );
}

#[test]
fn a_thousand_bad_jobs_are_all_listed() {
    let bad = vec![r#"{"url":""}"#; 1000].join(",");
    let rejection = batch(&format!(r#"{{"jobs":[{bad}]}}"#)).unwrap_err();
    assert_eq!(rejection.problems().len(), 1000);
    assert_eq!(rejection.problems()[999].pointer, "/jobs/999/url");
}

#[test]
fn a_fault_inside_an_item_has_its_position_in_the_request() {
    let request = "{\"jobs\":[\n{\"url\":\"http://a.test/\"},\n {\"url\":\"\",\n\"url\":\"\"}]}";
    let rejection = batch(request).unwrap_err();
    assert_eq!(faults(&rejection), [(Code::JsonInvalid, "/jobs/1")]);
    let detail = &rejection.problems()[0].detail;
    assert!(detail.contains("(line 4, column 5)"), "{detail}");
    let rejection = batch(r#"{"jobs":[{"url":"","url":""}]}"#).unwrap_err();
    let detail = &rejection.problems()[0].detail;
    assert!(detail.contains("(line 1, column 24)"), "{detail}");
}

#[test]
fn a_broken_batch_is_refused_as_a_whole() {
    for text in [
        "",
        "[]",
        r#"{"jobs":[{}"#,
        r#"{"jobs":[],"jobs":[]}"#,
        r#"{"jobs":[]}}"#,
    ] {
        check_faults(batch(text), &[(Code::JsonInvalid, "")]);
    }
    let deep = format!(r#"{{"jobs":[{{"payload":{}"#, "[".repeat(200_000));
    check_faults(batch(&deep), &[(Code::JsonInvalid, "")]);
}

#[test]
fn lines_are_jobs() {
    let text =
        "{\"url\":\"http://a.test/\",\"payload\": 1 }\r\n\n  \n{\"url\":\"http://b.test/\"}\n";
    let jobs = lines(text).unwrap();
    assert_eq!(
        jobs.iter()
            .map(|job| job.target.as_str())
            .collect::<Vec<_>>(),
        ["a.test", "b.test"]
    );
    assert_eq!(jobs[0].body, "1");
    assert_eq!(lines(&jobs_as_lines(1000)).unwrap().len(), 1000);
    check_faults(
        lines(&jobs_as_lines(1001)),
        &[(Code::FieldInvalid, "/jobs")],
    );
    check_faults(lines(""), &[(Code::FieldInvalid, "/jobs")]);
}

fn jobs_as_lines(count: usize) -> String {
    "{\"url\":\"http://sink.test/\"}\n".repeat(count)
}

#[test]
fn every_bad_line_is_listed() {
    let text = "{\"url\":\"http://a.test/\"}\n{\"url\":\n{\"url\":\"\"}\n{} {}\n";
    let rejection = lines(text).unwrap_err();
    assert_eq!(
        faults(&rejection),
        [
            (Code::JsonInvalid, "/jobs/1"),
            (Code::UrlInvalid, "/jobs/2/url"),
            (Code::JsonInvalid, "/jobs/3"),
        ]
    );
    assert!(rejection.problems()[0].detail.contains("(line 2, column "));
    assert!(
        rejection.problems()[2]
            .detail
            .contains("(line 4, column 4)")
    );
}

#[test]
fn a_line_with_another_value_is_a_bad_item() {
    check_faults(
        lines("{\"url\":\"http://a.test/\"}\n[]\n"),
        &[(Code::FieldInvalid, "/jobs/1")],
    );
}

#[test]
fn an_open_string_on_one_line_cannot_hide_depth_on_the_next() {
    let text = format!(
        "\"\n{{\"url\":\"http://a.test/\",\"payload\":{}\n",
        "[".repeat(100_000)
    );
    assert_eq!(lines(&text).unwrap_err().code(), Code::JsonInvalid);
}

#[test]
fn the_older_shape_is_read() {
    let job = legacy(
        r#"{"parameters":{"url":"http://sink.test/","method":"PUT","headers":{"X-A":"1"},"body":"{\"a\":1}"},
            "metadata":{"team":1},"max_attempts":3}"#,
    )
    .unwrap();
    assert_eq!(job.method, crate::job::Method::Put);
    assert_eq!(job.body, r#"{"a":1}"#);
    assert_eq!(
        job.headers[1],
        ("content-type".to_owned(), "application/json".to_owned())
    );
    assert_eq!(job.metadata.as_deref(), Some(r#"{"team":1}"#));
    assert_eq!(job.max_attempts, Some(3));
}

#[test]
fn the_older_shape_takes_any_json_and_nulls() {
    let job = legacy(r#"{"parameters":{"url":"http://sink.test/","body": {"a": 1} }}"#).unwrap();
    assert_eq!(job.body, r#"{"a": 1}"#);
    let job = legacy(
        r#"{"parameters":{"url":"http://sink.test/","body":null,"headers":null,"method":null},
            "metadata":null,"max_attempts":null}"#,
    )
    .unwrap();
    assert!(job.body.is_empty() && job.headers.is_empty() && job.metadata.is_none());
}

#[test]
fn faults_of_the_older_shape_are_named_where_they_are() {
    check_faults(legacy("{}"), &[(Code::FieldInvalid, "/parameters")]);
    check_faults(legacy("[]"), &[(Code::JsonInvalid, "")]);
    check_faults(
        legacy(r#"{"parameters":[]}"#),
        &[(Code::FieldInvalid, "/parameters")],
    );
    check_faults(
        legacy(
            r#"{"parameters":{"url":"http://10.0.0.1/","method":"X","headers":{"Host":"x"},"payload":1},
                "metadata":1,"max_attempts":0,"url":"x"}"#,
        ),
        &[
            (Code::UnknownField, "/url"),
            (Code::UnknownField, "/parameters/payload"),
            (Code::TargetForbidden, "/parameters/url"),
            (Code::FieldInvalid, "/parameters/method"),
            (Code::HeaderReserved, "/parameters/headers/Host"),
            (Code::FieldInvalid, "/metadata"),
            (Code::FieldInvalid, "/max_attempts"),
        ],
    );
    check_faults(
        legacy(r#"{"parameters":{"url":"http://a.test/","url":"http://b.test/"}}"#),
        &[(Code::JsonInvalid, "")],
    );
    let limits = Limits {
        job_body_max: 3,
        ..Limits::default()
    };
    let request = Bytes::from_static(br#"{"parameters":{"url":"http://a.test/","body":{"a":1}}}"#);
    check_faults(
        parse_legacy(&request, None, &limits),
        &[(Code::BodyTooLarge, "/parameters/body")],
    );
}

#[test]
fn every_bad_job_of_a_full_batch_is_named_however_much_is_wrong_with_each() {
    let names: Vec<String> = (0..50).map(|n| format!(r#""bad name {n}":"x""#)).collect();
    let job = format!(r#"{{"url":"x","headers":{{{}}}}}"#, names.join(","));
    let all = vec![job; 1000].join(",");
    let rejection = batch(&format!(r#"{{"jobs":[{all}]}}"#)).unwrap_err();
    for n in 0..1000 {
        let prefix = format!("/jobs/{n}/");
        let mut problems = rejection.problems().iter();
        assert!(
            problems.any(|problem| problem.pointer.starts_with(&prefix)),
            "{n}"
        );
    }
    assert!(rejection.left_out() > 0);
}
