//! The workers that live: each says so about once a second and hears of the others.
//!
//! Nothing depends on this list being right at every moment: a worker that dies takes its part of
//! a limit with it for as long as it counts as alive, and a new one is known after a second.

use std::time::Duration;

use crate::{
    job::QueueName,
    queue::{Queue, SHARD, enqueue::millis},
};

/// How many times longer than it counts as alive the row of a silent worker is kept.
const KEPT_TIMES: i64 = 12;

/// A worker that said it lives.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LiveWorker {
    /// Drawn by the process when it started.
    pub worker_id: i64,
    /// The queues that it takes jobs from.
    pub serves: Serves,
}

/// A set of queues.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Serves(i16);

impl Serves {
    /// These queues.
    #[must_use]
    pub fn of(queues: &[QueueName]) -> Self {
        let bit = |queue: &QueueName| match queue {
            QueueName::Primary => 1,
            QueueName::Degraded => 2,
        };
        Self(queues.iter().fold(0, |bits, queue| bits | bit(queue)))
    }

    pub(super) const fn code(self) -> i16 {
        self.0
    }

    /// True if every queue of `other` is among these.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

// A worker does not see the row that it is writing, hence the UNION.
const ANNOUNCE_WORKER: &str = "-- announce_worker
WITH mine AS (
    INSERT INTO hook.worker AS w (shard, worker_id, serves, seen_at, name, started_at)
    VALUES ($1, $2, $3, now(), $6, now())
    ON CONFLICT (shard, worker_id) DO UPDATE SET seen_at = now()
), gone AS (
    DELETE FROM hook.worker
    WHERE shard = $1 AND worker_id <> $2 AND seen_at < now() - $5::bigint * interval '1 millisecond'
)
SELECT $2 AS worker_id, $3 AS serves
UNION ALL
SELECT worker_id, serves FROM hook.worker
WHERE shard = $1 AND worker_id <> $2 AND seen_at > now() - $4::bigint * interval '1 millisecond'";

impl Queue {
    /// Says that this worker lives, and returns every worker that said so within `alive_for`, this
    /// one included. `name` is what its leases are marked with.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the others.
    pub async fn announce_worker(
        &self,
        me: LiveWorker,
        name: &str,
        alive_for: Duration,
    ) -> sqlx::Result<Vec<LiveWorker>> {
        let alive_ms = millis(alive_for);
        let rows: Vec<(i64, i16)> = sqlx::query_as(ANNOUNCE_WORKER)
            .bind(SHARD)
            .bind(me.worker_id)
            .bind(me.serves.code())
            .bind(alive_ms)
            .bind(alive_ms.saturating_mul(KEPT_TIMES))
            .bind(name)
            .fetch_all(&self.pool())
            .await?;
        Ok(rows
            .into_iter()
            .map(|(worker_id, serves)| LiveWorker {
                worker_id,
                serves: Serves(serves),
            })
            .collect())
    }
}
