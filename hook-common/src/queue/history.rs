//! History: what attempts at a target came to, hour by hour, long after the jobs are gone.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::{
    queue::{AttemptCounts, Queue, SHARD, enqueue::millis},
    target::Target,
};

/// One hour of one target.
#[derive(Clone, Debug, Eq, PartialEq, sqlx::FromRow)]
pub struct TargetHour {
    /// When the hour begins.
    pub hour: DateTime<Utc>,
    /// What the attempts that ended in it came to.
    #[sqlx(flatten)]
    pub counts: AttemptCounts,
}

const TARGET_HISTORY: &str = "-- target_history
SELECT hour, delivered, retryable, permanent, duration_ms FROM hook.target_hour
WHERE shard = $1 AND target_id = $2 AND hour >= COALESCE($3, '-infinity') AND hour < COALESCE($4, 'infinity')
ORDER BY hour DESC LIMIT $5";

const PURGE_HISTORY: &str = "-- purge_history
WITH hours AS (
    DELETE FROM hook.target_hour WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM hook.target_hour
        WHERE shard = $1 AND hour < now() - $2::bigint * interval '1 millisecond'
        ORDER BY hour LIMIT $3 FOR UPDATE SKIP LOCKED))
    RETURNING target_id
), totals AS (
    DELETE FROM hook.target_total AS t USING (SELECT DISTINCT target_id FROM hours) AS h
    WHERE t.shard = $1 AND t.target_id = h.target_id AND t.ended_at < now() - $2::bigint * interval '1 millisecond'
)
SELECT count(*) FROM hours";

impl Queue {
    /// Returns up to `limit` hours of a target that begin from `from` on and before `to`, as far
    /// as there are bounds, the latest first. Hours without attempts are left out.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the target.
    pub async fn target_history(
        &self,
        target: &Target,
        from: Option<DateTime<Utc>>,
        to: Option<DateTime<Utc>>,
        limit: i64,
    ) -> sqlx::Result<Vec<TargetHour>> {
        sqlx::query_as(TARGET_HISTORY)
            .bind(SHARD)
            .bind(target.id().0)
            .bind(from)
            .bind(to)
            .bind(limit)
            .fetch_all(&self.pool())
            .await
    }

    /// Removes up to `limit` hours that are older than `retention`, and the totals of their
    /// targets if those have had no attempt since; returns how many hours.
    ///
    /// # Errors
    /// As [`Queue::target_history`]; calling again is harmless.
    pub async fn purge_history(&self, retention: Duration, limit: i64) -> sqlx::Result<i64> {
        sqlx::query_scalar(PURGE_HISTORY)
            .bind(SHARD)
            .bind(millis(retention))
            .bind(limit)
            .fetch_one(&self.pool())
            .await
    }
}
