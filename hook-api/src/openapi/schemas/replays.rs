//! The schemas of replays.

use hook_common::queue::ReplayState;
use serde_json::{Value, json};

use crate::{
    openapi::{
        operation::reference,
        parts::{
            count, error_kind, id, list, name, nullable, object, optional, queue, target, text,
            time, whole, words,
        },
    },
    routes::{REPLAY_JOBS, REPLAY_JOBS_MAX, REPLAY_RATE, REPLAY_RATE_MAX},
};

/// A request for one.
pub(super) fn asked() -> Value {
    let mut status = status();
    status["default"] = "failed".into();
    let up_to = |default: usize, max: usize| json!({"type": "integer", "minimum": 1, "maximum": max, "default": default});
    optional(&[
        ("status", status),
        ("target", target()),
        ("queue", queue()),
        ("error_kind", error_kind()),
        ("from", time()),
        ("to", time()),
        ("limit", up_to(REPLAY_JOBS, REPLAY_JOBS_MAX)),
        ("rate_per_second", up_to(REPLAY_RATE, REPLAY_RATE_MAX)),
        ("idempotency_key", name()),
    ])
}

/// One and many.
pub(super) fn answers() -> Vec<(&'static str, Value)> {
    let replay = [
        ("id", id()),
        ("state", words(ReplayState::ALL, ReplayState::as_str)),
        ("status", status()),
        ("target", nullable(target())),
        ("queue", nullable(queue())),
        ("error_kind", nullable(error_kind())),
        ("from", nullable(time())),
        ("to", nullable(time())),
        ("limit", whole(1, 100_000)),
        ("rate_per_second", whole(1, 1000)),
        ("requested_at", time()),
        ("requested_by", nullable(text())),
        ("total", count()),
        ("done", count()),
        ("finished_at", nullable(time())),
    ];
    let replays = [
        ("replays", list(reference("Replay"))),
        ("next_cursor", nullable(text())),
    ];
    vec![("Replay", object(&replay)), ("Replays", object(&replays))]
}

/// The statuses of finished jobs.
fn status() -> Value {
    json!({"enum": ["failed", "cancelled", "completed"]})
}
