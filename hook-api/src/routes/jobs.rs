//! Jobs: look at one or many, stop one, put one back.

use axum::extract::{Path, Request, State, rejection::PathRejection};
use hook_common::{
    job::{JobId, QueueName},
    problem::Code,
    queue::{JobFilter, JobView},
    target::Target,
};
use http::StatusCode;
use serde::Serialize;
use serde_json::json;

use super::{Answer, Shared, json_of, segment};
use crate::{
    admission::Access,
    app::App,
    audit::Action,
    problem::{Changes, Refusal},
    query::Query,
    view::{JobJson, Shown},
};

/// Jobs of one page, unless asked for otherwise.
pub(super) const PAGE_JOBS: usize = 50;
/// Most jobs of one page.
pub(super) const PAGE_JOBS_MAX: usize = 500;

type JobPath = Result<Path<String>, PathRejection>;

/// `GET /v1/jobs/{id}`
pub(super) async fn get(State(app): Shared, path: JobPath, request: Request) -> Answer {
    let admitted = app.admission.without_body(request, Access::Manage)?;
    let id = job_id(path)?;
    let mut query = Query::of(&admitted.parts.uri, &["body"]);
    let everything = query.flag("body");
    query.finish()?;
    let job = find(&app, id, everything).await?;
    show(&app, job, everything).await
}

#[derive(Serialize)]
struct PageJson {
    jobs: Vec<JobJson>,
    next_cursor: Option<String>,
}

/// `GET /v1/jobs`
pub(super) async fn list(State(app): Shared, request: Request) -> Answer {
    let admitted = app.admission.without_body(request, Access::Manage)?;
    let known = ["status", "target", "queue", "from", "to", "limit", "cursor"];
    let mut query = Query::of(&admitted.parts.uri, &known);
    let filter = JobFilter {
        status: query.status(),
        target: query.target(),
        queue: query.queue(),
        from: query.time("from"),
        to: query.time("to"),
    };
    let limit = query.limit(PAGE_JOBS, PAGE_JOBS_MAX);
    let cursor = query.cursor();
    query.finish()?;
    let page = app.queue.list(&filter, cursor, limit);
    let page = app.ask(Changes::Nothing, page).await?;
    let ids: Vec<JobId> = page.jobs.iter().map(|job| JobId(job.job_id)).collect();
    let attempts = app.queue.attempts_of(&ids);
    let mut attempts = app.ask(Changes::Nothing, attempts).await?;
    let jobs = page.jobs.into_iter().map(|job| {
        let of_job = attempts.remove(&JobId(job.job_id)).unwrap_or_default();
        JobJson::new(job, of_job, shown(&app, false))
    });
    let page = PageJson {
        jobs: jobs.collect(),
        next_cursor: page.next.map(|next| next.to_string()),
    };
    Ok(json_of(StatusCode::OK, &page))
}

/// `POST /v1/jobs/{id}/cancel`
pub(super) async fn cancel(State(app): Shared, path: JobPath, request: Request) -> Answer {
    let admitted = app.admission.action(request).await?;
    let id = job_id(path)?;
    app.record(
        &admitted.parts,
        Action::CancelJob,
        &id.to_string(),
        &json!({}),
    )
    .await?;
    if app.ask(Changes::Something, app.queue.cancel(id)).await? {
        let job = find(&app, id, false).await?;
        return show(&app, job, false).await;
    }
    refuse_by_state(&app, id, "only a waiting job can be cancelled").await
}

/// `POST /v1/jobs/{id}/retry`
pub(super) async fn retry(State(app): Shared, path: JobPath, request: Request) -> Answer {
    let admitted = app.admission.action(request).await?;
    let id = job_id(path)?;
    app.record(
        &admitted.parts,
        Action::RetryJob,
        &id.to_string(),
        &json!({}),
    )
    .await?;
    if app.ask(Changes::Something, app.queue.retry(id)).await? {
        let job = find(&app, id, false).await?;
        if let Ok(target) = Target::new(job.target.clone()) {
            let target = target.id();
            app.waker
                .wake(QueueName::ALL.iter().map(|queue| (*queue, target)));
        }
        return show(&app, job, false).await;
    }
    refuse_by_state(
        &app,
        id,
        "only a finished job whose time to live is not over can be attempted again",
    )
    .await
}

async fn find(app: &App, id: JobId, with_body: bool) -> Result<JobView, Refusal> {
    let job = app.queue.job(id, with_body);
    let job = app.ask(Changes::Nothing, job).await?;
    job.ok_or_else(no_such_job)
}

/// Answers with a job and its attempts.
async fn show(app: &App, job: JobView, everything: bool) -> Answer {
    let attempts = app.queue.attempts(JobId(job.job_id));
    let attempts = app.ask(Changes::Nothing, attempts).await?;
    let job = JobJson::new(job, attempts, shown(app, everything));
    Ok(json_of(StatusCode::OK, &job))
}

/// Refuses an action on a job that is not where it has to be, or not at all.
async fn refuse_by_state(app: &App, id: JobId, detail: &'static str) -> Answer {
    find(app, id, false).await?;
    Err(Refusal::new(Code::StateConflict, detail))
}

fn shown(app: &App, everything: bool) -> Shown<'_> {
    Shown {
        everything,
        sealer: app.sealer.as_ref(),
        max_attempts: app.max_attempts,
    }
}

fn job_id(path: JobPath) -> Result<JobId, Refusal> {
    JobId::parse(&segment(path)?).ok_or_else(no_such_job)
}

fn no_such_job() -> Refusal {
    Refusal::not_found("there is no such job, or it has been purged")
}
