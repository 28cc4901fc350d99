//! Targets as people see and set them, and the short list that the API needs.

use std::{collections::HashMap, time::Duration};

use crate::{
    queue::{
        Queue, SHARD,
        enqueue::millis,
        sample::{SAMPLED_MAX, sampled_ready, sampled_share},
        targets_view::{Look, TargetView},
    },
    target::{Target, TargetId},
};

/// Jobs of one target that are counted one by one, for each number that is shown.
const COUNTED_MAX: i64 = 100_000;
/// The same for one of a list, and for all of the list together.
const COUNTED_OF_LIST_MAX: i64 = 1_000;
const COUNTED_IN_LIST_MAX: i64 = 50_000;
/// Targets of which the sample tells how many jobs wait.
const ESTIMATED_MAX: i64 = 500;

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

// What a sample holds tells how many there are of a target whose jobs are too many to be counted.
const MOST_WAITING: &str = concat!(
    "-- targets_most_waiting
SELECT target_id, (count(*) / ",
    sampled_share!("$3"),
    ")::bigint AS waiting
FROM (SELECT target_id FROM ",
    sampled_ready!("$3"),
    " WHERE shard = $1 LIMIT 3 * $3) AS sampled
GROUP BY target_id ORDER BY count(*) DESC, target_id LIMIT $2"
);

// Each part has an index that gives its order. The second one has the condition of the index of
// targets that are not as usual.
const MOST_FAILING: &str = "-- targets_most_failing
SELECT t.target_id FROM (
    (SELECT target_id FROM hook.target WHERE shard = $1 AND failures_in_row > 0
     ORDER BY failures_in_row DESC, penalty DESC, target_id DESC LIMIT $2)
    UNION
    (SELECT target_id FROM hook.target
     WHERE shard = $1 AND (paused OR max_in_flight IS NOT NULL OR rate_per_second IS NOT NULL
            OR penalty_pin IS NOT NULL OR penalty > 0 OR held_until IS NOT NULL)
        AND (penalty > 0 OR held_until IS NOT NULL)
     ORDER BY changed_at DESC LIMIT $2)
    UNION
    (SELECT target_id FROM hook.target_total WHERE shard = $1 AND last_error_at IS NOT NULL
     ORDER BY last_error_at DESC LIMIT $2)
) AS failing
CROSS JOIN LATERAL (
    SELECT target_id, failures_in_row, penalty FROM hook.target
    WHERE shard = $1 AND target_id = failing.target_id LIMIT 1) AS t
LEFT JOIN LATERAL (
    SELECT last_error_at FROM hook.target_total
    WHERE shard = $1 AND target_id = failing.target_id LIMIT 1) AS o ON true
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

// A claimed probe holds a lease: while there is one, no second probe is let out beside it. A pause
// that the target asked for simply ends.
const PROBE_NOW: &str = "-- probe_now
UPDATE hook.target
SET held_until = CASE WHEN hold_interval_ms IS NOT NULL THEN LEAST(held_until, now()) END, changed_at = now()
WHERE shard = $1 AND target_id = $2 AND CASE WHEN hold_interval_ms IS NULL THEN held_until > now()
    ELSE NOT EXISTS (SELECT FROM hook.lease WHERE shard = $1 AND target_id = $2) END";

// A target of jobs that SQL stored has no row for a while.
const KNOWS_TARGET: &str = "-- knows_target
SELECT EXISTS (SELECT FROM hook.target WHERE shard = $1 AND target_id = $2)
    OR EXISTS (SELECT FROM hook.ready
        WHERE shard = $1 AND tier = ANY ('{0,1,2}'::smallint[]) AND target_id = $2)";

impl Queue {
    /// Lets the next probe of a target that is down go out now, or ends the pause that it asked for;
    /// false if it is not held, or is being probed.
    ///
    /// # Errors
    /// Whether the probe was let out is not known; calling again is harmless.
    pub async fn probe_now(&self, target: &Target) -> sqlx::Result<bool> {
        let done = sqlx::query(PROBE_NOW)
            .bind(SHARD)
            .bind(target.id().0)
            .execute(&self.pool())
            .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Whether something was ever stored or set for a target of this very name.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the target.
    pub async fn knows_target(&self, target: &Target) -> sqlx::Result<bool> {
        sqlx::query_scalar(KNOWS_TARGET)
            .bind(SHARD)
            .bind(target.id().0)
            .fetch_one(&self.pool())
            .await
    }

    /// Returns a target with what its attempts came to in the last `hours`; `None` if nothing was ever
    /// stored or set for it.
    ///
    /// A penalty that no worker has confirmed for `stale_after` counts as 0.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the target.
    pub async fn target(
        &self,
        target: &Target,
        hours: i32,
        stale_after: Duration,
    ) -> sqlx::Result<Option<TargetView>> {
        let look = Look {
            ids: &[target.id().0],
            estimates: &[0],
            counted_max: COUNTED_MAX,
        };
        let found = self.targets_by_id(look, hours, stale_after).await?;
        Ok(found.into_iter().next())
    }

    /// Returns up to `limit` targets, those first that come first in `order`, each with what its
    /// attempts came to in the last `hours`.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the targets.
    pub async fn targets(
        &self,
        order: TargetOrder,
        limit: usize,
        hours: i32,
        stale_after: Duration,
    ) -> sqlx::Result<Vec<TargetView>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let most_waiting: Vec<(i64, i64)> = sqlx::query_as(MOST_WAITING)
            .bind(SHARD)
            .bind(limit.max(ESTIMATED_MAX))
            .bind(SAMPLED_MAX)
            .fetch_all(&self.pool())
            .await?;
        let ids: Vec<i64> = match order {
            TargetOrder::Waiting => {
                let ids = most_waiting.iter().map(|(target_id, _)| *target_id);
                ids.take(usize::try_from(limit).unwrap_or(usize::MAX))
                    .collect()
            }
            TargetOrder::Failing => self.first_targets(MOST_FAILING, limit).await?,
            TargetOrder::Slow => self.first_targets(SLOWEST, limit).await?,
        };
        let estimates: HashMap<i64, i64> = most_waiting.into_iter().collect();
        let estimates = ids.iter().map(|id| estimates.get(id).copied().unwrap_or(0));
        let each = COUNTED_IN_LIST_MAX / i64::try_from(ids.len().max(1)).unwrap_or(i64::MAX);
        let look = Look {
            ids: &ids,
            estimates: &estimates.collect::<Vec<i64>>(),
            counted_max: each.min(COUNTED_OF_LIST_MAX),
        };
        self.targets_by_id(look, hours, stale_after).await
    }

    async fn first_targets(&self, statement: &'static str, limit: i64) -> sqlx::Result<Vec<i64>> {
        sqlx::query_scalar(statement)
            .bind(SHARD)
            .bind(limit)
            .fetch_all(&self.pool())
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
