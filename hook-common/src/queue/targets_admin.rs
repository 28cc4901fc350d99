//! Targets as people see and set them, and the short list that the API needs.

use std::time::Duration;

use crate::{
    queue::{Queue, SHARD, enqueue::millis},
    target::TargetId,
};

const PENALISED_TARGETS: &str = "-- penalised_targets
SELECT target_id FROM hook.target
WHERE shard = $1 AND (penalty > 0 OR penalty_pin IS NOT NULL OR held_until IS NOT NULL)
    AND (held_until > now()
        OR COALESCE(penalty_pin,
            CASE WHEN changed_at > now() - $2::bigint * interval '1 millisecond' THEN penalty ELSE 0::smallint END) > 0)
ORDER BY COALESCE(penalty_pin, penalty) DESC, target_id LIMIT $3";

impl Queue {
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
