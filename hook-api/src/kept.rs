//! Connections that are used again at once, without a trip through the pool.
//!
//! The pool checks a connection by a round trip each time it comes back, which costs as much as a
//! small statement. Where one statement follows the other, that is saved. Nothing is kept for
//! long: a connection that has lain idle goes back to the pool and is checked there.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use hook_common::db::{Db, Fault};
use sqlx::{Postgres, pool::PoolConnection};
use tokio::time::Instant;

/// A connection that was not used for this long goes back to the pool.
pub(crate) const IDLE_MAX: Duration = Duration::from_millis(500);

/// A few connections between two statements.
#[derive(Debug)]
pub(crate) struct Kept {
    db: Db,
    count_max: usize,
    idle: Mutex<Vec<(PoolConnection<Postgres>, Instant)>>,
}

impl Kept {
    /// Keeps at most `count_max` connections.
    pub(crate) fn new(db: Db, count_max: usize) -> Self {
        Self {
            db,
            count_max,
            idle: Mutex::default(),
        }
    }

    /// Gives a connection that was used just now, or one from the pool.
    ///
    /// # Errors
    /// As [`Db::acquire`]: nothing was sent.
    ///
    /// # Cancel safety
    /// Dropped while waiting, it holds nothing.
    pub(crate) async fn take(&self) -> Result<PoolConnection<Postgres>, Fault> {
        match self.warm() {
            Some(connection) => Ok(connection),
            None => self.db.acquire().await,
        }
    }

    /// Takes back a connection whose last statement has succeeded; any other is to be dropped.
    pub(crate) fn put(&self, connection: PoolConnection<Postgres>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < self.count_max {
            idle.push((connection, Instant::now()));
        }
    }

    /// Whether there is any to give back.
    pub(crate) fn is_empty(&self) -> bool {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.is_empty()
    }

    /// Gives what has lain idle back to the pool.
    pub(crate) fn release_idle(&self) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(_, since)| since.elapsed() < IDLE_MAX);
    }

    /// The connection that was used last, unless that is too long ago.
    fn warm(&self) -> Option<PoolConnection<Postgres>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let (connection, since) = idle.pop()?;
        (since.elapsed() < IDLE_MAX).then_some(connection)
    }
}
