//! What `hook-janitor` exports. Queues and targets are measured by the leading janitor alone.

use super::{Metric, Unit};

/// Whether this one leads.
pub const LEADER: Metric = Metric::gauge_of(
    "hook_janitor_leader",
    &[],
    "1 while this janitor measures queues and targets; one per database does.",
);
/// Leases taken back.
pub const LEASES_REAPED_TOTAL: Metric = Metric::counter_of(
    "hook_janitor_leases_reaped_total",
    &[],
    "Leases taken back because their worker did not report in time.",
);
/// Jobs purged.
pub const JOBS_PURGED_TOTAL: Metric = Metric::counter_of(
    "hook_janitor_jobs_purged_total",
    &[],
    "Finished jobs removed after their retention, dropped partitions counted too.",
);
/// Jobs expired.
pub const JOBS_EXPIRED_TOTAL: Metric = Metric::counter_of(
    "hook_janitor_jobs_expired_total",
    &[],
    "Waiting jobs ended because their time to live was over.",
);
/// Jobs moved aside.
pub const JOBS_KEPT_TOTAL: Metric = Metric::counter_of(
    "hook_janitor_jobs_kept_total",
    &[],
    "Jobs moved out of a bucket because they had to outlive it.",
);
/// Buckets emptied.
pub const BUCKETS_EMPTIED_TOTAL: Metric = Metric::counter_of(
    "hook_janitor_buckets_emptied_total",
    &[],
    "Buckets of old jobs emptied at one stroke.",
);
/// Buckets in use.
pub const BUCKETS_IN_USE: Metric = Metric::gauge_of(
    "hook_janitor_buckets_in_use",
    &[],
    "Buckets that hold jobs, of the eight there are; eight for long means that the oldest cannot be emptied.",
);
/// Keys purged.
pub const IDEMPOTENCY_KEYS_PURGED_TOTAL: Metric = Metric::counter_of(
    "hook_janitor_idempotency_keys_purged_total",
    &[],
    "Idempotency keys removed after their time to live.",
);
/// Last purge.
pub const LAST_PURGE_SUCCESS_TIMESTAMP_SECONDS: Metric = Metric::gauge_of(
    "hook_janitor_last_purge_success_timestamp_seconds",
    &[],
    "Unix time of the last purge that succeeded.",
)
.in_unit(Unit::Seconds);
/// Hours of targets purged.
pub const HISTORY_ROWS_PURGED_TOTAL: Metric = Metric::counter_of(
    "hook_janitor_history_rows_purged_total",
    &[],
    "Hourly numbers of targets removed after their retention.",
);
/// Oldest finished job.
pub const OLDEST_FINISHED_AGE_SECONDS: Metric = Metric::gauge_of(
    "hook_janitor_oldest_finished_age_seconds",
    &[],
    "Age of the oldest finished job that is still stored.",
)
.in_unit(Unit::Seconds);
/// Jobs by queue and status.
pub const QUEUE_JOBS: Metric = Metric::gauge_of(
    "hook_queue_jobs",
    &["queue", "status"],
    "Jobs stored, by queue and status.",
);
/// Oldest due job.
pub const QUEUE_OLDEST_DUE_AGE_SECONDS: Metric = Metric::gauge_of(
    "hook_queue_oldest_due_age_seconds",
    &["queue"],
    "How long the oldest job that is due has been waiting; 0 when none is due.",
)
.in_unit(Unit::Seconds);
/// Attempts by target.
pub const TARGET_ATTEMPTS_TOTAL: Metric = Metric::counter_of(
    "hook_target_attempts_total",
    &["target"],
    "Attempts at the worst targets since the database was made, the rest summed as `other`.",
);
/// Attempts by target and outcome.
pub const TARGET_OUTCOMES_TOTAL: Metric = Metric::counter_of(
    "hook_target_outcomes_total",
    &["target", "outcome"],
    "The same by outcome; `outcome` is `delivered`, `retryable` or `permanent`.",
);
/// Time of attempts by target.
pub const TARGET_ATTEMPT_DURATION_SECONDS_TOTAL: Metric = Metric::counter_of(
    "hook_target_attempt_duration_seconds_total",
    &["target"],
    "Time that these attempts took; its rate is the number of slots that the target holds, and divided by the rate of attempts their mean duration.",
)
.in_unit(Unit::Seconds);
/// Waiting jobs by target.
pub const TARGET_WAITING_JOBS: Metric = Metric::gauge_of(
    "hook_target_waiting_jobs",
    &["target"],
    "Jobs that wait for the worst targets, the rest summed as `other`.",
);
/// Penalty by target.
pub const TARGET_PENALTY: Metric = Metric::gauge_of(
    "hook_target_penalty",
    &["target"],
    "Penalty level of the worst targets; 0 is none, and `other` shows the highest of the rest.",
);
/// Targets with series of their own.
pub const TARGET_METRICS_LIMIT: Metric = Metric::gauge_of(
    "hook_target_metrics_max",
    &[],
    "Targets that get series of their own (`HOOK_METRICS_TARGETS_MAX`).",
);
/// Dead rows by table.
pub const DEAD_ROWS: Metric = Metric::gauge_of(
    "hook_janitor_dead_rows",
    &["table"],
    "Dead rows that vacuum has not removed, as Postgres estimates them, by table.",
);
/// Size of the database.
pub const DB_SIZE_BYTES: Metric = Metric::gauge_of(
    "hook_db_size_bytes",
    &[],
    "Size of the whole database, whatever else is in it.",
)
.in_unit(Unit::Bytes);
/// Size by table.
pub const DB_TABLE_BYTES: Metric = Metric::gauge_of(
    "hook_db_table_bytes",
    &["table"],
    "Size of each table of the queue, with its partitions and indexes.",
)
.in_unit(Unit::Bytes);
/// Oldest open transaction.
pub const OLDEST_TRANSACTION_AGE_SECONDS: Metric = Metric::gauge_of(
    "hook_janitor_oldest_transaction_age_seconds",
    &[],
    "Age of the oldest transaction in the database; a long one keeps dead rows alive.",
)
.in_unit(Unit::Seconds);

/// All of the above.
pub const ALL: &[Metric] = &[
    LEADER,
    LEASES_REAPED_TOTAL,
    JOBS_PURGED_TOTAL,
    JOBS_EXPIRED_TOTAL,
    JOBS_KEPT_TOTAL,
    BUCKETS_EMPTIED_TOTAL,
    BUCKETS_IN_USE,
    IDEMPOTENCY_KEYS_PURGED_TOTAL,
    LAST_PURGE_SUCCESS_TIMESTAMP_SECONDS,
    HISTORY_ROWS_PURGED_TOTAL,
    OLDEST_FINISHED_AGE_SECONDS,
    QUEUE_JOBS,
    QUEUE_OLDEST_DUE_AGE_SECONDS,
    TARGET_ATTEMPTS_TOTAL,
    TARGET_OUTCOMES_TOTAL,
    TARGET_ATTEMPT_DURATION_SECONDS_TOTAL,
    TARGET_WAITING_JOBS,
    TARGET_PENALTY,
    TARGET_METRICS_LIMIT,
    DEAD_ROWS,
    DB_SIZE_BYTES,
    DB_TABLE_BYTES,
    OLDEST_TRANSACTION_AGE_SECONDS,
];
