//! What a connection must prove before it is lent out.
//!
//! A connection that is still inside a transaction would answer the next borrower's statement and
//! never commit it. Where we begin transactions at all, we do so in tasks that nobody cancels;
//! this check is the net below that, and costs no round trip: it reads what the server said last.

use sqlx::{Connection as _, postgres::PgPoolOptions};
use tracing::error;

use crate::metrics::process::DB_CONNECTIONS_REFUSED_TOTAL;

/// Adds the check to the options of a pool.
pub(super) fn check_before_use(options: PgPoolOptions, name: &'static str) -> PgPoolOptions {
    options.before_acquire(move |connection, _| {
        Box::pin(async move {
            let clean = !connection.is_in_transaction();
            if !clean {
                error!("closing a connection that was left inside a transaction");
                DB_CONNECTIONS_REFUSED_TOTAL.counter(&[name, "in_transaction"]).increment(1);
            }
            Ok(clean)
        })
    })
}
