//! Queues: how many jobs are where.

use axum::extract::{Request, State};
use hook_common::queue::QueueStats;
use http::StatusCode;
use serde::Serialize;

use super::{Answer, Shared, json_of};
use crate::{admission::Access, problem::Changes, query::Query};

#[derive(Serialize)]
struct ListJson {
    queues: Vec<QueueJson>,
}

#[derive(Serialize)]
pub(super) struct QueueJson {
    queue: &'static str,
    available: i64,
    running: i64,
    completed: i64,
    failed: i64,
    cancelled: i64,
    oldest_due_age_ms: Option<u64>,
}

/// `GET /v1/queues`
pub(super) async fn list(State(app): Shared, request: Request) -> Answer {
    let admitted = app.admission.without_body(request, Access::Manage)?;
    Query::of(&admitted.parts.uri, &[]).finish()?;
    let stats = app.ask(Changes::Nothing, app.queue.queue_stats()).await?;
    let queues = stats.into_iter().map(QueueJson::new).collect();
    Ok(json_of(StatusCode::OK, &ListJson { queues }))
}

impl QueueJson {
    pub(super) fn new(stats: QueueStats) -> Self {
        let age = stats.oldest_due_age;
        Self {
            queue: stats.queue.as_str(),
            available: stats.available,
            running: stats.running,
            completed: stats.completed,
            failed: stats.failed,
            cancelled: stats.cancelled,
            oldest_due_age_ms: age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}
