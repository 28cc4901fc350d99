//! Which sessions in Postgres belong to this pool.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use sqlx::{PgConnection, postgres::PgPoolOptions};

/// Process ids of the newest sessions that the pool has opened; closed ones stay until newer ones
/// push them out, which does no harm: Postgres does not work on them.
#[derive(Clone, Debug)]
pub(super) struct Backends {
    pids: Arc<Mutex<VecDeque<i32>>>,
    kept_max: usize,
}

impl Backends {
    /// Knows the sessions of a pool of `connections`, and of the one before it.
    pub(super) fn new(connections: usize) -> Self {
        Self {
            pids: Arc::default(),
            kept_max: connections.saturating_mul(2),
        }
    }

    /// Makes the pool note each session that it opens.
    pub(super) fn noted_by(&self, options: PgPoolOptions) -> PgPoolOptions {
        let backends = self.clone();
        options.after_connect(move |connection, _| {
            let backends = backends.clone();
            Box::pin(async move {
                backends.note(pid(connection).await?);
                Ok(())
            })
        })
    }

    /// Whether Postgres works on none of these sessions, asked on a connection of its own.
    pub(super) async fn are_idle(&self, connection: &mut PgConnection) -> sqlx::Result<bool> {
        let pids: Vec<i32> = self.lock().iter().copied().collect();
        sqlx::query_scalar(
            "-- db_backends_idle
            SELECT NOT EXISTS (
                SELECT FROM pg_stat_activity WHERE pid = ANY($1) AND state = 'active'
            )",
        )
        .bind(pids)
        .fetch_one(connection)
        .await
    }

    fn note(&self, pid: i32) {
        let mut pids = self.lock();
        if pids.len() >= self.kept_max {
            pids.pop_front();
        }
        pids.push_back(pid);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<i32>> {
        self.pids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn pid(connection: &mut PgConnection) -> sqlx::Result<i32> {
    sqlx::query_scalar(
        "-- db_backend_pid
        SELECT pg_backend_pid()",
    )
    .fetch_one(connection)
    .await
}
