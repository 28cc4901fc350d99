//! Statements whose answer is lost: a connection was cut without a word, and nobody will say so
//! before the statement's own, long deadline.

use std::time::Duration;

use super::{ACQUIRE_TIMEOUT, Db, connect};
use crate::lifecycle::within;

/// A statement that is answered later than this is looked for in Postgres.
const SILENCE: Duration = Duration::from_secs(2);
/// From one look to the next; also how long an answer may be on its way.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Db {
    /// Waits for a statement, for `limit` at most; `None` as well once its answer is lost, which is
    /// known when Postgres has worked on none of our sessions in two looks. What the statement did,
    /// if it arrived, stays done.
    ///
    /// # Cancel safety
    /// As safe as the statement.
    pub async fn answer<T>(
        &self,
        limit: Duration,
        statement: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::select! {
            biased;
            answer = within(limit, statement) => answer,
            () = self.lost() => None,
        }
    }

    /// Returns once nothing that we wait for can be answered any more.
    async fn lost(&self) {
        // Behind a pooler a statement runs in any session, and a pool of somebody else's notes none.
        if self.inner.pooled || self.inner.readiness.is_none() {
            return std::future::pending().await;
        }
        pause(SILENCE).await;
        let mut idle_looks = 0;
        while idle_looks < 2 {
            pause(LOOK_EVERY).await;
            idle_looks = if Box::pin(self.is_idle()).await {
                idle_looks + 1
            } else {
                0
            };
        }
    }

    /// Whether Postgres can be asked, and works on none of our sessions.
    pub(super) async fn is_idle(&self) -> bool {
        let options = self.pool().connect_options();
        let idle = within(ACQUIRE_TIMEOUT, async {
            let mut connection = connect(&options).await?;
            self.inner.backends.are_idle(&mut connection).await
        });
        matches!(idle.await, Some(Ok(true)))
    }
}

async fn pause(duration: Duration) {
    within(duration, std::future::pending::<()>()).await;
}
