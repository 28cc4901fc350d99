//! The state of the whole: numbers, what fails, what goes next.

use axum::extract::{Request, State};
use hook_common::{
    job::{JobId, Tier},
    queue::{DueGroup, FAILED_SAMPLED_MAX, FailureGroup},
};
use http::StatusCode;
use serde::Serialize;

use super::{Answer, Shared, json_of, queues::QueueJson};
use crate::{
    admission::Access,
    problem::Changes,
    query::Query,
    view::{error_kind, state, time},
};

/// Groups of an answer, unless asked for otherwise.
pub(super) const GROUPS: usize = 50;
/// Most groups of an answer.
pub(super) const GROUPS_MAX: usize = 500;

#[derive(Serialize)]
struct OverviewJson {
    queues: Vec<QueueJson>,
    attempts: AttemptsJson,
    targets: TargetsJson,
}

/// Attempts ever made; two looks at it give a rate.
#[derive(Serialize)]
struct AttemptsJson {
    delivered: i64,
    retryable: i64,
    permanent: i64,
}

#[derive(Serialize)]
struct TargetsJson {
    penalised: i64,
    held: i64,
    paused: i64,
}

/// `GET /v1/overview`
pub(super) async fn overview(State(app): Shared, request: Request) -> Answer {
    let admitted = app.admission.without_body(request, Access::Manage)?;
    Query::of(&admitted.parts.uri, &[]).finish()?;
    let queues = app.ask(Changes::Nothing, app.queue.queue_stats()).await?;
    let totals = app.queue.attempt_totals(&[]);
    let all = app.ask(Changes::Nothing, totals).await?.all;
    let targets = app.queue.target_counts(app.penalty_stale_after);
    let targets = app.ask(Changes::Nothing, targets).await?;
    let overview = OverviewJson {
        queues: queues.into_iter().map(QueueJson::new).collect(),
        attempts: AttemptsJson {
            delivered: all.delivered,
            retryable: all.retryable,
            permanent: all.permanent,
        },
        targets: TargetsJson {
            penalised: targets.penalised,
            held: targets.held,
            paused: targets.paused,
        },
    };
    Ok(json_of(StatusCode::OK, &overview))
}

#[derive(Serialize)]
struct FailuresJson {
    failures: Vec<FailureJson>,
    /// Whether there are failed jobs that were not looked at.
    sampled: bool,
}

#[derive(Serialize)]
struct FailureJson {
    target: String,
    error_kind: Option<&'static str>,
    jobs: i64,
    newest_job: String,
    last_finished_at: String,
}

/// `GET /v1/failures`
pub(super) async fn failures(State(app): Shared, request: Request) -> Answer {
    let admitted = app.admission.without_body(request, Access::Manage)?;
    let mut query = Query::of(&admitted.parts.uri, &["limit"]);
    let limit = query.limit(GROUPS, GROUPS_MAX);
    query.finish()?;
    let groups = app.queue.failures(limit);
    let groups = app.ask(Changes::Nothing, groups).await?;
    let counted: i64 = groups.iter().map(|group| group.jobs).sum();
    let failures = FailuresJson {
        sampled: counted >= FAILED_SAMPLED_MAX,
        failures: groups.into_iter().map(FailureJson::new).collect(),
    };
    Ok(json_of(StatusCode::OK, &failures))
}

#[derive(Serialize)]
struct NextJson {
    next: Vec<DueJson>,
}

#[derive(Serialize)]
struct DueJson {
    target: String,
    state: &'static str,
    penalty: i16,
    queue: &'static str,
    retries: bool,
    due: i64,
    first_job: String,
    oldest_due_age_ms: i64,
}

/// `GET /v1/next`
pub(super) async fn next(State(app): Shared, request: Request) -> Answer {
    let admitted = app.admission.without_body(request, Access::Manage)?;
    let mut query = Query::of(&admitted.parts.uri, &["limit"]);
    let limit = query.limit(GROUPS, GROUPS_MAX);
    query.finish()?;
    let due = app.queue.due_next(app.penalty_stale_after, limit);
    let due = app.ask(Changes::Nothing, due).await?;
    let next = due.into_iter().map(DueJson::new).collect();
    Ok(json_of(StatusCode::OK, &NextJson { next }))
}

impl FailureJson {
    fn new(group: FailureGroup) -> Self {
        Self {
            target: group.target,
            error_kind: error_kind(group.error_kind),
            jobs: group.jobs,
            newest_job: JobId(group.newest_job_id).to_string(),
            last_finished_at: time(group.last_finished_at),
        }
    }
}

impl DueJson {
    fn new(group: DueGroup) -> Self {
        let tier = Tier::from_code(group.tier).unwrap_or(Tier::Primary);
        Self {
            target: group.target,
            state: state(group.paused, group.held, group.penalty),
            penalty: group.penalty,
            queue: tier.queue().as_str(),
            retries: tier == Tier::DegradedRetry,
            due: group.due,
            first_job: JobId(group.first_job_id).to_string(),
            oldest_due_age_ms: group.oldest_due_age_ms,
        }
    }
}
