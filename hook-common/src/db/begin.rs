//! Beginning a transaction so that a caller who goes away leaves nothing behind.
//!
//! sqlx does not know of a transaction whose `BEGIN` was sent by a future that was dropped before
//! the answer. The connection goes back to the pool inside that transaction, and the next
//! borrower's statement is answered and never committed. The server could be asked on each
//! return, at the price of a round trip for every statement of the product; instead the pool is
//! thrown away in the rare case that a `BEGIN` is dropped. That is why `Pool::begin` is not used
//! anywhere else.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use sqlx::{PgPool, Postgres, Transaction};

use super::{Db, Reason};

type Begun = sqlx::Result<Transaction<'static, Postgres>>;

/// A `BEGIN` under way. Dropped before its end, it first closes the pool and then the connection,
/// which therefore finds no way back.
pub(super) struct Begin {
    db: Db,
    pool: PgPool,
    running: Option<Pin<Box<dyn Future<Output = Begun> + Send>>>,
}

impl Begin {
    pub(super) fn new(db: &Db) -> Self {
        let pool = db.pool();
        let from = pool.clone();
        Self {
            db: db.clone(),
            pool,
            running: Some(Box::pin(async move { from.begin().await })),
        }
    }
}

impl Future for Begin {
    type Output = Begun;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Begun> {
        let running = self.running.as_mut();
        let running = running.expect("a future is not polled after its end");
        let polled = running.as_mut().poll(context);
        if polled.is_ready() {
            self.running = None;
        }
        polled
    }
}

impl Drop for Begin {
    fn drop(&mut self) {
        if self.running.is_some() {
            self.db.discard(&self.pool, Reason::CancelledBegin);
        }
    }
}
