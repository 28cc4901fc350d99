//! Numbers about the queue as a whole, each bounded in what it costs.

use crate::queue::{Queue, SHARD};

/// Up to this many rows are counted one by one; beyond, Postgres's own estimate has to do.
const COUNTED_MAX: i64 = 200_000;

const WAITING_COUNT: &str = "-- waiting_count
SELECT count(*) FROM (SELECT FROM hook.ready WHERE shard = $1 LIMIT $2) AS some";

// Estimated by the statistics that Postgres keeps about live rows; they lag by about a second.
const WAITING_LIVE: &str = "-- waiting_live
SELECT pg_stat_get_live_tuples('hook.ready'::regclass)";

impl Queue {
    /// Returns how many jobs wait, or `enough` if there are at least so many.
    ///
    /// Small numbers are counted, large ones estimated.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the number.
    pub async fn waiting_estimate(&self, enough: i64) -> sqlx::Result<i64> {
        let counted: i64 = sqlx::query_scalar(WAITING_COUNT)
            .bind(SHARD)
            .bind(enough.min(COUNTED_MAX))
            .fetch_one(&self.pool())
            .await?;
        if counted < COUNTED_MAX || enough <= COUNTED_MAX {
            return Ok(counted);
        }
        let live: i64 = sqlx::query_scalar(WAITING_LIVE)
            .fetch_one(&self.pool())
            .await?;
        Ok(live.max(counted))
    }
}
