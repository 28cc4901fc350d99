//! Enqueue: one job, a batch, and the older shape.

use axum::{
    extract::{Request, State},
    response::Response,
};
use hook_common::{
    envelope,
    job::NewJob,
    problem::{Code, Problem, Problems},
};
use http::StatusCode;

use super::{Answer, Shared, json, key_of};
use crate::{
    admission::{Access, Content, is_lines},
    app::App,
    group_commit::{NotPlaced, Placed},
    problem::{Changes, Refusal},
};

/// `POST /v1/jobs`
pub(super) async fn one(State(app): Shared, request: Request) -> Answer {
    let admission = &app.admission;
    let admitted = admission
        .with_body(request, Access::Enqueue, Content::Json)
        .await?;
    let key = key_of(&admitted.parts.headers)?;
    let job = envelope::parse_one(&admitted.body, key, &app.envelope)?;
    let placed = place_one(&app, job).await?;
    Ok(answer_one(&placed))
}

/// `POST /v1/jobs/batch`
pub(super) async fn batch(State(app): Shared, request: Request) -> Answer {
    let admission = &app.admission;
    let admitted = admission
        .with_body(request, Access::Enqueue, Content::JsonOrLines)
        .await?;
    if key_of(&admitted.parts.headers)?.is_some() {
        let detail = "each job of a batch has an idempotency_key of its own; a header fits one job";
        return Err(Problem::new(Code::FieldInvalid, "/jobs", detail).into());
    }
    let jobs = if is_lines(&admitted.parts.headers) {
        envelope::parse_batch_ndjson(&admitted.body, &app.envelope)?
    } else {
        envelope::parse_batch_json(&admitted.body, &app.envelope)?
    };
    let placed = place(&app, jobs, Shape::Batch).await?;
    Ok(answer_batch(&placed))
}

/// `POST /webhook`
pub(super) async fn legacy(State(app): Shared, request: Request) -> Answer {
    let admission = &app.admission;
    let admitted = admission
        .with_body(request, Access::Enqueue, Content::Json)
        .await?;
    let key = key_of(&admitted.parts.headers)?;
    let job = envelope::parse_legacy(&admitted.body, key, &app.envelope)?;
    let placed = place_one(&app, job).await?;
    Ok(json(StatusCode::OK, format!(r#"{{"id":"{}"}}"#, placed.id)))
}

/// Whether pointers into a request start at a job or at the list of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Shape {
    One,
    Batch,
}

impl Shape {
    fn pointer(self, index: usize, field: &str) -> String {
        match self {
            Self::One => field.to_owned(),
            Self::Batch => format!("/jobs/{index}{field}"),
        }
    }
}

async fn place_one(app: &App, job: NewJob) -> Result<Placed, Refusal> {
    let placed = place(app, vec![job], Shape::One).await?;
    placed.into_iter().next().ok_or_else(Refusal::internal)
}

/// Stores jobs, all or none.
async fn place(app: &App, jobs: Vec<NewJob>, shape: Shape) -> Result<Vec<Placed>, Refusal> {
    app.depth.refuse_full(jobs.len())?;
    if jobs.iter().any(|job| !job.signing.is_empty()) {
        // On the heap, because few requests need the room and all would have to carry it.
        Box::pin(refuse_unknown_secrets(app, &jobs, shape)).await?;
    }
    let jobs = app.prepare(jobs)?;
    match app.enqueuer.enqueue(jobs).await {
        Ok(placed) => {
            app.depth
                .add(placed.iter().filter(|placed| !placed.duplicate).count());
            Ok(placed)
        }
        Err(NotPlaced::Full) => Err(Refusal::overloaded()),
        Err(NotPlaced::TooLate) => Err(Refusal::database_unavailable()),
        Err(NotPlaced::OutcomeUnknown) => Err(Refusal::outcome_unknown()),
        Err(NotPlaced::Fault(fault)) => Err(Refusal::of_fault(fault, Changes::Something)),
        Err(NotPlaced::KeysReused(places)) => Err(keys_reused(&places, shape)),
    }
}

/// Refuses jobs that name signing secrets which are not stored.
async fn refuse_unknown_secrets(app: &App, jobs: &[NewJob], shape: Shape) -> Result<(), Refusal> {
    let names = || jobs.iter().flat_map(|job| &job.signing);
    let unseen = app.known_secrets.unseen(names().map(String::as_str));
    if unseen.is_empty() {
        return Ok(());
    }
    let found = app
        .ask(Changes::Nothing, app.queue.secrets(&unseen))
        .await?;
    let found: Vec<String> = found.into_iter().map(|secret| secret.name).collect();
    let is_missing = |name: &String| unseen.contains(name) && !found.contains(name);
    let mut problems = Problems::default();
    for (index, job) in jobs.iter().enumerate() {
        for (at, name) in job.signing.iter().enumerate() {
            if is_missing(name) {
                let pointer = shape.pointer(index, &format!("/signing/secrets/{at}"));
                let detail = "no signing secret with this name is stored";
                problems.push(Problem::new(Code::SecretUnknown, pointer, detail));
            }
        }
    }
    app.known_secrets.seen(found);
    match problems.into_rejection() {
        Some(rejection) => Err(rejection.into()),
        None => Ok(()),
    }
}

fn keys_reused(places: &[usize], shape: Shape) -> Refusal {
    let mut problems = Problems::default();
    for index in places {
        let pointer = shape.pointer(*index, "/idempotency_key");
        let detail = "this key was used for another request";
        problems.push(Problem::new(Code::IdempotencyKeyReused, pointer, detail));
    }
    problems
        .into_rejection()
        .map_or_else(Refusal::internal, Refusal::from)
}

fn answer_one(placed: &Placed) -> Response {
    let status = if placed.duplicate {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    };
    let mut text = String::with_capacity(160);
    write_placed(&mut text, placed);
    json(status, text)
}

fn answer_batch(placed: &[Placed]) -> Response {
    let mut text = String::with_capacity(16 + 160 * placed.len());
    text.push_str(r#"{"jobs":["#);
    for (index, placed) in placed.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        write_placed(&mut text, placed);
    }
    text.push_str("]}");
    json(StatusCode::ACCEPTED, text)
}

fn write_placed(text: &mut String, placed: &Placed) {
    let target = serde_json::Value::from(placed.target.as_str());
    let (id, queue, duplicate) = (placed.id, placed.queue.as_str(), placed.duplicate);
    text.push_str(&format!(
        r#"{{"id":"{id}","queue":"{queue}","target":{target},"duplicate":{duplicate}}}"#
    ));
}
