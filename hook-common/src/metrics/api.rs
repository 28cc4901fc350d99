//! What `hook-api` exports.

use super::{Kind, Metric, Unit};

/// Jobs stored.
pub const JOBS_ENQUEUED_TOTAL: Metric = Metric::counter_of(
    "hook_api_jobs_enqueued_total",
    &["queue"],
    "Jobs stored durably, by the queue they were put into.",
);
/// Requests that repeated an earlier one.
pub const DUPLICATES_TOTAL: Metric = Metric::counter_of(
    "hook_api_duplicates_total",
    &[],
    "Jobs not stored because their idempotency key named an earlier one.",
);
/// Requests answered.
pub const REQUESTS_TOTAL: Metric = Metric::counter_of(
    "hook_api_requests_total",
    &["route", "status"],
    "Requests answered, by route pattern and HTTP status.",
);
/// Time to answer.
pub const REQUEST_DURATION_SECONDS: Metric = Metric::seconds_of(
    "hook_api_request_duration_seconds",
    &["route", "status"],
    "Time from the end of the request head to the answer.",
);
/// Requests refused.
pub const REJECTIONS_TOTAL: Metric = Metric::counter_of(
    "hook_api_rejections_total",
    &["code"],
    "Requests answered with a problem, by its code.",
);
/// Open client connections.
pub const CONNECTIONS: Metric = Metric::gauge_of(
    "hook_api_connections",
    &[],
    "Client connections that are open.",
);
/// Limit of client connections.
pub const CONNECTIONS_MAX: Metric = Metric::gauge_of(
    "hook_api_connections_max",
    &[],
    "Client connections that may be open (`HOOK_API_CONNECTIONS_MAX`).",
);
/// Client connections closed by us.
pub const CONNECTIONS_CUT_TOTAL: Metric = Metric::counter_of(
    "hook_api_connections_cut_total",
    &["reason"],
    "Client connections closed by us before an answer; `reason` is `head_timeout`, `body_timeout`, `limit`, `protocol` or `drain`.",
);
/// Jobs per group commit.
pub const GROUP_COMMIT_JOBS: Metric = Metric::of(
    Kind::Histogram,
    Unit::Count,
    "hook_api_group_commit_jobs",
    &[],
)
.helped("Jobs stored by one statement.");
/// Duration of a group commit.
pub const GROUP_COMMIT_DURATION_SECONDS: Metric = Metric::seconds_of(
    "hook_api_group_commit_duration_seconds",
    &["result"],
    "Duration of the statement that stores a group of jobs; `result` is `ok` or the kind of fault.",
);
/// Age of the penalty snapshot.
pub const PENALTY_SNAPSHOT_AGE_SECONDS: Metric = Metric::gauge_of(
    "hook_api_penalty_snapshot_age_seconds",
    &[],
    "Age of the list of penalised targets that routes new jobs.",
)
.in_unit(Unit::Seconds);

/// All of the above.
pub const ALL: &[Metric] = &[
    JOBS_ENQUEUED_TOTAL,
    DUPLICATES_TOTAL,
    REQUESTS_TOTAL,
    REQUEST_DURATION_SECONDS,
    REJECTIONS_TOTAL,
    CONNECTIONS,
    CONNECTIONS_MAX,
    CONNECTIONS_CUT_TOTAL,
    GROUP_COMMIT_JOBS,
    GROUP_COMMIT_DURATION_SECONDS,
    PENALTY_SNAPSHOT_AGE_SECONDS,
];
