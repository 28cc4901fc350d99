//! Targets as the workers share them: what people set, what workers found, who fails most.

use std::time::Duration;

use crate::{
    queue::{Queue, SHARD, enqueue::millis},
    target::TargetId,
};

/// A target that differs from "no settings, nothing known".
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct SpecialTarget {
    /// The target.
    pub target_id: i64,
    /// Nothing is attempted.
    pub paused: bool,
    /// Slots of one worker that it may hold.
    pub max_in_flight: Option<i32>,
    /// Attempts a second.
    pub rate_per_second: Option<f64>,
    /// A level that people fixed.
    pub penalty_pin: Option<i16>,
    /// The level that workers found, 0 if none has said so lately.
    pub penalty: i16,
    /// How much longer it is held, in milliseconds; `None` if it is not.
    pub held_ms: Option<i64>,
}

/// What a worker found out about a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// The target.
    pub target_id: TargetId,
    /// The level: 0 is healthy.
    pub penalty: u8,
    /// How much longer it is held; `None` if it is not.
    pub held: Option<Duration>,
    /// Retryable failures since the last success.
    pub failures_in_row: u32,
}

/// A target and its waiting jobs that have failed before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FailingTarget {
    /// The target.
    pub target_id: TargetId,
    /// Waiting jobs with at least one attempt behind them.
    pub jobs: i64,
}

const SPECIAL_TARGETS: &str = "-- special_targets
SELECT target_id, paused, max_in_flight, rate_per_second, penalty_pin,
    CASE WHEN changed_at > now() - $2::bigint * interval '1 millisecond' THEN penalty ELSE 0::smallint END AS penalty,
    CASE WHEN held_until > now()
        THEN (extract(epoch FROM held_until - now()) * 1000)::bigint END AS held_ms
FROM hook.target
WHERE shard = $1 AND (paused OR max_in_flight IS NOT NULL OR rate_per_second IS NOT NULL
    OR penalty_pin IS NOT NULL OR penalty > 0 OR held_until IS NOT NULL)
ORDER BY changed_at DESC LIMIT $3";

const REPORT_TARGETS: &str = "-- report_targets
UPDATE hook.target AS t SET penalty = f.penalty, failures_in_row = f.failures_in_row, changed_at = now(),
    held_until = now() + f.held_ms * interval '1 millisecond'
FROM unnest($2::bigint[], $3::smallint[], $4::bigint[], $5::int[]) AS f (target_id, penalty, held_ms, failures_in_row)
WHERE t.shard = $1 AND t.target_id = f.target_id";

const FAILING_TARGETS: &str = "-- failing_targets
SELECT target_id, count(*) AS jobs FROM hook.ready
WHERE shard = $1 AND attempt > 0
GROUP BY target_id ORDER BY jobs DESC, target_id LIMIT $2";

impl Queue {
    /// Returns up to `limit` targets with settings or findings, those changed last first.
    ///
    /// A penalty that no worker has confirmed for `stale_after` counts as 0.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the targets.
    pub async fn special_targets(
        &self,
        stale_after: Duration,
        limit: usize,
    ) -> sqlx::Result<Vec<SpecialTarget>> {
        sqlx::query_as(SPECIAL_TARGETS)
            .bind(SHARD)
            .bind(millis(stale_after))
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&self.pool())
            .await
    }

    /// Shares what this worker found, for targets that have a row.
    ///
    /// # Errors
    /// Nothing is known to be shared; the next report says it again.
    pub async fn report_targets(&self, findings: &[Finding]) -> sqlx::Result<()> {
        let ids: Vec<i64> = findings.iter().map(|finding| finding.target_id.0).collect();
        let penalties: Vec<i16> = findings
            .iter()
            .map(|finding| i16::from(finding.penalty))
            .collect();
        let held: Vec<Option<i64>> = findings
            .iter()
            .map(|finding| finding.held.map(millis))
            .collect();
        let failures: Vec<i32> = findings
            .iter()
            .map(|finding| i32::try_from(finding.failures_in_row).unwrap_or(i32::MAX))
            .collect();
        sqlx::query(REPORT_TARGETS)
            .bind(SHARD)
            .bind(ids)
            .bind(penalties)
            .bind(held)
            .bind(failures)
            .execute(&self.pool())
            .await?;
        Ok(())
    }

    /// Returns the `limit` targets with the most waiting jobs that have failed before.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the targets.
    pub async fn failing_targets(&self, limit: usize) -> sqlx::Result<Vec<FailingTarget>> {
        let rows: Vec<(i64, i64)> = sqlx::query_as(FAILING_TARGETS)
            .bind(SHARD)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&self.pool())
            .await?;
        Ok(rows
            .into_iter()
            .map(|(target_id, jobs)| FailingTarget {
                target_id: TargetId(target_id),
                jobs,
            })
            .collect())
    }
}
