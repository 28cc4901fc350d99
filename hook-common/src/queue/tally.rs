//! Tally: counts what attempts came to, per target, exactly once and out of reach of the purge.
//!
//! Whoever ends attempts (queue/finish.rs, queue/reap.rs) inserts one tally for all of them in the
//! statement that ends them. Counting deletes tallies and adds them to hours and totals in one
//! statement: a process that dies has counted all of a batch or nothing of it. Two that count at
//! one time take different tallies.

use crate::{
    queue::{Queue, SHARD},
    target::TargetId,
};

/// What attempts came to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, sqlx::FromRow)]
pub struct AttemptCounts {
    /// Attempts that delivered.
    pub delivered: i64,
    /// Attempts after which the target may accept the job later.
    pub retryable: i64,
    /// Attempts that trying again cannot mend.
    pub permanent: i64,
    /// How long they took, together.
    pub duration_ms: i64,
}

/// Totals since the database was made, all of one moment.
#[derive(Clone, Debug, Default)]
pub struct AttemptTotals {
    /// Of every target, also of those whose own total is gone.
    pub all: AttemptCounts,
    /// Of the targets that were asked for and had attempts.
    pub targets: Vec<(TargetId, AttemptCounts)>,
}

#[derive(sqlx::FromRow)]
struct TotalRow {
    target_id: Option<i64>,
    #[sqlx(flatten)]
    counts: AttemptCounts,
}

/// The attempts of the tallies that `$from` gives, one row each.
macro_rules! attempts_of {
    ($from:literal) => {
        concat!(
            "SELECT t.ended_at, a.* FROM ",
            $from,
            " AS t CROSS JOIN LATERAL unnest(t.target_id, t.outcome, t.error_kind, t.duration_ms)
        AS a (target_id, outcome, error_kind, duration_ms)"
        )
    };
}

/// What the attempts of one target came to last, as columns of a statement that groups them.
macro_rules! latest {
    () => {
        "max(ended_at) FILTER (WHERE outcome = 0) AS last_success_at,
        max(ended_at) FILTER (WHERE outcome <> 0) AS last_error_at,
        (array_agg(error_kind ORDER BY ended_at DESC) FILTER (WHERE outcome <> 0))[1] AS last_error_kind,
        percentile_disc(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY duration_ms) AS latency_ms"
    };
}

pub(super) use {attempts_of, latest};

// Rows are inserted in one order everywhere, so that two who count at one time do not deadlock.
const COUNT_TALLIES: &str = concat!("-- count_tallies
WITH taken AS MATERIALIZED (
    SELECT ctid AS tid FROM hook.tally WHERE shard = $1 LIMIT $2 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM hook.tally WHERE ctid = ANY (ARRAY(SELECT tid FROM taken))
    RETURNING ended_at, target_id, outcome, error_kind, duration_ms
), attempts AS MATERIALIZED (
    ", attempts_of!("gone"), "
), by_hour AS MATERIALIZED (
    SELECT target_id, date_trunc('hour', ended_at, 'UTC') AS hour, count(*) FILTER (WHERE outcome = 0) AS delivered,
        count(*) FILTER (WHERE outcome = 1) AS retryable, count(*) FILTER (WHERE outcome = 2) AS permanent,
        sum(duration_ms)::bigint AS duration_ms
    FROM attempts GROUP BY 1, 2
), latest AS (
    SELECT target_id, max(ended_at) AS ended_at,
        ", latest!(), "
    FROM attempts GROUP BY 1
), hours AS (
    INSERT INTO hook.target_hour AS h (shard, target_id, hour, delivered, retryable, permanent, duration_ms)
    SELECT $1, target_id, hour, delivered, retryable, permanent, duration_ms FROM by_hour ORDER BY target_id, hour
    ON CONFLICT (shard, target_id, hour) DO UPDATE SET delivered = h.delivered + excluded.delivered,
        retryable = h.retryable + excluded.retryable, permanent = h.permanent + excluded.permanent,
        duration_ms = h.duration_ms + excluded.duration_ms
), totals AS (
    INSERT INTO hook.target_total AS t (shard, target_id, delivered, retryable, permanent, duration_ms, ended_at,
        last_success_at, last_error_at, last_error_kind, latency_p50_ms, latency_p95_ms)
    SELECT $1, target_id, h.delivered, h.retryable, h.permanent, h.duration_ms, l.ended_at, l.last_success_at,
        l.last_error_at, l.last_error_kind, l.latency_ms[1], l.latency_ms[2]
    FROM latest AS l JOIN (
        SELECT target_id, sum(delivered) AS delivered, sum(retryable) AS retryable, sum(permanent) AS permanent,
            sum(duration_ms) AS duration_ms
        FROM by_hour GROUP BY target_id
    ) AS h USING (target_id)
    ORDER BY target_id
    ON CONFLICT (shard, target_id) DO UPDATE SET delivered = t.delivered + excluded.delivered,
        retryable = t.retryable + excluded.retryable, permanent = t.permanent + excluded.permanent,
        duration_ms = t.duration_ms + excluded.duration_ms, ended_at = GREATEST(t.ended_at, excluded.ended_at),
        last_success_at = GREATEST(t.last_success_at, excluded.last_success_at),
        last_error_kind = CASE WHEN excluded.last_error_at >= COALESCE(t.last_error_at, '-infinity')
            THEN excluded.last_error_kind ELSE t.last_error_kind END,
        last_error_at = GREATEST(t.last_error_at, excluded.last_error_at),
        latency_p50_ms = excluded.latency_p50_ms, latency_p95_ms = excluded.latency_p95_ms
), everything AS (
    INSERT INTO hook.attempt_total AS a (shard, delivered, retryable, permanent, duration_ms)
    SELECT $1, sum(delivered), sum(retryable), sum(permanent), sum(duration_ms) FROM by_hour HAVING count(*) > 0
    ON CONFLICT (shard) DO UPDATE SET delivered = a.delivered + excluded.delivered,
        retryable = a.retryable + excluded.retryable, permanent = a.permanent + excluded.permanent,
        duration_ms = a.duration_ms + excluded.duration_ms
)
SELECT count(*) FROM gone");

const ATTEMPT_TOTALS: &str = "-- attempt_totals
SELECT NULL::bigint AS target_id, delivered, retryable, permanent, duration_ms FROM hook.attempt_total
WHERE shard = $1
UNION ALL
SELECT target_id, delivered, retryable, permanent, duration_ms FROM hook.target_total
WHERE shard = $1 AND target_id = ANY ($2)";

impl AttemptCounts {
    /// All attempts.
    #[must_use]
    pub fn attempts(&self) -> i64 {
        self.delivered + self.retryable + self.permanent
    }
}

impl std::ops::AddAssign for AttemptCounts {
    fn add_assign(&mut self, other: Self) {
        self.delivered += other.delivered;
        self.retryable += other.retryable;
        self.permanent += other.permanent;
        self.duration_ms += other.duration_ms;
    }
}

impl std::ops::SubAssign for AttemptCounts {
    fn sub_assign(&mut self, other: Self) {
        self.delivered -= other.delivered;
        self.retryable -= other.retryable;
        self.permanent -= other.permanent;
        self.duration_ms -= other.duration_ms;
    }
}

impl Queue {
    /// Counts up to `limit` tallies and returns how many there were.
    ///
    /// # Errors
    /// They were counted and are gone, or neither; calling again is harmless.
    pub async fn count_tallies(&self, limit: i64) -> sqlx::Result<i64> {
        sqlx::query_scalar(COUNT_TALLIES)
            .bind(SHARD)
            .bind(limit)
            .fetch_one(&self.pool())
            .await
    }

    /// Returns what has been counted in all and for these targets.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the totals.
    pub async fn attempt_totals(&self, targets: &[TargetId]) -> sqlx::Result<AttemptTotals> {
        let ids: Vec<i64> = targets.iter().map(|target| target.0).collect();
        let rows: Vec<TotalRow> = sqlx::query_as(ATTEMPT_TOTALS)
            .bind(SHARD)
            .bind(ids)
            .fetch_all(&self.pool())
            .await?;
        let mut totals = AttemptTotals::default();
        for row in rows {
            match row.target_id {
                Some(id) => totals.targets.push((TargetId(id), row.counts)),
                None => totals.all = row.counts,
            }
        }
        Ok(totals)
    }
}
