//! The table of routes: what the router serves and what the description of it says.

use std::sync::Arc;

use axum::{
    handler::Handler,
    routing::{MethodRouter, on},
};
use serde_json::{Value, json};

use super::{audit, description, enqueue, jobs, overview, page, queues, replays, secrets, targets};
use crate::{
    app::App,
    openapi::{
        operation::{Operation, Verb},
        parts,
    },
};

/// One method of one route.
pub(crate) struct Route {
    /// What clients are told about it.
    pub(crate) operation: Operation,
    /// Who answers.
    pub(super) handler: MethodRouter<Arc<App>>,
}

impl Route {
    fn new<T: 'static>(operation: Operation, handler: impl Handler<T, Arc<App>>) -> Self {
        let handler = on(operation.verb.filter(), handler);
        Self { operation, handler }
    }
}

/// Every route of the product.
pub(crate) fn all() -> Vec<Route> {
    let mut all = enqueuing();
    all.extend(looking_at_jobs());
    all.extend(changing_jobs());
    all.extend(about_replays());
    all.extend(about_targets());
    all.extend(holding_targets());
    all.extend(about_secrets());
    all.extend(about_the_whole());
    all.extend(page());
    all
}

fn about_the_whole() -> Vec<Route> {
    let groups = || limit(overview::GROUPS, overview::GROUPS_MAX);
    vec![
        Route::new(
            get("/v1/queues", "listQueues")
                .says("Shows how many jobs are where.")
                .refuses(422)
                .answers(200, "Queues"),
            queues::list,
        ),
        Route::new(
            get("/v1/overview", "getOverview")
                .says("Shows queues, attempts ever made, and how many targets fare badly.")
                .refuses(422)
                .answers(200, "Overview"),
            overview::overview,
        ),
        Route::new(
            get("/v1/failures", "listFailures")
                .says("Groups the newest failed jobs by target and reason, the largest first.")
                .query("limit", groups())
                .answers(200, "Failures"),
            overview::failures,
        ),
        Route::new(
            get("/v1/next", "listNext")
                .says("Shows what is due by target, in the order in which workers serve it.")
                .query("limit", groups())
                .answers(200, "Next"),
            overview::next,
        ),
        Route::new(
            get("/v1/audit", "listAudit")
                .says("Lists the changes that were asked for, the latest first.")
                .query("limit", limit(audit::PAGE_ENTRIES, audit::PAGE_ENTRIES_MAX))
                .query("cursor", json!({"type": "string", "format": "uuid"}))
                .answers(200, "Audit"),
            audit::list,
        ),
        Route::new(
            get("/openapi.json", "getDescription")
                .says("Gives this document.")
                .answers_with(200, "application/json"),
            description::get,
        ),
    ]
}

fn page() -> Vec<Route> {
    vec![
        Route::new(
            get("/", "getPage")
                .says("The operations page.")
                .answers_with(200, "text/html; charset=utf-8"),
            page::html,
        ),
        Route::new(
            get("/page.js", "getPageScript")
                .says("The script of the operations page.")
                .answers_with(200, "text/javascript; charset=utf-8"),
            page::script,
        ),
        Route::new(
            get("/page.css", "getPageStyle")
                .says("The style of the operations page.")
                .answers_with(200, "text/css; charset=utf-8"),
            page::style,
        ),
    ]
}

fn enqueuing() -> Vec<Route> {
    let enqueues = |operation: Operation| operation.refuses(409).refuses(429);
    vec![
        Route::new(
            enqueues(post("/v1/jobs", "enqueue"))
                .says("Stores a job; answers once it is durable. 200 is the first job's answer again.")
                .header("idempotency-key", parts::name())
                .takes("NewJob")
                .answers(202, "Placed")
                .answers(200, "Placed"),
            enqueue::one,
        ),
        Route::new(
            enqueues(post("/v1/jobs/batch", "enqueueBatch"))
                .says("Stores 1 to 1000 jobs, all or none.")
                .takes_lines("NewJobs", "NewJob")
                .answers(202, "PlacedJobs"),
            enqueue::batch,
        ),
        Route::new(
            enqueues(post("/webhook", "enqueueOlder"))
                .says("Stores a job in the older shape.")
                .header("idempotency-key", parts::name())
                .takes("Webhook")
                .answers(200, "WebhookPlaced"),
            enqueue::legacy,
        ),
    ]
}

fn looking_at_jobs() -> Vec<Route> {
    vec![
        Route::new(
            get("/v1/jobs", "listJobs")
                .says(
                    "Lists jobs, newest first; a page may be short or empty while there are more.",
                )
                .query("status", parts::status())
                .query("target", parts::target())
                .query("queue", parts::queue())
                .query("from", parts::time())
                .query("to", parts::time())
                .query("limit", limit(jobs::PAGE_JOBS, jobs::PAGE_JOBS_MAX))
                .query("cursor", json!({"type": "string", "format": "uuid"}))
                .answers(200, "Jobs"),
            jobs::list,
        ),
        Route::new(
            get("/v1/jobs/{id}", "getJob")
                .says("Shows a job and its attempts; secrets, body and path only when asked for.")
                .query("body", json!({"type": "boolean", "default": false}))
                .answers(200, "Job"),
            jobs::get,
        ),
    ]
}

fn changing_jobs() -> Vec<Route> {
    vec![
        Route::new(
            post("/v1/jobs/{id}/retry", "retryJob")
                .says("Attempts a finished job again, counted from 0; the history stays.")
                .action()
                .answers(200, "Job")
                .refuses(409),
            jobs::retry,
        ),
        Route::new(
            post("/v1/jobs/{id}/cancel", "cancelJob")
                .says("Stops a waiting job.")
                .action()
                .answers(200, "Job")
                .refuses(409),
            jobs::cancel,
        ),
    ]
}

fn about_replays() -> Vec<Route> {
    vec![
        Route::new(
            post("/v1/jobs/replay", "replayJobs")
                .says(
                    "Has finished jobs put back into the degraded queue, at a bounded rate. 200 is \
                     the replay that was started with this key before.",
                )
                .header("idempotency-key", parts::name())
                .takes("NewReplay")
                .answers(202, "Replay")
                .answers(200, "Replay")
                .refuses(409),
            replays::start,
        ),
        Route::new(
            get("/v1/replays", "listReplays")
                .says("Lists replays, the latest first.")
                .query(
                    "limit",
                    limit(replays::PAGE_REPLAYS, replays::PAGE_REPLAYS_MAX),
                )
                .query("cursor", json!({"type": "string", "format": "uuid"}))
                .answers(200, "Replays"),
            replays::list,
        ),
        Route::new(
            get("/v1/replays/{id}", "getReplay")
                .says("Shows how far a replay has come.")
                .answers(200, "Replay"),
            replays::get,
        ),
        Route::new(
            post("/v1/replays/{id}/cancel", "cancelReplay")
                .says("Stops a replay that is under way; jobs that are back stay back.")
                .action()
                .answers(200, "Replay")
                .refuses(409),
            replays::cancel,
        ),
    ]
}

fn about_targets() -> Vec<Route> {
    let order = json!({"enum": ["waiting", "failing", "slow"], "default": "waiting"});
    let hours = || {
        let max = targets::RECENT_HOURS_MAX;
        json!({"type": "integer", "minimum": 0, "maximum": max, "default": 0})
    };
    vec![
        Route::new(
            get("/v1/targets", "listTargets")
                .says(
                    "Lists targets: those with most waiting jobs, or that fail, or that are slow.",
                )
                .query("order", order)
                .query("hours", hours())
                .query(
                    "limit",
                    limit(targets::LIST_TARGETS, targets::LIST_TARGETS_MAX),
                )
                .answers(200, "Targets"),
            targets::list,
        ),
        Route::new(
            get("/v1/targets/{target}", "getTarget")
                .says("Shows a target.")
                .query("hours", hours())
                .answers(200, "Target"),
            targets::get,
        ),
        Route::new(
            patch("/v1/targets/{target}", "changeTarget")
                .says("Sets limits of a target; null takes one away.")
                .takes("TargetChange")
                .answers(200, "Target"),
            targets::patch,
        ),
        Route::new(
            get("/v1/targets/{target}/history", "getTargetHistory")
                .says("Shows what a target's attempts came to, hour by hour, the latest first.")
                .query("from", parts::time())
                .query("to", parts::time())
                .query(
                    "limit",
                    limit(targets::HISTORY_HOURS, targets::HISTORY_HOURS_MAX),
                )
                .answers(200, "Hours"),
            targets::history,
        ),
    ]
}

fn holding_targets() -> Vec<Route> {
    vec![
        Route::new(
            post("/v1/targets/{target}/pause", "pauseTarget")
                .says("Holds a target's jobs back until it is resumed.")
                .action()
                .answers(200, "Target")
                .refuses(422),
            targets::pause,
        ),
        Route::new(
            post("/v1/targets/{target}/resume", "resumeTarget")
                .says("Lets a paused target's jobs go again.")
                .action()
                .answers(200, "Target")
                .refuses(422),
            targets::resume,
        ),
        Route::new(
            post("/v1/targets/{target}/probe", "probeTarget")
                .says("Lets the next probe of a held target go out now, or ends the pause that it asked for.")
                .action()
                .answers(200, "Target")
                .refuses(409),
            targets::probe,
        ),
    ]
}

fn about_secrets() -> Vec<Route> {
    vec![
        Route::new(
            put("/v1/secrets/{name}", "putSecret")
                .says("Stores or replaces a signing secret.")
                .takes("NewSecret")
                .answers(200, "Secret"),
            secrets::put,
        ),
        Route::new(
            get("/v1/secrets/{name}", "getSecret")
                .says("Shows what may be known about a signing secret.")
                .answers(200, "Secret"),
            secrets::get,
        ),
        Route::new(
            delete("/v1/secrets/{name}", "deleteSecret")
                .says("Deletes a signing secret.")
                .answers_nothing(204),
            secrets::delete,
        ),
    ]
}

fn get(path: &'static str, id: &'static str) -> Operation {
    Operation::new(Verb::Get, path, id)
}

fn post(path: &'static str, id: &'static str) -> Operation {
    Operation::new(Verb::Post, path, id)
}

fn put(path: &'static str, id: &'static str) -> Operation {
    Operation::new(Verb::Put, path, id)
}

fn patch(path: &'static str, id: &'static str) -> Operation {
    Operation::new(Verb::Patch, path, id)
}

fn delete(path: &'static str, id: &'static str) -> Operation {
    Operation::new(Verb::Delete, path, id)
}

/// How many of something an answer may list.
fn limit(default: usize, max: usize) -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": max, "default": default})
}
