//! Leader: agrees on one janitor that purges and measures, by a row with a time in it.
//!
//! Whoever holds the row renews it; once it has not been renewed in time, the next who asks takes
//! over. Nothing but double work depends on there being one leader: a leader that was frozen and
//! wakes up late does no harm, because every statement of the purge guards itself.

use std::time::Duration;

use crate::queue::{Queue, SHARD, enqueue::millis};

const LEAD: &str = "-- lead
INSERT INTO hook.leader AS l (shard, leader, leased_until)
VALUES ($1, $2, now() + $3::bigint * interval '1 millisecond')
ON CONFLICT (shard) DO UPDATE SET leader = excluded.leader, leased_until = excluded.leased_until
WHERE l.leader = excluded.leader OR l.leased_until < now()
RETURNING true";

const RESIGN: &str = "-- resign
DELETE FROM hook.leader WHERE shard = $1 AND leader = $2";

impl Queue {
    /// Makes `name` the leader for the time of `lease`, or keeps it so; false if another leads.
    ///
    /// # Errors
    /// Whether `name` leads is not known: it must not act as the leader.
    pub async fn lead(&self, name: &str, lease: Duration) -> sqlx::Result<bool> {
        let leads: Option<bool> = sqlx::query_scalar(LEAD)
            .bind(SHARD)
            .bind(name)
            .bind(millis(lease))
            .fetch_optional(&self.pool())
            .await?;
        Ok(leads.is_some())
    }

    /// Gives up the lead, so that another takes over at once; does nothing where another leads.
    ///
    /// # Errors
    /// The lead may last until its time is over.
    pub async fn resign(&self, name: &str) -> sqlx::Result<()> {
        sqlx::query(RESIGN)
            .bind(SHARD)
            .bind(name)
            .execute(&self.pool())
            .await?;
        Ok(())
    }
}
