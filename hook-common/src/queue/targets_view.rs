//! A target as people see it: what was set, what was found, what waits, what its attempts came to.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::queue::{
    Queue, SHARD,
    enqueue::millis,
    failing::RETRIES_PENALISED_MIN,
    tally::{attempts_of, latest},
};

/// Tallies that are not counted yet, of which one holds what a statement has ended.
const TALLIES_MAX: i64 = 500;

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
    /// Until when it asked not to be called, while that holds it.
    pub asked_until: Option<DateTime<Utc>>,
    /// Waiting jobs, up to a bound.
    pub waiting: i64,
    /// Waiting jobs with an attempt behind them, up to a bound.
    pub retries: i64,
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
    /// When those of the last hours begin that had attempts, the first one first.
    pub hours: Vec<DateTime<Utc>>,
    /// Attempts of each of these hours that delivered.
    pub hours_delivered: Vec<i64>,
    /// Attempts of each of these hours that did not.
    pub hours_failed: Vec<i64>,
}

/// Why a target has the level that it has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PenaltyReason {
    /// People fixed it.
    Pinned,
    /// Attempts fail, with none in between that delivers.
    FailuresInRow,
    /// Many of its waiting jobs have failed before.
    WaitingRetries,
    /// Its attempts take slots that others could use, by failing late or by answering late.
    WastedSlots,
}

impl PenaltyReason {
    /// Every reason.
    pub const ALL: &'static [Self] = &[
        Self::Pinned,
        Self::FailuresInRow,
        Self::WaitingRetries,
        Self::WastedSlots,
    ];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pinned => "pinned",
            Self::FailuresInRow => "failures_in_row",
            Self::WaitingRetries => "waiting_retries",
            Self::WastedSlots => "wasted_slots",
        }
    }
}

impl TargetView {
    /// Whether no job of it is known: it has none, and nothing tells of an attempt.
    #[must_use]
    pub const fn is_unused(&self) -> bool {
        self.waiting == 0
            && self.running == 0
            && self.failed == 0
            && self.last_error_at.is_none()
            && self.last_success_at.is_none()
    }

    /// Why it has its level; nothing while that is 0.
    ///
    /// Retries that wait make level 1 and no more, and a hold after failures the highest one; any
    /// other level comes from wasted slots.
    #[must_use]
    pub fn penalty_reasons(&self) -> Vec<PenaltyReason> {
        if self.penalty == 0 {
            return Vec::new();
        }
        if self.penalty_pin.is_some() {
            return vec![PenaltyReason::Pinned];
        }
        let mut reasons = Vec::new();
        if self.failures_in_row > 0 {
            reasons.push(PenaltyReason::FailuresInRow);
        }
        if self.retries >= RETRIES_PENALISED_MIN {
            reasons.push(PenaltyReason::WaitingRetries);
        }
        let down = self.held && self.asked_until.is_none();
        let by_retries = self.penalty == 1 && self.retries >= RETRIES_PENALISED_MIN;
        if reasons.is_empty() || !(down || by_retries) {
            reasons.push(PenaltyReason::WastedSlots);
        }
        reasons
    }
}

/// Which targets are looked at, and how closely.
pub(super) struct Look<'a> {
    pub(super) ids: &'a [i64],
    /// Waiting jobs that each may be expected to have, if they are more than are counted.
    pub(super) estimates: &'a [i64],
    pub(super) counted_max: i64,
}

/// The failed jobs of the target `t`, from each of these partitions no more than are counted.
///
/// A target is written as a range of one, and its jobs are ordered by it: only the index that begins with
/// the target has that order, so no other is taken once the table has been analysed. Each partition is
/// asked alone, because all of them together are read to their end where few rows are expected.
macro_rules! failed_jobs {
    ($first:literal $(, $partition:literal)*) => {
        concat!(
            failed_jobs!(@ $first)
            $(, "
        UNION ALL ", failed_jobs!(@ $partition))*
        )
    };
    (@ $partition:literal) => {
        concat!(
            "(SELECT FROM hook.finished_", $partition, " WHERE shard = $1 AND status = 3 AND status <> 2
            AND target_id >= t.target_id AND target_id <= t.target_id ORDER BY target_id, job_id LIMIT $3)"
        )
    };
}

// $2 are the targets in order, $3 the bound of each count, $4 the age at which a penalty is stale, $5 the
// tallies looked at: what was counted is older than the janitor's interval, what was not is read here.
// $6 is how many jobs a sample lets expect, for targets with more than are counted; $7 are hours.
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
    t.failures_in_row, t.held_until AS next_probe_at,
    CASE WHEN t.hold_interval_ms IS NULL AND t.held_until > now() THEN t.held_until END AS asked_until,
    CASE WHEN r.waiting < $3 THEN r.waiting ELSE GREATEST(r.waiting, wanted.estimate) END AS waiting,
    l.running, f.failed, e.retries,
    CASE WHEN n.last_error_at >= COALESCE(o.last_error_at, '-infinity') THEN n.last_error_kind
        ELSE o.last_error_kind END AS last_error_kind,
    GREATEST(n.last_error_at, o.last_error_at) AS last_error_at,
    GREATEST(n.last_success_at, o.last_success_at) AS last_success_at,
    COALESCE(n.latency_ms[1], o.latency_p50_ms) AS latency_p50_ms,
    COALESCE(n.latency_ms[2], o.latency_p95_ms) AS latency_p95_ms,
    COALESCE(h.hours, '{}') AS hours, COALESCE(h.delivered, '{}') AS hours_delivered,
    COALESCE(h.failed, '{}') AS hours_failed
FROM unnest($2::bigint[], $6::bigint[]) WITH ORDINALITY AS wanted (target_id, estimate, ord)
JOIN hook.target AS t ON t.shard = $1 AND t.target_id = wanted.target_id
LEFT JOIN fresh AS n ON n.target_id = t.target_id
LEFT JOIN hook.target_total AS o ON o.shard = $1 AND o.target_id = t.target_id
CROSS JOIN LATERAL (SELECT count(*) AS waiting FROM (
    SELECT FROM hook.ready WHERE shard = $1 AND tier = ANY ('{0,1,2}'::smallint[]) AND target_id = t.target_id
    LIMIT $3) AS s) AS r
CROSS JOIN LATERAL (SELECT count(*) AS failed FROM (
    SELECT FROM (", failed_jobs!("kept", "0", "1", "2", "3", "4", "5", "6", "7"), ") AS every
    LIMIT $3) AS s) AS f
CROSS JOIN LATERAL (SELECT count(*) AS retries FROM (
    SELECT FROM hook.ready WHERE shard = $1 AND attempt > 0 AND target_id = t.target_id LIMIT $3) AS s) AS e
CROSS JOIN LATERAL (
    SELECT array_agg(hour::timestamptz ORDER BY hour) AS hours, array_agg(delivered ORDER BY hour) AS delivered,
        array_agg(retryable + permanent ORDER BY hour) AS failed
    FROM hook.target_hour WHERE shard = $1 AND target_id = t.target_id AND hour > now() - $7::int * interval '1 hour'
) AS h
LEFT JOIN (SELECT target_id, count(*) AS leases FROM hook.lease WHERE shard = $1 GROUP BY target_id) AS g
    ON g.target_id = t.target_id
CROSS JOIN LATERAL (SELECT COALESCE(g.leases, 0) AS running) AS l
ORDER BY wanted.ord");

impl Queue {
    /// Returns these targets as far as they are known, in their order.
    pub(super) async fn targets_by_id(
        &self,
        look: Look<'_>,
        hours: i32,
        stale_after: Duration,
    ) -> sqlx::Result<Vec<TargetView>> {
        sqlx::query_as(TARGETS)
            .bind(SHARD)
            .bind(look.ids)
            .bind(look.counted_max)
            .bind(millis(stale_after))
            .bind(TALLIES_MAX)
            .bind(look.estimates)
            .bind(hours)
            .fetch_all(&self.pool())
            .await
    }
}
