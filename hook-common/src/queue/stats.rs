//! Numbers about the queue as a whole, each bounded in what it costs.

use std::time::Duration;

use crate::{
    job::{QueueName, Status, Tier},
    queue::{Queue, SHARD},
};

/// Up to this many rows are counted one by one; beyond, Postgres's own estimate has to do.
const COUNTED_MAX: i64 = 200_000;
/// The same where people look at the numbers again and again.
const LOOKED_AT_MAX: i64 = 20_000;

const WAITING_COUNT: &str = "-- waiting_count
SELECT count(*) FROM (SELECT FROM hook.ready WHERE shard = $1 LIMIT $2) AS counted";

// Estimated by the statistics that Postgres keeps about live rows; they lag by about a second.
const WAITING_LIVE: &str = "-- waiting_live
SELECT pg_stat_get_live_tuples('hook.ready'::regclass)";

// Both tables are read from their beginning, up to a bound; what lies beyond it is taken to be made
// up alike.
const QUEUE_STATS: &str = "-- queue_stats
SELECT tier, 0::smallint AS status, count(*) AS jobs,
    (extract(epoch FROM now() - min(run_at) FILTER (WHERE run_at <= now())) * 1000)::bigint AS due_age_ms
FROM (SELECT tier, run_at FROM hook.ready WHERE shard = $1 LIMIT $2) AS waiting GROUP BY tier
UNION ALL
SELECT tier, 1::smallint, count(*), NULL FROM hook.lease WHERE shard = $1 GROUP BY tier
UNION ALL
SELECT tier, status, count(*), NULL
FROM (SELECT tier, status FROM hook.finished WHERE shard = $1 LIMIT $2) AS ended GROUP BY tier, status";

const LIVE_ROWS: &str = "-- live_rows
SELECT pg_stat_get_live_tuples('hook.ready'::regclass),
    (SELECT COALESCE(sum(pg_stat_get_live_tuples(inhrelid)), 0)::bigint FROM pg_inherits
     WHERE inhparent = 'hook.finished'::regclass)";

/// The jobs of one queue, by where they stand.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QueueStats {
    /// Which queue.
    pub queue: QueueName,
    /// Jobs that wait, also those scheduled for later.
    pub available: i64,
    /// Jobs that are being attempted.
    pub running: i64,
    /// Jobs that were delivered.
    pub completed: i64,
    /// Jobs that no attempt will follow.
    pub failed: i64,
    /// Jobs that were stopped.
    pub cancelled: i64,
    /// How long ago the oldest waiting job fell due; `None` when none is due.
    pub oldest_due_age: Option<Duration>,
}

#[derive(sqlx::FromRow)]
struct StatsRow {
    tier: i16,
    status: i16,
    jobs: i64,
    due_age_ms: Option<i64>,
}

impl QueueStats {
    fn empty(queue: QueueName) -> Self {
        Self {
            queue,
            available: 0,
            running: 0,
            completed: 0,
            failed: 0,
            cancelled: 0,
            oldest_due_age: None,
        }
    }

    fn slot(&mut self, status: Status) -> &mut i64 {
        match status {
            Status::Available => &mut self.available,
            Status::Running => &mut self.running,
            Status::Completed => &mut self.completed,
            Status::Failed => &mut self.failed,
            Status::Cancelled => &mut self.cancelled,
        }
    }

    fn add(&mut self, status: Status, row: &StatsRow) {
        *self.slot(status) += row.jobs;
        let age = row.due_age_ms.and_then(|age| u64::try_from(age).ok());
        self.oldest_due_age = self.oldest_due_age.max(age.map(Duration::from_millis));
    }

    /// Scales what was counted up to what there is.
    fn scale(&mut self, statuses: &[Status], counted: i64, live: i64) {
        for status in statuses {
            let slot = self.slot(*status);
            let scaled = i128::from(*slot) * i128::from(live) / i128::from(counted.max(1));
            *slot = i64::try_from(scaled).unwrap_or(i64::MAX);
        }
    }
}

impl Queue {
    /// Returns the numbers of both queues. They are exact up to some ten thousand jobs.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the numbers.
    pub async fn queue_stats(&self) -> sqlx::Result<Vec<QueueStats>> {
        let rows: Vec<StatsRow> = sqlx::query_as(QUEUE_STATS)
            .bind(SHARD)
            .bind(LOOKED_AT_MAX)
            .fetch_all(&self.pool())
            .await?;
        let (mut waiting, mut ended) = (0, 0);
        let mut stats: Vec<QueueStats> = QueueName::ALL
            .iter()
            .map(|q| QueueStats::empty(*q))
            .collect();
        for row in &rows {
            let (Some(tier), Some(status)) =
                (Tier::from_code(row.tier), Status::from_code(row.status))
            else {
                continue;
            };
            match status {
                Status::Available => waiting += row.jobs,
                Status::Completed | Status::Failed | Status::Cancelled => ended += row.jobs,
                Status::Running => {}
            }
            for stats in stats.iter_mut().filter(|stats| stats.queue == tier.queue()) {
                stats.add(status, row);
            }
        }
        if waiting < LOOKED_AT_MAX && ended < LOOKED_AT_MAX {
            return Ok(stats);
        }
        let (live_waiting, live_ended): (i64, i64) =
            sqlx::query_as(LIVE_ROWS).fetch_one(&self.pool()).await?;
        for stats in &mut stats {
            if waiting >= LOOKED_AT_MAX {
                stats.scale(&[Status::Available], waiting, live_waiting.max(waiting));
            }
            if ended >= LOOKED_AT_MAX {
                let finals = [Status::Completed, Status::Failed, Status::Cancelled];
                stats.scale(&finals, ended, live_ended.max(ended));
            }
        }
        Ok(stats)
    }

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
