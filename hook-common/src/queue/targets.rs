//! Targets as the workers share them: what people set, what workers found, who may probe.
//!
//! A *circuit* is open while `hold_interval_ms` is set: then nobody attempts anything before
//! `held_until`, and afterwards only the worker that wins [`Queue::claim_probes`] does, once. That
//! claim moves `held_until`, so there is one probe for the target at a time, whatever the number
//! of workers, and after a restart of all of them. Without an interval, `held_until` is the pause
//! that the target asked for, and simply passes.

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
    /// Attempts at one time, of all workers together.
    pub max_in_flight: Option<i32>,
    /// Attempts a second, of all workers together.
    pub rate_per_second: Option<f64>,
    /// A level that people fixed.
    pub penalty_pin: Option<i16>,
    /// The level that workers found, 0 if none has said so lately.
    pub penalty: i16,
    /// How much longer it is held, in milliseconds; `None` if that time is over.
    pub held_ms: Option<i64>,
    /// The pause between its probes, in milliseconds, while its circuit is open.
    pub hold_interval_ms: Option<i64>,
}

/// What a worker found out about a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// The target.
    pub target_id: TargetId,
    /// The level: 0 is healthy.
    pub penalty: u8,
    /// Retryable failures since the last success.
    pub failures_in_row: u32,
    /// How much longer the target asked not to be called; `None` if it did not.
    pub asked: Option<Duration>,
    /// What happened to its circuit in this worker.
    pub circuit: Option<CircuitNews>,
}

/// A change of a circuit that the other workers must hear of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CircuitNews {
    /// It is down.
    Opened(NextProbe),
    /// The probe that this worker had claimed failed.
    ProbeFailed(NextProbe),
    /// An attempt succeeded.
    Released,
}

/// When a target that is down is probed next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NextProbe {
    /// The pause between the starts of two probes.
    pub interval: Duration,
    /// What is left of it; zero if the last probe took longer.
    pub left: Duration,
}

impl CircuitNews {
    const fn code(self) -> i16 {
        match self {
            Self::Opened(_) => 1,
            Self::ProbeFailed(_) => 2,
            Self::Released => 3,
        }
    }

    const fn next_probe(self) -> Option<NextProbe> {
        match self {
            Self::Opened(next) | Self::ProbeFailed(next) => Some(next),
            Self::Released => None,
        }
    }
}

// First those with settings by hand, then the others, each in the order of the index: nothing has to
// be sorted, which workers ask Postgres not to do (`crate::db`).
const SPECIAL_TARGETS: &str = "-- special_targets
SELECT target_id, paused, max_in_flight, rate_per_second, penalty_pin,
    CASE WHEN changed_at > now() - $2::bigint * interval '1 millisecond' THEN penalty ELSE 0::smallint END AS penalty,
    CASE WHEN held_until > now()
        THEN (extract(epoch FROM held_until - now()) * 1000)::bigint END AS held_ms,
    hold_interval_ms
FROM (VALUES (true), (false)) AS by_hand (wanted) CROSS JOIN LATERAL (
    SELECT * FROM hook.target
    WHERE shard = $1 AND (paused OR max_in_flight IS NOT NULL OR rate_per_second IS NOT NULL
            OR penalty_pin IS NOT NULL OR penalty > 0 OR held_until IS NOT NULL)
        AND (paused OR max_in_flight IS NOT NULL OR rate_per_second IS NOT NULL OR penalty_pin IS NOT NULL)
            = by_hand.wanted
    ORDER BY changed_at DESC LIMIT $3
) AS special
LIMIT $3";

// $6 is the number of the news: 1 opened, 2 probe failed, 3 released. A circuit that is open
// already is not opened again, and one that somebody released is not kept open by a failed probe.
// Elsewhere a pause may only get longer, and one that is over is cleared away.
const REPORT_TARGETS: &str = "-- report_targets
UPDATE hook.target AS t SET penalty = f.penalty, failures_in_row = f.failures_in_row, changed_at = now(),
    hold_interval_ms = CASE
        WHEN f.news = 3 THEN NULL
        WHEN f.news = 1 THEN COALESCE(t.hold_interval_ms, f.interval_ms)
        WHEN f.news = 2 AND t.hold_interval_ms IS NOT NULL THEN f.interval_ms
        ELSE t.hold_interval_ms END,
    held_until = CASE
        WHEN f.news = 3 THEN now() + f.asked_ms * interval '1 millisecond'
        WHEN (f.news = 1) = (t.hold_interval_ms IS NULL) AND f.news IN (1, 2)
            THEN now() + greatest(f.left_ms, f.asked_ms) * interval '1 millisecond'
        WHEN t.hold_interval_ms IS NOT NULL THEN t.held_until
        ELSE greatest(CASE WHEN t.held_until > now() THEN t.held_until END,
            now() + f.asked_ms * interval '1 millisecond') END
FROM unnest($2::bigint[], $3::smallint[], $4::int[], $5::bigint[], $6::smallint[], $7::bigint[], $8::bigint[])
    AS f (target_id, penalty, failures_in_row, asked_ms, news, interval_ms, left_ms)
WHERE t.shard = $1 AND t.target_id = f.target_id";

// A target without a row is known to nobody else: whoever asks may go ahead.
const CLAIM_PROBES: &str = "-- claim_probes
WITH wanted AS MATERIALIZED (
    SELECT target_id FROM unnest($2::bigint[]) AS w (target_id)
), won AS (
    UPDATE hook.target AS t SET held_until = now() + $3::bigint * interval '1 millisecond'
    FROM wanted
    WHERE t.shard = $1 AND t.target_id = wanted.target_id
        AND t.hold_interval_ms IS NOT NULL AND t.held_until <= now()
    RETURNING t.target_id
)
SELECT target_id FROM won
UNION ALL
SELECT target_id FROM wanted
WHERE NOT EXISTS (SELECT FROM hook.target AS t WHERE t.shard = $1 AND t.target_id = wanted.target_id)";

const FORGET_FINDINGS: &str = "-- forget_findings
WITH stale AS MATERIALIZED (
    SELECT target_id FROM hook.target
    WHERE shard = $1 AND (paused OR max_in_flight IS NOT NULL OR rate_per_second IS NOT NULL
            OR penalty_pin IS NOT NULL OR penalty > 0 OR held_until IS NOT NULL)
        AND changed_at < now() - $2::bigint * interval '1 millisecond'
        AND (penalty > 0 OR held_until < now()) AND hold_interval_ms IS NULL
    ORDER BY changed_at LIMIT $3
    FOR UPDATE SKIP LOCKED
)
UPDATE hook.target AS t SET penalty = 0,
    held_until = CASE WHEN t.held_until > now() THEN t.held_until END
FROM stale WHERE t.shard = $1 AND t.target_id = stale.target_id";

impl Queue {
    /// Returns up to `limit` targets with settings or findings: first those that people set
    /// something for, then those changed last.
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
        let failures: Vec<i32> = findings
            .iter()
            .map(|finding| i32::try_from(finding.failures_in_row).unwrap_or(i32::MAX))
            .collect();
        let asked: Vec<Option<i64>> = findings
            .iter()
            .map(|finding| finding.asked.map(millis))
            .collect();
        let news: Vec<i16> = findings
            .iter()
            .map(|finding| finding.circuit.map_or(0, CircuitNews::code))
            .collect();
        let next_probes: Vec<Option<NextProbe>> = findings
            .iter()
            .map(|finding| finding.circuit.and_then(CircuitNews::next_probe))
            .collect();
        let of_next = |part: fn(NextProbe) -> Duration| -> Vec<Option<i64>> {
            let parts = next_probes.iter().map(|next| next.map(part).map(millis));
            parts.collect()
        };
        sqlx::query(REPORT_TARGETS)
            .bind(SHARD)
            .bind(ids)
            .bind(penalties)
            .bind(failures)
            .bind(asked)
            .bind(news)
            .bind(of_next(|next| next.interval))
            .bind(of_next(|next| next.left))
            .execute(&self.pool())
            .await?;
        Ok(())
    }

    /// Claims the right to one probe of each of these targets whose time has come, and returns
    /// those that were won. Nobody else wins them within `term`, nor later unless the outcome is
    /// never reported.
    ///
    /// # Errors
    /// Nothing is known to be won; what was won all the same can be claimed again after `term`.
    pub async fn claim_probes(
        &self,
        targets: &[TargetId],
        term: Duration,
    ) -> sqlx::Result<Vec<TargetId>> {
        let ids: Vec<i64> = targets.iter().map(|target_id| target_id.0).collect();
        let won: Vec<i64> = sqlx::query_scalar(CLAIM_PROBES)
            .bind(SHARD)
            .bind(ids)
            .bind(millis(term))
            .fetch_all(&self.pool())
            .await?;
        Ok(won.into_iter().map(TargetId).collect())
    }

    /// Clears penalties that no worker has confirmed for `stale_after`, and pauses that are over,
    /// of up to `limit` targets; returns how many. An open circuit stays: only a success closes it.
    ///
    /// # Errors
    /// Whether any were cleared is not known; calling again is harmless.
    pub async fn forget_findings(&self, stale_after: Duration, limit: i64) -> sqlx::Result<u64> {
        let done = sqlx::query(FORGET_FINDINGS)
            .bind(SHARD)
            .bind(millis(stale_after))
            .bind(limit)
            .execute(&self.pool())
            .await?;
        Ok(done.rows_affected())
    }
}
