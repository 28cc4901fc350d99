//! Orphans: the leases of workers that are dead, found before those leases are over.
//!
//! A worker keeps one session open for as long as it has jobs in hand, and notes it beside its
//! sign of life. When its process dies, the operating system closes the connection and Postgres
//! ends the session within milliseconds. A worker counts as dead once its session is gone **and**
//! it has been silent for [`SILENT_FOR`]: one that only lost its connection has a new session long
//! before. Whatever cannot be told for certain is left to the end of the leases, and a mistake
//! costs no more than an attempt too many: the fence keeps the late result out. See docs/adr/0006.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::postgres::PgListener;

use crate::queue::{LiveWorker, Queue, SHARD, enqueue::millis};

/// A worker whose session is gone has to be silent for this long as well, longer than from one
/// sign of life to the next. Shorter takes a reconnecting worker for dead, longer keeps jobs waiting.
const SILENT_FOR: Duration = Duration::from_millis(1800);

/// Some session must be this old. A server that lost one of its processes throws everybody out;
/// then the workers come back before anybody is judged.
const OLDEST_SESSION: Duration = Duration::from_secs(3);

/// A worker that is dead.
#[derive(Clone, Debug, Eq, PartialEq, sqlx::FromRow)]
pub struct DeadWorker {
    /// Drawn by the process when it started.
    pub worker_id: i64,
    /// What its leases are marked with.
    pub name: String,
    /// Leases with this name that were granted later may be another worker's.
    pub leased_before: DateTime<Utc>,
}

const NOTE_SESSION: &str = "-- note_session
INSERT INTO hook.worker (shard, worker_id, serves, seen_at, name, started_at, backend_pid, backend_start, server_start)
SELECT $1, $2, $3, now(), $4, now(), pg_backend_pid(), backend_start, pg_postmaster_start_time()
FROM pg_stat_activity WHERE pid = pg_backend_pid()
ON CONFLICT (shard, worker_id) DO UPDATE SET seen_at = EXCLUDED.seen_at, backend_pid = EXCLUDED.backend_pid,
    backend_start = EXCLUDED.backend_start, server_start = EXCLUDED.server_start";

// When a session began is hidden from other roles: then its process id has to do. A worker that
// was started again under the same name has leases of its own from its first sign of life on.
const DEAD_WORKERS: &str = "-- dead_workers
WITH dead AS MATERIALIZED (
    SELECT worker_id, name FROM hook.worker AS w
    WHERE shard = $1 AND name IS NOT NULL AND seen_at < now() - $2::bigint * interval '1 millisecond'
        AND server_start = pg_postmaster_start_time()
        AND NOT EXISTS (
            SELECT FROM pg_stat_activity AS a
            WHERE a.pid = w.backend_pid AND (a.backend_start IS NULL OR a.backend_start = w.backend_start)
        )
        AND EXISTS (
            SELECT FROM pg_stat_activity WHERE backend_start < now() - $3::bigint * interval '1 millisecond'
        )
)
SELECT worker_id, name, LEAST(now(), (
    SELECT min(COALESCE(other.started_at, '-infinity')) FROM hook.worker AS other
    WHERE other.shard = $1 AND other.name = dead.name AND other.worker_id NOT IN (SELECT worker_id FROM dead)
)) AS leased_before
FROM dead";

const FORGET_WORKERS: &str = "-- forget_workers
DELETE FROM hook.worker
WHERE shard = $1 AND worker_id = ANY ($2) AND seen_at < now() - $3::bigint * interval '1 millisecond'";

/// Notes the session of this connection as the one that ends when the worker does.
pub(super) async fn note_session(
    listener: &mut PgListener,
    me: LiveWorker,
    name: &str,
) -> sqlx::Result<()> {
    sqlx::query(NOTE_SESSION)
        .bind(SHARD)
        .bind(me.worker_id)
        .bind(me.serves.code())
        .bind(name)
        .execute(listener)
        .await?;
    Ok(())
}

impl Queue {
    /// Returns the workers that are known to be dead.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the workers.
    pub async fn dead_workers(&self) -> sqlx::Result<Vec<DeadWorker>> {
        sqlx::query_as(DEAD_WORKERS)
            .bind(SHARD)
            .bind(millis(SILENT_FOR))
            .bind(millis(OLDEST_SESSION))
            .fetch_all(&self.pool())
            .await
    }

    /// Forgets dead workers, once their leases have been ended; one that lives after all is known
    /// again with its next sign of life.
    ///
    /// # Errors
    /// Postgres could not be asked; calling again is harmless.
    pub async fn forget_workers(&self, dead: &[DeadWorker]) -> sqlx::Result<()> {
        let ids: Vec<i64> = dead.iter().map(|worker| worker.worker_id).collect();
        sqlx::query(FORGET_WORKERS)
            .bind(SHARD)
            .bind(ids)
            .bind(millis(SILENT_FOR))
            .execute(&self.pool())
            .await?;
        Ok(())
    }
}
