//! Targets: look at them, hold them back, set their limits.

use axum::extract::{Path, Request, State, rejection::PathRejection};
use hook_common::{
    job::QueueName,
    problem::Code,
    queue::{TargetChange, TargetOrder},
    target::Target,
    url_rules::target_of_host,
};
use http::StatusCode;
use serde::Serialize;
use serde_json::json;

use super::{Answer, Shared, asked, json_of, segment};
use crate::{
    admission::{Access, Content},
    app::App,
    audit::Action,
    fields::Fields,
    problem::{Changes, Refusal},
    query::Query,
    view::{TargetHourJson, TargetJson},
};

/// Targets of a list, unless asked for otherwise.
pub(super) const LIST_TARGETS: usize = 50;
/// Most targets of a list.
pub(super) const LIST_TARGETS_MAX: usize = 500;
/// Hours of a history, unless asked for otherwise.
pub(super) const HISTORY_HOURS: usize = 48;
/// Most hours of a history.
pub(super) const HISTORY_HOURS_MAX: usize = 500;
/// Most hours of the short history that comes with a target.
pub(super) const RECENT_HOURS_MAX: i32 = 48;
/// Largest number of attempts at one time that can be set.
const IN_FLIGHT_MAX: usize = 1_000_000;
/// Largest rate that can be set, in attempts a second.
const RATE_MAX: f64 = 1_000_000.0;
/// Highest level of penalty.
const PENALTY_MAX: usize = 9;

type TargetPath = Result<Path<String>, PathRejection>;

#[derive(Serialize)]
struct ListJson {
    targets: Vec<TargetJson>,
}

#[derive(Serialize)]
struct HistoryJson {
    hours: Vec<TargetHourJson>,
}

/// `GET /v1/targets`
pub(super) async fn list(State(app): Shared, request: Request) -> Answer {
    let admitted = app.admission.without_body(request, Access::Manage)?;
    let mut query = Query::of(&admitted.parts.uri, &["order", "limit", "hours"]);
    let order = query.parsed("order", "must be waiting, failing or slow", order_of);
    let order = order.unwrap_or(TargetOrder::Waiting);
    let limit = query.limit(LIST_TARGETS, LIST_TARGETS_MAX);
    let hours = query.hours(RECENT_HOURS_MAX);
    query.finish()?;
    let stale_after = app.penalty_stale_after;
    let targets = app.queue.targets(order, limit, hours, stale_after);
    let targets = app.ask(Changes::Nothing, targets).await?;
    let targets = targets.into_iter().map(TargetJson::new).collect();
    Ok(json_of(StatusCode::OK, &ListJson { targets }))
}

/// `GET /v1/targets/{target}`
pub(super) async fn get(State(app): Shared, path: TargetPath, request: Request) -> Answer {
    let admitted = app.admission.without_body(request, Access::Manage)?;
    let target = target_of(&app, path, no_such_target).await?;
    let mut query = Query::of(&admitted.parts.uri, &["hours"]);
    let hours = query.hours(RECENT_HOURS_MAX);
    query.finish()?;
    show(&app, &target, hours).await
}

/// `GET /v1/targets/{target}/history`
pub(super) async fn history(State(app): Shared, path: TargetPath, request: Request) -> Answer {
    let admitted = app.admission.without_body(request, Access::Manage)?;
    let target = target_of(&app, path, no_such_target).await?;
    let mut query = Query::of(&admitted.parts.uri, &["from", "to", "limit"]);
    let (from, to) = (query.time("from"), query.time("to"));
    let limit = query.limit(HISTORY_HOURS, HISTORY_HOURS_MAX);
    query.finish()?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let hours = app.queue.target_history(&target, from, to, limit);
    let hours = app.ask(Changes::Nothing, hours).await?;
    let hours = hours.into_iter().map(TargetHourJson::new).collect();
    Ok(json_of(StatusCode::OK, &HistoryJson { hours }))
}

/// `POST /v1/targets/{target}/pause`
pub(super) async fn pause(State(app): Shared, path: TargetPath, request: Request) -> Answer {
    let admitted = app.admission.action(request).await?;
    let target = target_of(&app, path, no_host).await?;
    app.record(
        &admitted.parts,
        Action::PauseTarget,
        target.as_str(),
        &json!({}),
    )
    .await?;
    change(&app, &target, &paused(true)).await
}

/// `POST /v1/targets/{target}/resume`
pub(super) async fn resume(State(app): Shared, path: TargetPath, request: Request) -> Answer {
    let admitted = app.admission.action(request).await?;
    let target = target_of(&app, path, no_host).await?;
    app.record(
        &admitted.parts,
        Action::ResumeTarget,
        target.as_str(),
        &json!({}),
    )
    .await?;
    change(&app, &target, &paused(false)).await
}

/// `POST /v1/targets/{target}/probe`
pub(super) async fn probe(State(app): Shared, path: TargetPath, request: Request) -> Answer {
    let admitted = app.admission.action(request).await?;
    let target = target_of(&app, path, no_such_target).await?;
    app.record(
        &admitted.parts,
        Action::ProbeTarget,
        target.as_str(),
        &json!({}),
    )
    .await?;
    let probing = app.queue.probe_now(&target);
    if app.ask(Changes::Something, probing).await? {
        return show(&app, &target, 0).await;
    }
    show(&app, &target, 0).await?;
    let detail = "only a target that is held, and is not being probed, can be probed; a paused one \
        is resumed, and the jobs of any other go out by themselves";
    Err(Refusal::new(Code::StateConflict, detail))
}

/// `PATCH /v1/targets/{target}`
pub(super) async fn patch(State(app): Shared, path: TargetPath, request: Request) -> Answer {
    let admission = &app.admission;
    let admitted = admission
        .with_body(request, Access::Manage, Content::Json)
        .await?;
    let target = target_of(&app, path, no_host).await?;
    let mut fields = Fields::of(&admitted.body)?;
    let max_in_flight = fields.clearable("max_in_flight", |fields, name| {
        let number = fields.whole(name, 1..=IN_FLIGHT_MAX)?;
        i32::try_from(number).ok()
    });
    let rate_per_second = fields.clearable("rate_per_second", |fields, name| {
        fields.positive(name, RATE_MAX)
    });
    let penalty_pin = fields.clearable("penalty", |fields, name| {
        let level = fields.whole(name, 0..=PENALTY_MAX)?;
        i16::try_from(level).ok()
    });
    fields.finish()?;
    let wanted = TargetChange {
        paused: None,
        max_in_flight,
        rate_per_second,
        penalty_pin,
    };
    let asked = asked(&admitted.body);
    app.record(
        &admitted.parts,
        Action::ChangeTarget,
        target.as_str(),
        &asked,
    )
    .await?;
    change(&app, &target, &wanted).await
}

fn paused(paused: bool) -> TargetChange {
    TargetChange {
        paused: Some(paused),
        ..TargetChange::default()
    }
}

/// Changes a target and answers with it as it is then.
async fn change(app: &App, target: &Target, change: &TargetChange) -> Answer {
    let changing = app.queue.change_target(target, change);
    app.ask(Changes::Something, changing).await?;
    // A worker that hears of the target looks at it again.
    let id = target.id();
    app.waker
        .wake(QueueName::ALL.iter().map(|queue| (*queue, id)));
    show(app, target, 0).await
}

async fn show(app: &App, target: &Target, hours: i32) -> Answer {
    let found = app.queue.target(target, hours, app.penalty_stale_after);
    let found = app.ask(Changes::Nothing, found).await?;
    let found = found.ok_or_else(no_such_target)?;
    Ok(json_of(StatusCode::OK, &TargetJson::new(found)))
}

fn order_of(word: &str) -> Option<TargetOrder> {
    match word {
        "waiting" => Some(TargetOrder::Waiting),
        "failing" => Some(TargetOrder::Failing),
        "slow" => Some(TargetOrder::Slow),
        _ => None,
    }
}

/// The target that a path means: the one of this very name if something is known of it, else the
/// one of the jobs whose URL has this host.
async fn target_of(
    app: &App,
    path: TargetPath,
    otherwise: fn() -> Refusal,
) -> Result<Target, Refusal> {
    let name = segment(path)?;
    if let Ok(target) = Target::new(name.as_str()) {
        let known = app.queue.knows_target(&target);
        if app.ask(Changes::Nothing, known).await? {
            return Ok(target);
        }
    }
    target_of_host(&name).map_err(|_| otherwise())
}

fn no_such_target() -> Refusal {
    Refusal::not_found("there is no such target")
}

fn no_host() -> Refusal {
    let detail = "no target of this name is known, and it is no host that a job's URL can have";
    Refusal::new(Code::UrlInvalid, detail)
}
