//! What a person on call looks at first: what fails, and what goes next. Each statement reads a
//! bounded number of rows, so the answers are exact for small numbers and samples of large ones.

use std::time::Duration;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::queue::{
    Queue, SHARD,
    enqueue::millis,
    sample::{SAMPLED_MAX, sampled_ready, sampled_share},
};

/// Failed jobs that are looked at, the newest.
pub const FAILED_SAMPLED_MAX: i64 = 10_000;
/// Due jobs of one target that are counted one by one.
const DUE_COUNTED_MAX: i64 = 200;
/// Targets that are not as usual of which the state is looked at, those changed last.
const SPECIAL_MAX: i64 = 20_000;

/// Failed jobs of one target that ended for one reason.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct FailureGroup {
    /// The target's name.
    pub target: String,
    /// Number of the [`crate::job::ErrorKind`] that ended them.
    pub error_kind: Option<i16>,
    /// How many, among those that were looked at.
    pub jobs: i64,
    /// The newest of them.
    pub newest_job_id: Uuid,
    /// When the last of them ended.
    pub last_finished_at: DateTime<Utc>,
}

/// Jobs of one target and tier that are due.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct DueGroup {
    /// The target's name.
    pub target: String,
    /// Number of their [`crate::job::Tier`].
    pub tier: i16,
    /// Held back by people.
    pub paused: bool,
    /// Held back by workers, but for probes.
    pub held: bool,
    /// The level of penalty in force.
    pub penalty: i16,
    /// How many are due; an estimate where they are many.
    pub due: i64,
    /// The one that fell due first.
    pub first_job_id: Uuid,
    /// How long ago that was.
    pub oldest_due_age_ms: i64,
}

/// How many targets do not fare as usual.
#[derive(Clone, Copy, Debug, Eq, PartialEq, sqlx::FromRow)]
pub struct TargetCounts {
    /// With a penalty in force.
    pub penalised: i64,
    /// Held back by workers.
    pub held: i64,
    /// Held back by people.
    pub paused: i64,
}

// A target that no row is known of yet has the name that its job has.
const FAILURES: &str = "-- failures
WITH failed AS MATERIALIZED (
    SELECT target_id, error_kind, job_id, bucket, finished_at FROM hook.finished
    WHERE shard = $1 AND status = 3 AND status <> 2 ORDER BY job_id DESC LIMIT $2
), grouped AS (
    SELECT target_id, error_kind, count(*) AS jobs, max(finished_at) AS last_finished_at,
        max(job_id::text)::uuid AS newest_job_id
    FROM failed GROUP BY target_id, error_kind
    ORDER BY jobs DESC, target_id, error_kind LIMIT $3
)
SELECT COALESCE(t.name, j.target) AS target, g.error_kind, g.jobs, g.newest_job_id, g.last_finished_at
FROM grouped AS g LEFT JOIN hook.target AS t ON t.shard = $1 AND t.target_id = g.target_id
CROSS JOIN LATERAL (SELECT target FROM hook.job WHERE shard = $1 AND job_id = g.newest_job_id LIMIT 1) AS j
ORDER BY g.jobs DESC, target, g.error_kind";

// In the order in which workers serve targets: paused and held ones last, then by level, tier, age. Which
// targets come first is judged by a sample; how many of their jobs are due, and which is the first, is
// looked up. The condition of `special` is that of the index of targets that are not as usual.
const DUE_NEXT: &str = concat!(
    "-- due_next
WITH grouped AS MATERIALIZED (
    SELECT target_id, tier, (count(*) / ", sampled_share!("$2"), ")::bigint AS due, min(run_at) AS oldest
    FROM (SELECT target_id, tier, run_at FROM ", sampled_ready!("$2"), "
        WHERE shard = $1 AND run_at <= now() LIMIT 3 * $2) AS sampled
    GROUP BY target_id, tier
), special AS MATERIALIZED (
    SELECT target_id, paused, COALESCE(held_until > now(), false) OR hold_interval_ms IS NOT NULL AS held,
        COALESCE(penalty_pin, CASE WHEN changed_at > now() - $4::bigint * interval '1 millisecond'
            THEN penalty END, 0::smallint) AS penalty
    FROM hook.target
    WHERE shard = $1 AND (paused OR max_in_flight IS NOT NULL OR rate_per_second IS NOT NULL
        OR penalty_pin IS NOT NULL OR penalty > 0 OR held_until IS NOT NULL)
    ORDER BY changed_at DESC LIMIT $5
), judged AS (
    SELECT g.*, COALESCE(s.paused, false) AS paused, COALESCE(s.held, false) AS held,
        COALESCE(s.penalty, 0::smallint) AS penalty
    FROM grouped AS g LEFT JOIN special AS s ON s.target_id = g.target_id
    ORDER BY paused, held, penalty, g.tier, g.oldest, g.target_id LIMIT $3
)
SELECT COALESCE(t.name, j.target) AS target, n.tier, n.paused, n.held, n.penalty, first.job_id AS first_job_id,
    CASE WHEN counted.due < $6 THEN counted.due ELSE GREATEST(counted.due, n.due) END AS due,
    (extract(epoch FROM now() - first.run_at) * 1000)::bigint AS oldest_due_age_ms
FROM judged AS n
LEFT JOIN hook.target AS t ON t.shard = $1 AND t.target_id = n.target_id
CROSS JOIN LATERAL (
    SELECT job_id, run_at FROM hook.ready
    WHERE shard = $1 AND tier = n.tier AND target_id = n.target_id AND run_at <= now()
    ORDER BY run_at, job_id LIMIT 1) AS first
CROSS JOIN LATERAL (SELECT count(*) AS due FROM (
    SELECT FROM hook.ready WHERE shard = $1 AND tier = n.tier AND target_id = n.target_id AND run_at <= now()
    LIMIT $6) AS s) AS counted
CROSS JOIN LATERAL (SELECT target FROM hook.job WHERE shard = $1 AND job_id = first.job_id LIMIT 1) AS j
ORDER BY n.paused, n.held, n.penalty, n.tier, first.run_at, n.target_id"
);

// The condition is that of the index of targets that are not as usual.
const TARGET_COUNTS: &str = "-- target_counts
SELECT count(*) FILTER (WHERE COALESCE(penalty_pin, CASE WHEN changed_at > now() - $2::bigint * interval '1 millisecond'
        THEN penalty END, 0) > 0) AS penalised,
    count(*) FILTER (WHERE held_until > now() OR hold_interval_ms IS NOT NULL) AS held,
    count(*) FILTER (WHERE paused) AS paused
FROM (
    SELECT penalty_pin, changed_at, penalty, held_until, hold_interval_ms, paused FROM hook.target
    WHERE shard = $1 AND (paused OR max_in_flight IS NOT NULL OR rate_per_second IS NOT NULL
        OR penalty_pin IS NOT NULL OR penalty > 0 OR held_until IS NOT NULL)
    ORDER BY changed_at DESC LIMIT $3
) AS special";

impl Queue {
    /// Returns failed jobs by target and reason, the largest groups first.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the jobs.
    pub async fn failures(&self, limit: usize) -> sqlx::Result<Vec<FailureGroup>> {
        sqlx::query_as(FAILURES)
            .bind(SHARD)
            .bind(FAILED_SAMPLED_MAX)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&self.pool())
            .await
    }

    /// Returns what is due by target and tier, in the order in which workers serve it.
    ///
    /// A penalty that no worker has confirmed for `stale_after` counts as 0.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the jobs.
    pub async fn due_next(
        &self,
        stale_after: Duration,
        limit: usize,
    ) -> sqlx::Result<Vec<DueGroup>> {
        sqlx::query_as(DUE_NEXT)
            .bind(SHARD)
            .bind(SAMPLED_MAX)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .bind(millis(stale_after))
            .bind(SPECIAL_MAX)
            .bind(DUE_COUNTED_MAX)
            .fetch_all(&self.pool())
            .await
    }

    /// Counts the targets that do not fare as usual.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the targets.
    pub async fn target_counts(&self, stale_after: Duration) -> sqlx::Result<TargetCounts> {
        sqlx::query_as(TARGET_COUNTS)
            .bind(SHARD)
            .bind(millis(stale_after))
            .bind(SPECIAL_MAX)
            .fetch_one(&self.pool())
            .await
    }
}
