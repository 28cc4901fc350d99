//! Targets as people see and set them, and the short list that the API needs.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::{
    queue::{
        Queue, SHARD,
        enqueue::millis,
        tally::{attempts_of, latest},
    },
    target::{Target, TargetId},
};

/// Jobs of one target that are counted one by one, for each number that is shown.
const COUNTED_MAX: i64 = 100_000;
/// The same in a list of targets.
const COUNTED_IN_LIST_MAX: i64 = 10_000;
/// Waiting jobs that are looked at to find the targets with the most of them.
const SAMPLED_MAX: i64 = 200_000;
/// Tallies that are not counted yet, of which one holds what a statement has ended.
const TALLIES_MAX: i64 = 20_000;

/// A target as people see it.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct TargetView {
    /// Its name.
    pub name: String,
    /// Held back by people.
    pub paused: bool,
    /// Attempts of all workers at one time; `None` means that only the workers' settings hold.
    pub max_in_flight: Option<i32>,
    /// Attempts a second of all workers; `None` means no limit.
    pub rate_per_second: Option<f64>,
    /// The level that people fixed.
    pub penalty_pin: Option<i16>,
    /// The level in force.
    pub penalty: i16,
    /// Held back by workers, but for probes.
    pub held: bool,
    /// Retryable failures since the last delivery.
    pub failures_in_row: i32,
    /// When a held target is asked again.
    pub next_probe_at: Option<DateTime<Utc>>,
    /// Waiting jobs, up to a bound.
    pub waiting: i64,
    /// Jobs that are being attempted.
    pub running: i64,
    /// Jobs that ended failed and are still kept, up to a bound.
    pub failed: i64,
    /// Number of the [`crate::job::ErrorKind`] of the last attempt that failed.
    pub last_error_kind: Option<i16>,
    /// When that was.
    pub last_error_at: Option<DateTime<Utc>>,
    /// When an attempt last delivered.
    pub last_success_at: Option<DateTime<Utc>>,
    /// Half of the recent attempts took at most this long.
    pub latency_p50_ms: Option<i32>,
    /// Most of the recent attempts took at most this long.
    pub latency_p95_ms: Option<i32>,
}

/// Which targets come first in a list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TargetOrder {
    /// Those with the most waiting jobs.
    Waiting,
    /// Those that fail most.
    Failing,
    /// Those that take longest.
    Slow,
}

/// What people change about a target; `None` leaves a setting as it is, `Some(None)` clears it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TargetChange {
    /// Hold back or release.
    pub paused: Option<bool>,
    /// Attempts of all workers at one time.
    pub max_in_flight: Option<Option<i32>>,
    /// Attempts a second of all workers.
    pub rate_per_second: Option<Option<f64>>,
    /// A fixed level of penalty.
    pub penalty_pin: Option<Option<i16>>,
}

const PENALISED_TARGETS: &str = "-- penalised_targets
SELECT target_id FROM hook.target
WHERE shard = $1 AND (penalty > 0 OR penalty_pin IS NOT NULL OR held_until IS NOT NULL)
    AND (held_until > now() OR hold_interval_ms IS NOT NULL
        OR COALESCE(penalty_pin,
            CASE WHEN changed_at > now() - $2::bigint * interval '1 millisecond' THEN penalty ELSE 0::smallint END) > 0)
ORDER BY COALESCE(penalty_pin, penalty) DESC, target_id LIMIT $3";

// $2 are the targets in order, $3 the bound of each count, $4 the age at which a penalty is stale, $5 the
// tallies looked at: what was counted is older than the janitor's interval, what was not is read here.
const TARGETS: &str = concat!("-- targets
WITH attempts AS (
    ", attempts_of!("(SELECT * FROM hook.tally WHERE shard = $1 LIMIT $5)"), "
    WHERE t.target_id && $2
), fresh AS MATERIALIZED (
    SELECT target_id,
        ", latest!(), "
    FROM attempts WHERE target_id = ANY ($2) GROUP BY 1
)
SELECT t.name, t.paused, t.max_in_flight, t.rate_per_second, t.penalty_pin,
    COALESCE(t.penalty_pin, CASE WHEN t.changed_at > now() - $4::bigint * interval '1 millisecond'
        THEN t.penalty ELSE 0::smallint END) AS penalty,
    (COALESCE(t.held_until > now(), false) OR t.hold_interval_ms IS NOT NULL) AS held,
    t.failures_in_row, t.held_until AS next_probe_at, r.waiting, l.running, f.failed,
    CASE WHEN n.last_error_at >= COALESCE(o.last_error_at, '-infinity') THEN n.last_error_kind
        ELSE o.last_error_kind END AS last_error_kind,
    GREATEST(n.last_error_at, o.last_error_at) AS last_error_at,
    GREATEST(n.last_success_at, o.last_success_at) AS last_success_at,
    COALESCE(n.latency_ms[1], o.latency_p50_ms) AS latency_p50_ms,
    COALESCE(n.latency_ms[2], o.latency_p95_ms) AS latency_p95_ms
FROM unnest($2::bigint[]) WITH ORDINALITY AS wanted (target_id, ord)
JOIN hook.target AS t ON t.shard = $1 AND t.target_id = wanted.target_id
LEFT JOIN fresh AS n ON n.target_id = t.target_id
LEFT JOIN hook.target_total AS o ON o.shard = $1 AND o.target_id = t.target_id
CROSS JOIN LATERAL (SELECT count(*) AS waiting FROM (
    SELECT FROM hook.ready WHERE shard = $1 AND tier = ANY ('{0,1,2}'::smallint[]) AND target_id = t.target_id
    LIMIT $3) AS s) AS r
CROSS JOIN LATERAL (SELECT count(*) AS failed FROM (
    SELECT FROM hook.finished WHERE shard = $1 AND status = 3 AND status <> 2 AND target_id = t.target_id
    ORDER BY job_id LIMIT $3) AS s) AS f
LEFT JOIN (SELECT target_id, count(*) AS leases FROM hook.lease WHERE shard = $1 GROUP BY target_id) AS g
    ON g.target_id = t.target_id
CROSS JOIN LATERAL (SELECT COALESCE(g.leases, 0) AS running) AS l
ORDER BY wanted.ord");

const MOST_WAITING: &str = "-- targets_most_waiting
SELECT target_id FROM (SELECT target_id FROM hook.ready WHERE shard = $1 LIMIT $3) AS sampled
GROUP BY target_id ORDER BY count(*) DESC, target_id LIMIT $2";

const MOST_FAILING: &str = "-- targets_most_failing
SELECT t.target_id FROM (
    (SELECT target_id FROM hook.target
     WHERE shard = $1 AND (failures_in_row > 0 OR penalty > 0 OR held_until IS NOT NULL)
     ORDER BY failures_in_row DESC, penalty DESC, target_id LIMIT $2)
    UNION
    (SELECT target_id FROM hook.target_total WHERE shard = $1 AND last_error_at IS NOT NULL
     ORDER BY last_error_at DESC LIMIT $2)
) AS failing
JOIN hook.target AS t ON t.shard = $1 AND t.target_id = failing.target_id
LEFT JOIN hook.target_total AS o ON o.shard = $1 AND o.target_id = t.target_id
ORDER BY t.failures_in_row DESC, t.penalty DESC, o.last_error_at DESC NULLS LAST, t.target_id LIMIT $2";

const SLOWEST: &str = "-- targets_slowest
SELECT target_id FROM hook.target_total WHERE shard = $1 AND latency_p95_ms IS NOT NULL
ORDER BY latency_p95_ms DESC LIMIT $2";

const CHANGE_TARGET: &str = "-- change_target
INSERT INTO hook.target AS t (shard, target_id, name, paused, max_in_flight, rate_per_second, penalty_pin)
VALUES ($1, $2, $3, COALESCE($4, false), $5, $6, $7)
ON CONFLICT (shard, target_id) DO UPDATE SET
    paused = COALESCE($4, t.paused),
    max_in_flight = CASE WHEN $8 THEN $5 ELSE t.max_in_flight END,
    rate_per_second = CASE WHEN $9 THEN $6 ELSE t.rate_per_second END,
    penalty_pin = CASE WHEN $10 THEN $7 ELSE t.penalty_pin END,
    changed_at = now()";

impl Queue {
    /// Returns a target; `None` if nothing was ever stored or set for it.
    ///
    /// A penalty that no worker has confirmed for `stale_after` counts as 0.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the target.
    pub async fn target(
        &self,
        target: &Target,
        stale_after: Duration,
    ) -> sqlx::Result<Option<TargetView>> {
        let ids = [target.id().0];
        let found = self.targets_by_id(&ids, COUNTED_MAX, stale_after).await?;
        Ok(found.into_iter().next())
    }

    /// Returns up to `limit` targets, those first that come first in `order`.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the targets.
    pub async fn targets(
        &self,
        order: TargetOrder,
        limit: usize,
        stale_after: Duration,
    ) -> sqlx::Result<Vec<TargetView>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let statement = match order {
            TargetOrder::Waiting => sqlx::query_scalar(MOST_WAITING)
                .bind(SHARD)
                .bind(limit)
                .bind(SAMPLED_MAX),
            TargetOrder::Failing => sqlx::query_scalar(MOST_FAILING).bind(SHARD).bind(limit),
            TargetOrder::Slow => sqlx::query_scalar(SLOWEST).bind(SHARD).bind(limit),
        };
        let ids: Vec<i64> = statement.fetch_all(&self.pool()).await?;
        self.targets_by_id(&ids, COUNTED_IN_LIST_MAX, stale_after)
            .await
    }

    /// Changes settings of a target, which need not have had a job yet.
    ///
    /// # Errors
    /// Whether they were changed is not known; changing them again is harmless.
    pub async fn change_target(&self, target: &Target, change: &TargetChange) -> sqlx::Result<()> {
        sqlx::query(CHANGE_TARGET)
            .bind(SHARD)
            .bind(target.id().0)
            .bind(target.as_str())
            .bind(change.paused)
            .bind(change.max_in_flight.flatten())
            .bind(change.rate_per_second.flatten())
            .bind(change.penalty_pin.flatten())
            .bind(change.max_in_flight.is_some())
            .bind(change.rate_per_second.is_some())
            .bind(change.penalty_pin.is_some())
            .execute(&self.pool())
            .await?;
        Ok(())
    }

    async fn targets_by_id(
        &self,
        ids: &[i64],
        counted_max: i64,
        stale_after: Duration,
    ) -> sqlx::Result<Vec<TargetView>> {
        sqlx::query_as(TARGETS)
            .bind(SHARD)
            .bind(ids)
            .bind(counted_max)
            .bind(millis(stale_after))
            .bind(TALLIES_MAX)
            .fetch_all(&self.pool())
            .await
    }

    /// Returns up to `limit` targets whose new jobs belong into the degraded queue, worst first.
    ///
    /// A penalty that no worker has confirmed for `stale_after` does not count.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the targets.
    pub async fn penalised_targets(
        &self,
        stale_after: Duration,
        limit: usize,
    ) -> sqlx::Result<Vec<TargetId>> {
        let ids: Vec<i64> = sqlx::query_scalar(PENALISED_TARGETS)
            .bind(SHARD)
            .bind(millis(stale_after))
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&self.pool())
            .await?;
        Ok(ids.into_iter().map(TargetId).collect())
    }
}
