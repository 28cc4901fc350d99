//! Replays: ask for one, see how far it has come, stop it.
//!
//! A handler only writes or reads the row of a replay; a loop of every api and janitor puts the jobs
//! back. So a replay goes on whatever becomes of this process, and of the client that asked for it.

use axum::extract::{Path, Request, State, rejection::PathRejection};
use hook_common::{
    job::{ErrorKind, JobId, QueueName, Status},
    problem::{Code, Problem},
    queue::{JobFilter, NewReplay, Replay, ReplayStart},
    target::Target,
};
use http::StatusCode;
use serde::Serialize;
use serde_json::json;

use super::{Answer, Shared, asked, json_of, key_of, segment};
use crate::{
    admission::{Access, Content},
    app::App,
    audit::Action,
    auth,
    fields::Fields,
    problem::{Changes, Refusal},
    query::Query,
    view::time,
};

/// Replays of one page, unless asked for otherwise.
pub(super) const PAGE_REPLAYS: usize = 50;
/// Most replays of one page.
pub(super) const PAGE_REPLAYS_MAX: usize = 500;
/// Jobs of one replay, unless asked for otherwise.
pub(crate) const REPLAY_JOBS: usize = 1000;
/// Most jobs of one replay.
pub(crate) const REPLAY_JOBS_MAX: usize = 100_000;
/// Jobs a second, unless asked for otherwise.
pub(crate) const REPLAY_RATE: usize = 100;
/// Most jobs a second.
pub(crate) const REPLAY_RATE_MAX: usize = 1000;

type ReplayPath = Result<Path<String>, PathRejection>;

/// What is asked for.
struct Wanted {
    filter: JobFilter,
    error_kind: Option<ErrorKind>,
    limit: usize,
    rate_per_second: usize,
    key: Option<String>,
}

/// `POST /v1/jobs/replay`
pub(super) async fn start(State(app): Shared, request: Request) -> Answer {
    let admission = &app.admission;
    let admitted = admission
        .with_body(request, Access::Manage, Content::Json)
        .await?;
    let wanted = wanted(&admitted.body, key_of(&admitted.parts.headers)?)?;
    let subject = wanted.filter.target.as_ref().map_or("", Target::as_str);
    let asked = asked(&admitted.body);
    app.record(&admitted.parts, Action::ReplayJobs, subject, &asked)
        .await?;
    let token = auth::fingerprint(&admitted.parts.headers);
    let replay = NewReplay {
        filter: &wanted.filter,
        error_kind: wanted.error_kind,
        limit: whole(wanted.limit),
        rate_per_second: whole(wanted.rate_per_second),
        requested_by: token.as_deref(),
        key: wanted.key.as_deref(),
    };
    let starting = app.queue.start_replay(&replay);
    match app.ask(Changes::Something, starting).await? {
        ReplayStart::Started(replay) => show(StatusCode::ACCEPTED, replay),
        ReplayStart::Repeated(replay) => show(StatusCode::OK, replay),
        ReplayStart::KeyReused => {
            let detail = "this key was used for another replay";
            Err(Problem::new(Code::IdempotencyKeyReused, "/idempotency_key", detail).into())
        }
        ReplayStart::TooMany => {
            let detail = "20 replays are under way; wait for one to end, or cancel it";
            Err(Refusal::new(Code::StateConflict, detail))
        }
    }
}

fn wanted(body: &[u8], header_key: Option<&str>) -> Result<Wanted, Refusal> {
    let mut fields = Fields::of(body)?;
    let expected = "must be failed, cancelled or completed";
    let filter = JobFilter {
        status: fields.word("status", expected, finished),
        target: fields.target("target"),
        queue: fields.word("queue", "must be primary or degraded", QueueName::from_word),
        from: fields.time("from"),
        to: fields.time("to"),
    };
    let expected = "must be an error kind, such as timeout";
    let error_kind = fields.word("error_kind", expected, ErrorKind::from_word);
    let limit = fields.whole("limit", 1..=REPLAY_JOBS_MAX);
    let rate_per_second = fields.whole("rate_per_second", 1..=REPLAY_RATE_MAX);
    let key = fields.key("idempotency_key", header_key);
    fields.finish()?;
    Ok(Wanted {
        filter: JobFilter {
            status: filter.status.or(Some(Status::Failed)),
            ..filter
        },
        error_kind,
        limit: limit.unwrap_or(REPLAY_JOBS),
        rate_per_second: rate_per_second.unwrap_or(REPLAY_RATE),
        key,
    })
}

fn finished(word: &str) -> Option<Status> {
    Status::from_word(word).filter(|status| match status {
        Status::Completed | Status::Failed | Status::Cancelled => true,
        Status::Available | Status::Running => false,
    })
}

fn whole(number: usize) -> i32 {
    i32::try_from(number).expect("its bound fits")
}

#[derive(Serialize)]
struct PageJson {
    replays: Vec<ReplayJson>,
    next_cursor: Option<String>,
}

/// `GET /v1/replays`
pub(super) async fn list(State(app): Shared, request: Request) -> Answer {
    let admitted = app.admission.without_body(request, Access::Manage)?;
    let mut query = Query::of(&admitted.parts.uri, &["limit", "cursor"]);
    let limit = query.limit(PAGE_REPLAYS, PAGE_REPLAYS_MAX);
    let before = query.cursor();
    query.finish()?;
    // One more than asked for tells whether there are more.
    let replays = app.queue.replays(before, limit + 1);
    let mut replays = app.ask(Changes::Nothing, replays).await?;
    let more = replays.len() > limit;
    replays.truncate(limit);
    let last = replays.last().filter(|_| more);
    let page = PageJson {
        next_cursor: last.map(|last| last.replay_id.to_string()),
        replays: replays.into_iter().map(ReplayJson::new).collect(),
    };
    Ok(json_of(StatusCode::OK, &page))
}

/// `GET /v1/replays/{id}`
pub(super) async fn get(State(app): Shared, path: ReplayPath, request: Request) -> Answer {
    let _admitted = app.admission.without_body(request, Access::Manage)?;
    show(StatusCode::OK, find(&app, replay_id(path)?).await?)
}

/// `POST /v1/replays/{id}/cancel`
pub(super) async fn cancel(State(app): Shared, path: ReplayPath, request: Request) -> Answer {
    let admitted = app.admission.action(request).await?;
    let id = replay_id(path)?;
    let subject = id.to_string();
    app.record(&admitted.parts, Action::CancelReplay, &subject, &json!({}))
        .await?;
    let cancelling = app.queue.cancel_replay(id);
    if let Some(replay) = app.ask(Changes::Something, cancelling).await? {
        return show(StatusCode::OK, replay);
    }
    find(&app, id).await?;
    let detail = "this replay has ended";
    Err(Refusal::new(Code::StateConflict, detail))
}

async fn find(app: &App, id: JobId) -> Result<Replay, Refusal> {
    let found = app.ask(Changes::Nothing, app.queue.replay(id)).await?;
    found.ok_or_else(no_such_replay)
}

fn show(status: StatusCode, replay: Replay) -> Answer {
    Ok(json_of(status, &ReplayJson::new(replay)))
}

fn replay_id(path: ReplayPath) -> Result<JobId, Refusal> {
    JobId::parse(&segment(path)?).ok_or_else(no_such_replay)
}

fn no_such_replay() -> Refusal {
    Refusal::not_found("there is no such replay, or it ended long ago")
}

/// A replay as JSON.
#[derive(Serialize)]
struct ReplayJson {
    id: String,
    state: &'static str,
    status: &'static str,
    target: Option<String>,
    queue: Option<&'static str>,
    error_kind: Option<&'static str>,
    from: Option<String>,
    to: Option<String>,
    limit: i32,
    rate_per_second: i32,
    requested_at: String,
    requested_by: Option<String>,
    total: i64,
    done: i64,
    finished_at: Option<String>,
}

impl ReplayJson {
    fn new(replay: Replay) -> Self {
        Self {
            id: replay.replay_id.to_string(),
            state: replay.state.as_str(),
            status: replay.status.as_str(),
            target: replay.target,
            queue: replay.queue.map(QueueName::as_str),
            error_kind: replay.error_kind.map(ErrorKind::as_str),
            from: replay.from.map(time),
            to: replay.to.map(time),
            limit: replay.limit,
            rate_per_second: replay.rate_per_second,
            requested_at: time(replay.requested_at),
            requested_by: replay.requested_by,
            total: replay.total,
            done: replay.done,
            finished_at: replay.finished_at.map(time),
        }
    }
}
