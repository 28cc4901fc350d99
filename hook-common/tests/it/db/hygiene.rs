use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use hook_common::db::Db;
use hook_testkit::{
    db::TestDb,
    proxy::{Mode, Proxy},
};

use super::support::{until, way};

/// Starts `BEGIN` and drops it as soon as it has been sent.
async fn cancel_a_begin(db: &Db) {
    // With an idle connection at hand, the first look sends BEGIN; the proxy is too slow for an
    // answer by then.
    drop(db.acquire().await.expect("Postgres answers"));
    until(Duration::from_secs(5), async || db.pool().num_idle() == 1).await;
    let mut begin = pin!(db.begin());
    let started = poll_fn(|context| Poll::Ready(begin.as_mut().poll(context).is_pending())).await;
    assert!(started, "the answer was there before it could be cancelled");
}

/// Design note: a cancelled `BEGIN` leaves a transaction open, and what the next borrower of the
/// connection stores is answered and never committed.
#[tokio::test]
async fn what_follows_a_cancelled_begin_is_committed() {
    let database = TestDb::new().await;
    let proxy = Proxy::before(&database.url());
    let way = way(&proxy.url(&database.url()), &[("HOOK_DB_POOL_MAX", "1")]);
    let witness = database.pool().await;
    sqlx::raw_sql("CREATE TABLE stored (n int)")
        .execute(&witness)
        .await
        .unwrap();
    proxy.set(Mode::Delay(Duration::from_millis(5)));
    for n in 0..20_i32 {
        cancel_a_begin(&way.db).await;
        sqlx::query("INSERT INTO stored (n) VALUES ($1)")
            .bind(n)
            .execute(&way.db.pool())
            .await
            .unwrap();
        let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM stored")
            .fetch_one(&witness)
            .await
            .unwrap();
        assert_eq!(stored, i64::from(n) + 1, "an answered insert is not stored");
    }
}

#[tokio::test]
async fn connections_carry_their_name_and_limits() {
    let database = TestDb::new().await;
    let way = way(&database.url(), &[("HOOK_DB_STATEMENT_TIMEOUT", "1234ms")]);
    let show = async |name: &str| -> String {
        sqlx::query_scalar("SELECT current_setting($1)")
            .bind(name)
            .fetch_one(&way.db.pool())
            .await
            .unwrap()
    };
    assert_eq!(show("application_name").await, "hook-worker");
    assert_eq!(show("statement_timeout").await, "1234ms");
    assert_eq!(show("idle_in_transaction_session_timeout").await, "1234ms");
    let mut direct = way.db.connect_direct().await.unwrap();
    let limit: String = sqlx::query_scalar("SELECT current_setting('statement_timeout')")
        .fetch_one(&mut direct)
        .await
        .unwrap();
    assert_eq!(limit, "0", "migrations may take long");
}
