//! Sweep: finds out which targets have waiting jobs, a bounded number of targets at a time.
//!
//! Nothing is kept per target when jobs are stored: the index that serves the dequeue is walked
//! from one target to the next, one probe each, however many jobs they have. Callers go round and
//! round from the last head they saw.

use chrono::{DateTime, Utc};

use crate::{
    job::Tier,
    queue::{Queue, SHARD},
    target::TargetId,
};

/// A head that has jobs, and when its first one is due.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SweptHead {
    /// Whose jobs.
    pub target_id: TargetId,
    /// In which line.
    pub tier: Tier,
    /// When its first job is or was due.
    pub run_at: DateTime<Utc>,
    /// How long until the first is due, by Postgres's clock; zero if one is due.
    pub due_in: std::time::Duration,
}

const SWEEP: &str = "-- sweep
WITH RECURSIVE head (tier, target_id, run_at) AS (
    (SELECT tier, target_id, run_at FROM hook.ready
     WHERE shard = $1 AND (tier, target_id) > ($2, $3) AND tier <= $4
     ORDER BY tier, target_id, run_at LIMIT 1)
    UNION ALL
    SELECT next.tier, next.target_id, next.run_at FROM head CROSS JOIN LATERAL (
        SELECT tier, target_id, run_at FROM hook.ready
        WHERE shard = $1 AND (ready.tier, ready.target_id) > (head.tier, head.target_id) AND ready.tier <= $4
        ORDER BY tier, target_id, run_at LIMIT 1) AS next
)
SELECT tier, target_id, run_at, now() AS now FROM head LIMIT $5";

impl Queue {
    /// Returns up to `limit` heads with jobs that follow `after`, ordered by tier and target id.
    ///
    /// `after` is the last head of the call before, or `None` to begin with `tiers`' first. Fewer
    /// than `limit` heads mean that the round is complete.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the heads.
    pub async fn sweep(
        &self,
        after: Option<(Tier, TargetId)>,
        tiers: std::ops::RangeInclusive<Tier>,
        limit: usize,
    ) -> sqlx::Result<Vec<SweptHead>> {
        // No target id is smaller than this one, and none has it by chance.
        let (tier, target_id) = after.unwrap_or((*tiers.start(), TargetId(i64::MIN)));
        let rows: Vec<(i16, i64, DateTime<Utc>, DateTime<Utc>)> = sqlx::query_as(SWEEP)
            .bind(SHARD)
            .bind(tier.code())
            .bind(target_id.0)
            .bind(tiers.end().code())
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&self.pool())
            .await?;
        Ok(rows
            .into_iter()
            .map(|(tier, target_id, run_at, now)| SweptHead {
                target_id: TargetId(target_id),
                tier: Tier::from_code(tier).expect("a CHECK constraint allows no other tier"),
                run_at,
                due_in: (run_at - now).to_std().unwrap_or_default(),
            })
            .collect())
    }
}
