//! The record of changes.

use axum::extract::{Request, State};
use hook_common::queue::AuditEntry;
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;

use super::{Answer, Shared, json_of};
use crate::{admission::Access, problem::Changes, query::Query, view::time};

/// Entries of one page, unless asked for otherwise.
pub(super) const PAGE_ENTRIES: usize = 50;
/// Most entries of one page.
pub(super) const PAGE_ENTRIES_MAX: usize = 500;

#[derive(Serialize)]
struct PageJson {
    entries: Vec<EntryJson>,
    next_cursor: Option<String>,
}

#[derive(Serialize)]
struct EntryJson {
    at: String,
    action: String,
    subject: String,
    detail: Value,
    token: Option<String>,
    remote: String,
}

/// `GET /v1/audit`
pub(super) async fn list(State(app): Shared, request: Request) -> Answer {
    let admitted = app.admission.without_body(request, Access::Manage)?;
    let mut query = Query::of(&admitted.parts.uri, &["limit", "cursor"]);
    let limit = query.limit(PAGE_ENTRIES, PAGE_ENTRIES_MAX);
    let before = query.cursor().map(|id| id.0);
    query.finish()?;
    // One more than asked for tells whether there are more.
    let entries = app.queue.audit(before, limit + 1);
    let mut entries = app.ask(Changes::Nothing, entries).await?;
    let more = entries.len() > limit;
    entries.truncate(limit);
    let last = entries.last().filter(|_| more);
    let page = PageJson {
        next_cursor: last.map(|last| last.audit_id.to_string()),
        entries: entries.into_iter().map(EntryJson::new).collect(),
    };
    Ok(json_of(StatusCode::OK, &page))
}

impl EntryJson {
    fn new(entry: AuditEntry) -> Self {
        Self {
            at: time(entry.at),
            action: entry.action,
            subject: entry.subject,
            detail: entry.detail,
            token: entry.token,
            remote: entry.remote,
        }
    }
}
