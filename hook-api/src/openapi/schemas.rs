//! The schemas of what is sent and answered.
//!
//! Answers list every member they have and no other, so that a member that is added to the code
//! alone fails the test which holds live answers against these.

use hook_common::{
    envelope::BATCH_JOBS_MAX,
    job::{Method, Outcome},
    problem::Code,
    queue::PenaltyReason,
};
use serde_json::{Map, Value, json};

use super::{
    operation::reference,
    parts::{
        count, error_kind, headers, id, list, metadata, method, name, nullable, object, optional,
        queue, status, target, text, time, url, whole, words,
    },
};
use crate::audit::Action;

mod replays;

/// Every schema by its name.
pub(super) fn all() -> Value {
    let mut all = Map::new();
    for (name, schema) in requests().into_iter().chain(answers()) {
        all.insert(name.to_owned(), schema);
    }
    all.into()
}

fn requests() -> Vec<(&'static str, Value)> {
    vec![
        ("NewJob", new_job()),
        (
            "NewJobs",
            object(&[(
                "jobs",
                json!({"type": "array", "items": reference("NewJob"),
                    "minItems": 1, "maxItems": BATCH_JOBS_MAX}),
            )]),
        ),
        ("Webhook", webhook()),
        ("NewReplay", replays::asked()),
        (
            "TargetChange",
            optional(&[
                ("max_in_flight", nullable(whole(1, 1_000_000))),
                (
                    "rate_per_second",
                    nullable(json!({"type": "number", "exclusiveMinimum": 0, "maximum": 1e6})),
                ),
                ("penalty", nullable(whole(0, 9))),
            ]),
        ),
        (
            "NewSecret",
            object(&[(
                "secret",
                json!({"type": "string", "pattern": "^wh(sec|sk)_", "writeOnly": true,
                    "description": "`whsec_` and 24 to 64 bytes in base64 (HMAC), or `whsk_` and \
                        a seed of 32 or a key of 64 bytes (ed25519)."}),
            )]),
        ),
    ]
}

fn new_job() -> Value {
    let mut schema = object(&[("url", url())]);
    let more = [
        (
            "payload",
            json!({"description": "Any JSON; the bytes are sent as they are written."}),
        ),
        (
            "body",
            json!({"type": "string", "description": "The body as text."}),
        ),
        (
            "body_base64",
            json!({"type": "string", "contentEncoding": "base64"}),
        ),
        ("method", method()),
        ("headers", headers()),
        ("metadata", metadata()),
        ("target", target()),
        ("scheduled_at", time()),
        ("delay_ms", whole(0, 3_162_240_000_000)),
        ("expires_at", time()),
        ("ttl_ms", whole(1, 3_162_240_000_000)),
        ("max_attempts", whole(1, 100)),
        ("timeout_ms", whole(1, 60_000)),
        ("idempotency_key", name()),
        (
            "signing",
            object(&[(
                "secrets",
                json!({"type": "array", "items": name(), "minItems": 1, "maxItems": 10}),
            )]),
        ),
    ];
    for (name, field) in more {
        schema["properties"][name] = field;
    }
    // At most one of each pair.
    let both = |first: &str, second: &str| json!({"required": [first, second]});
    schema["not"] = json!({"anyOf": [
        both("payload", "body"), both("payload", "body_base64"), both("body", "body_base64"),
        both("scheduled_at", "delay_ms"), both("expires_at", "ttl_ms"),
    ]});
    schema
}

fn webhook() -> Value {
    let mut parameters = object(&[("url", url())]);
    parameters["properties"]["method"] = nullable(method());
    parameters["properties"]["headers"] = nullable(headers());
    parameters["properties"]["body"] =
        json!({"description": "A string, of which the characters are sent, or any JSON."});
    let mut schema = object(&[("parameters", parameters)]);
    schema["properties"]["metadata"] = nullable(metadata());
    schema["properties"]["max_attempts"] = nullable(whole(1, 100));
    schema["description"] = "The older shape of a job.".into();
    schema
}

fn answers() -> Vec<(&'static str, Value)> {
    let mut all = jobs();
    all.extend(replays::answers());
    all.extend(targets());
    all.extend(overview());
    all.extend([
        ("Queues", object(&[("queues", list(reference("Queue")))])),
        (
            "Queue",
            object(&[
                ("queue", queue()),
                ("available", count()),
                ("running", count()),
                ("completed", count()),
                ("failed", count()),
                ("cancelled", count()),
                ("oldest_due_age_ms", nullable(count())),
            ]),
        ),
        (
            "Secret",
            object(&[
                ("name", name()),
                ("kind", json!({"enum": ["hmac", "ed25519"]})),
                ("created_at", time()),
                ("last_four", text()),
            ]),
        ),
        ("Problem", problem()),
    ]);
    all
}

fn jobs() -> Vec<(&'static str, Value)> {
    let placed = [
        ("id", id()),
        ("queue", queue()),
        ("target", target()),
        ("duplicate", json!({"type": "boolean"})),
    ];
    let mut job = object(&[
        ("id", id()),
        ("status", status()),
        ("queue", queue()),
        ("target", target()),
        ("url", text()),
        ("method", words(Method::ALL, Method::as_str)),
        (
            "headers",
            json!({"type": "object", "additionalProperties": text()}),
        ),
        ("metadata", json!({"type": "object"})),
        ("attempt", count()),
        ("max_attempts", count()),
        ("created_at", time()),
        ("scheduled_at", time()),
        ("expires_at", nullable(time())),
        ("finished_at", nullable(time())),
        ("error_kind", nullable(error_kind())),
        ("attempts", list(reference("Attempt"))),
    ]);
    job["properties"]["body"] = text();
    job["properties"]["body_base64"] = json!({"type": "string", "contentEncoding": "base64"});
    let attempt = [
        ("attempt", count()),
        ("started_at", time()),
        ("duration_ms", count()),
        ("outcome", words(Outcome::ALL, Outcome::as_str)),
        ("error_kind", nullable(error_kind())),
        ("response_status", nullable(count())),
        ("response_excerpt", nullable(text())),
        ("response_truncated", json!({"type": "boolean"})),
        ("worker", text()),
    ];
    vec![
        ("Placed", object(&placed)),
        ("PlacedJobs", object(&[("jobs", list(reference("Placed")))])),
        ("WebhookPlaced", object(&[("id", id())])),
        ("Job", job),
        (
            "Jobs",
            object(&[
                ("jobs", list(reference("Job"))),
                ("next_cursor", nullable(text())),
            ]),
        ),
        ("Attempt", object(&attempt)),
    ]
}

fn targets() -> Vec<(&'static str, Value)> {
    let recent_hour = [
        ("hour", time()),
        ("delivered", count()),
        ("failed", count()),
    ];
    let target = [
        ("target", target()),
        ("state", target_state()),
        ("penalty", whole(0, 9)),
        ("penalty_pin", nullable(whole(0, 9))),
        (
            "penalty_reasons",
            list(words(PenaltyReason::ALL, PenaltyReason::as_str)),
        ),
        ("failures_in_row", count()),
        ("next_probe_at", nullable(time())),
        ("asked_until", nullable(time())),
        ("waiting", count()),
        ("retries", count()),
        ("running", count()),
        ("failed", count()),
        ("max_in_flight", nullable(count())),
        ("rate_per_second", nullable(json!({"type": "number"}))),
        ("last_error_kind", nullable(error_kind())),
        ("last_error_at", nullable(time())),
        ("last_success_at", nullable(time())),
        ("latency_p50_ms", nullable(count())),
        ("latency_p95_ms", nullable(count())),
        ("unused", json!({"type": "boolean"})),
        ("hours", list(object(&recent_hour))),
    ];
    let hour = [
        ("hour", time()),
        ("attempts", count()),
        ("delivered", count()),
        ("retryable", count()),
        ("permanent", count()),
        ("mean_duration_ms", count()),
    ];
    vec![
        ("Target", object(&target)),
        ("Targets", object(&[("targets", list(reference("Target")))])),
        ("Hour", object(&hour)),
        ("Hours", object(&[("hours", list(reference("Hour")))])),
    ]
}

fn overview() -> Vec<(&'static str, Value)> {
    let attempts = [
        ("delivered", count()),
        ("retryable", count()),
        ("permanent", count()),
    ];
    let counts = [
        ("penalised", count()),
        ("held", count()),
        ("paused", count()),
    ];
    let failure = [
        ("target", target()),
        ("error_kind", nullable(error_kind())),
        ("jobs", count()),
        ("newest_job", id()),
        ("last_finished_at", time()),
    ];
    let due = [
        ("target", target()),
        ("state", target_state()),
        ("penalty", whole(0, 9)),
        ("queue", queue()),
        ("retries", json!({"type": "boolean"})),
        ("due", count()),
        ("first_job", id()),
        ("oldest_due_age_ms", count()),
    ];
    let entry = [
        ("at", time()),
        ("action", words(Action::ALL, Action::as_str)),
        ("subject", text()),
        ("detail", json!({"type": "object"})),
        ("token", nullable(text())),
        ("remote", text()),
    ];
    let audit = [
        ("entries", list(object(&entry))),
        ("next_cursor", nullable(text())),
    ];
    let overview = [
        ("queues", list(reference("Queue"))),
        ("attempts", object(&attempts)),
        ("targets", object(&counts)),
    ];
    let failures = [
        ("failures", list(object(&failure))),
        ("sampled", json!({"type": "boolean"})),
    ];
    vec![
        ("Audit", object(&audit)),
        ("Overview", object(&overview)),
        ("Failures", object(&failures)),
        ("Next", object(&[("next", list(object(&due)))])),
    ]
}

fn target_state() -> Value {
    json!({"enum": ["healthy", "penalised", "held", "paused"]})
}

fn problem() -> Value {
    let code = || words(Code::ALL, Code::as_str);
    let error = [("pointer", text()), ("code", code()), ("detail", text())];
    let mut problem = object(&[
        ("type", text()),
        ("title", text()),
        ("status", whole(400, 599)),
        ("code", code()),
        ("detail", text()),
    ]);
    problem["properties"]["errors"] = list(object(&error));
    problem
}
