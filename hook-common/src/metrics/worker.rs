//! What `hook-worker` exports.

use super::{Kind, Metric, Unit};

/// Attempts ended.
pub const ATTEMPTS_TOTAL: Metric = Metric::counter_of(
    "hook_worker_attempts_total",
    &["queue", "outcome", "error_kind"],
    "Attempts that ended; `error_kind` is `none` for a delivery.",
);
/// Duration of attempts.
pub const ATTEMPT_DURATION_SECONDS: Metric = Metric::seconds_of(
    "hook_worker_attempt_duration_seconds",
    &["outcome"],
    "Duration of an attempt, from taking the job to its outcome.",
);
/// Due to delivered.
pub const DELIVERY_LATENCY_SECONDS: Metric = Metric::seconds_of(
    "hook_worker_delivery_latency_seconds",
    &["queue"],
    "Time from when a job was due to its delivery.",
);
/// Duration of dequeues.
pub const DEQUEUE_DURATION_SECONDS: Metric = Metric::seconds_of(
    "hook_worker_dequeue_duration_seconds",
    &["result"],
    "Duration of the dequeue statement; `result` is `jobs` or `empty`.",
);
/// Jobs leased.
pub const DEQUEUED_JOBS_TOTAL: Metric = Metric::counter_of(
    "hook_worker_dequeued_jobs_total",
    &["queue"],
    "Jobs leased for an attempt.",
);
/// Jobs per dequeue.
pub const DEQUEUE_JOBS: Metric = Metric::of(
    Kind::Histogram,
    Unit::Count,
    "hook_worker_dequeue_jobs",
    &[],
)
.helped("Jobs leased by one dequeue statement that found any.");
/// Dequeues that failed.
pub const DEQUEUE_FAILURES_TOTAL: Metric = Metric::counter_of(
    "hook_worker_dequeue_failures_total",
    &["fault"],
    "Dequeue statements that failed, by kind of fault.",
);
/// Last dequeue or sweep that was answered.
pub const LAST_DEQUEUE_SUCCESS_TIMESTAMP_SECONDS: Metric = Metric::gauge_of(
    "hook_worker_last_dequeue_success_timestamp_seconds",
    &[],
    "Unix time of the last dequeue that Postgres answered, or of the last sweep while no dequeue fails.",
)
.in_unit(Unit::Seconds);
/// Duration of finishes.
pub const FINISH_DURATION_SECONDS: Metric = Metric::seconds_of(
    "hook_worker_finish_duration_seconds",
    &[],
    "Duration of the statement that records a batch of outcomes.",
);
/// Outcomes per statement.
pub const FINISH_JOBS: Metric =
    Metric::of(Kind::Histogram, Unit::Count, "hook_worker_finish_jobs", &[])
        .helped("Outcomes recorded by one statement.");
/// Outcomes not recorded yet.
pub const FINISH_WAITING: Metric = Metric::gauge_of(
    "hook_worker_finish_waiting",
    &[],
    "Outcomes that wait to be recorded.",
);
/// Finishes repeated.
pub const FINISH_RETRIES_TOTAL: Metric = Metric::counter_of(
    "hook_worker_finish_retries_total",
    &["fault"],
    "Statements with outcomes that failed and were repeated, by kind of fault.",
);
/// Outcomes that came too late.
pub const LEASES_LOST_TOTAL: Metric = Metric::counter_of(
    "hook_worker_leases_lost_total",
    &[],
    "Outcomes that came after their lease had gone to somebody else; the row was left alone.",
);
/// Leases given back.
pub const LEASES_RETURNED_TOTAL: Metric = Metric::counter_of(
    "hook_worker_leases_returned_total",
    &[],
    "Leases given back without an attempt, because the process stopped.",
);
/// Targets with work.
pub const HEADS: Metric = Metric::gauge_of(
    "hook_worker_heads",
    &["state"],
    "Targets and queues that this worker knows to have work; `state` is `known` or `due`, which are those among them that have work now.",
);
/// Why the loop woke.
pub const WAKEUPS_TOTAL: Metric = Metric::counter_of(
    "hook_worker_wakeups_total",
    &["source"],
    "Targets that this worker learned to have work; `source` is `notification` or `sweep`.",
);
/// Duration of a sweep.
pub const SWEEP_DURATION_SECONDS: Metric = Metric::seconds_of(
    "hook_worker_sweep_duration_seconds",
    &[],
    "Duration of one bounded sweep for targets with work.",
);
/// LISTEN works.
pub const LISTENER_UP: Metric = Metric::gauge_of(
    "hook_worker_listener_up",
    &[],
    "1 while the connection that listens for new work is open; polling goes on without it.",
);
/// LISTEN reconnects.
pub const LISTENER_RECONNECTS_TOTAL: Metric = Metric::counter_of(
    "hook_worker_listener_reconnects_total",
    &[],
    "Times the listening connection had to be opened again.",
);
/// Targets with a penalty.
pub const PENALISED_TARGETS: Metric = Metric::gauge_of(
    "hook_worker_penalised_targets",
    &[],
    "Targets with a penalty in this worker's snapshot.",
);
/// Targets held.
pub const HELD_TARGETS: Metric = Metric::gauge_of(
    "hook_worker_held_targets",
    &[],
    "Targets whose jobs wait for a probe to succeed.",
);
/// Age of the penalty snapshot.
pub const PENALTY_SNAPSHOT_AGE_SECONDS: Metric = Metric::gauge_of(
    "hook_worker_penalty_snapshot_age_seconds",
    &[],
    "Age of the penalty snapshot; it rises while refreshes fail.",
)
.in_unit(Unit::Seconds);
/// Slots of penalised targets.
pub const PENALISED_SLOTS: Metric = Metric::gauge_of(
    "hook_worker_penalised_slots",
    &[],
    "Delivery slots that penalised targets hold.",
);
/// Probes of held targets.
pub const PROBES_TOTAL: Metric = Metric::counter_of(
    "hook_worker_probes_total",
    &["result"],
    "Attempts that probed a held target; `result` is `answered` or `failed`.",
);
/// Connections to targets.
pub const CONNECTIONS: Metric = Metric::gauge_of(
    "hook_worker_connections",
    &[],
    "Connections to targets that are kept open: idle ones, and HTTP/2 ones also while in use.",
);
/// Connects.
pub const CONNECTS_TOTAL: Metric = Metric::counter_of(
    "hook_worker_connects_total",
    &["result"],
    "Connections opened to targets; `result` is `ok` or an error kind.",
);
/// Connections used again.
pub const CONNECTION_REUSES_TOTAL: Metric = Metric::counter_of(
    "hook_worker_connection_reuses_total",
    &[],
    "Attempts sent over a connection that was open already.",
);
/// Duration of look-ups.
pub const DNS_DURATION_SECONDS: Metric = Metric::seconds_of(
    "hook_worker_dns_duration_seconds",
    &["result"],
    "Duration of a name look-up that was not cached; `result` is `ok` or `failed`.",
);
/// Rows that cannot be sent.
pub const POISON_JOBS_TOTAL: Metric = Metric::counter_of(
    "hook_worker_poison_jobs_total",
    &[],
    "Jobs that ended because their stored row cannot be sent as it is.",
);

/// All of the above.
pub const ALL: &[Metric] = &[
    ATTEMPTS_TOTAL,
    ATTEMPT_DURATION_SECONDS,
    DELIVERY_LATENCY_SECONDS,
    DEQUEUE_DURATION_SECONDS,
    DEQUEUED_JOBS_TOTAL,
    DEQUEUE_JOBS,
    DEQUEUE_FAILURES_TOTAL,
    LAST_DEQUEUE_SUCCESS_TIMESTAMP_SECONDS,
    FINISH_DURATION_SECONDS,
    FINISH_JOBS,
    FINISH_WAITING,
    FINISH_RETRIES_TOTAL,
    LEASES_LOST_TOTAL,
    LEASES_RETURNED_TOTAL,
    HEADS,
    WAKEUPS_TOTAL,
    SWEEP_DURATION_SECONDS,
    LISTENER_UP,
    LISTENER_RECONNECTS_TOTAL,
    PENALISED_TARGETS,
    HELD_TARGETS,
    PENALTY_SNAPSHOT_AGE_SECONDS,
    PENALISED_SLOTS,
    PROBES_TOTAL,
    CONNECTIONS,
    CONNECTS_TOTAL,
    CONNECTION_REUSES_TOTAL,
    DNS_DURATION_SECONDS,
    POISON_JOBS_TOTAL,
];
