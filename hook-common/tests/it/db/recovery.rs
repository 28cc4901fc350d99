use std::time::Duration;

use hook_common::db::Fault;
use hook_testkit::{
    db::TestDb,
    proxy::{CutPoint, Mode, Proxy},
    wait::pause,
};
use tokio::{task::JoinSet, time::Instant};

use super::support::{Way, until, way};

const SECOND: Duration = Duration::from_secs(1);

/// Opens as many connections as the pool may hold.
async fn fill(way: &Way, count: usize) {
    let mut held = Vec::new();
    for _ in 0..count {
        held.push(way.db.acquire().await.expect("the pool has room"));
    }
}

fn watch(way: &Way) -> JoinSet<()> {
    let (db, stop) = (way.db.clone(), way.stop.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { db.watch(&stop).await });
    tasks
}

/// One statement with a deadline, as every caller has.
async fn works(way: &Way) -> bool {
    let pool = way.db.pool();
    let statement = sqlx::query("SELECT 1").execute(&pool);
    matches!(tokio::time::timeout(SECOND, statement).await, Ok(Ok(_)))
}

/// Waits until statements work again and gives the time that took.
async fn back_after(way: &Way, limit: Duration) -> Duration {
    let begun = Instant::now();
    until(limit, async || works(way).await).await;
    begun.elapsed()
}

/// Makes every connection of now one whose far side is gone without a word.
async fn half_open(proxy: &Proxy) {
    proxy.set(Mode::HalfOpen);
    // Each connection has to see it before the next ones are let through again.
    pause(SECOND / 10).await;
    proxy.set(Mode::Pass);
}

/// Design note: the pool does not recover from silently dead connections by itself.
#[tokio::test]
async fn a_pool_of_silently_dead_connections_is_thrown_away() {
    let database = TestDb::new().await;
    let proxy = Proxy::before(&database.url());
    let way = way(&proxy.url(&database.url()), &[("HOOK_DB_POOL_MAX", "8")]);
    way.db.wait_until_usable(&way.stop, None).await.unwrap();
    fill(&way, 8).await;
    let _watch = watch(&way);
    half_open(&proxy).await;
    let took = back_after(&way, SECOND * 15).await;
    assert!(took < SECOND * 8, "{took:?}");
    assert!(works(&way).await && works(&way).await);
}

/// A statement on a connection that was cut without a word is given up long before its own deadline,
/// and one that Postgres works on is not.
#[tokio::test]
async fn a_lost_answer_is_not_waited_for_and_a_late_one_is() {
    let database = TestDb::new().await;
    let slept = async |way: &Way, sql: &'static str| {
        let pool = way.db.pool();
        let begun = Instant::now();
        let answer = way
            .db
            .answer(SECOND * 60, sqlx::raw_sql(sql).execute(&pool));
        (
            answer.await.map(|answered| answered.is_ok()),
            begun.elapsed(),
        )
    };
    let proxy = Proxy::before(&database.url());
    let cut_off = way(&proxy.url(&database.url()), &[]);
    fill(&cut_off, 1).await;
    let direct = way(&database.url(), &[]);
    let cut = async {
        pause(SECOND / 5).await;
        half_open(&proxy).await;
    };
    let ((lost, waited), (late, _), ()) = tokio::join!(
        slept(&cut_off, "SELECT pg_sleep(0.5)"),
        slept(&direct, "SELECT pg_sleep(6)"),
        cut
    );
    assert_eq!(late, Some(true));
    assert_eq!(lost, None);
    assert!(waited < SECOND * 15, "{waited:?}");
}

/// PG-07: after a switch to read-only no connection of before is used again.
#[tokio::test]
async fn pg_07_a_server_that_becomes_read_only_takes_readiness_and_connections_away() {
    let database = TestDb::durable().await;
    let way = way(&database.url(), &[]);
    way.db.wait_until_usable(&way.stop, None).await.unwrap();
    let _watch = watch(&way);
    let pid = async || -> i32 {
        sqlx::query_scalar("SELECT pg_backend_pid()")
            .fetch_one(&way.db.pool())
            .await
            .unwrap()
    };
    let before = pid().await;
    let set = async |sql: &'static str| {
        let mut connection = database.connect().await;
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
        sqlx::raw_sql("SELECT pg_reload_conf()")
            .execute(&mut connection)
            .await
            .unwrap();
    };
    set("ALTER SYSTEM SET default_transaction_read_only = on").await;
    until(SECOND * 10, async || {
        let reasons = way.readiness.reasons().join("\n");
        reasons.contains("read-only")
    })
    .await;
    let error = sqlx::query("CREATE TABLE hook.refused ()")
        .execute(&way.db.pool())
        .await
        .unwrap_err();
    assert_eq!(way.db.observe(&error), Fault::NotWritable);
    set("ALTER SYSTEM RESET default_transaction_read_only").await;
    let begun = Instant::now();
    until(SECOND * 10, async || way.readiness.is_ready()).await;
    assert!(begun.elapsed() < SECOND * 5, "{:?}", begun.elapsed());
    assert_ne!(pid().await, before);
}

/// PG-05: work resumes within five seconds of a restart, whichever way it happened.
#[tokio::test]
async fn pg_05_statements_work_again_soon_after_a_restart() {
    let database = TestDb::durable().await;
    let way = way(&database.url(), &[]);
    way.db.wait_until_usable(&way.stop, None).await.unwrap();
    let _watch = watch(&way);
    for crash in [false, true] {
        fill(&way, 10).await;
        if crash {
            database.crash_server().await;
        } else {
            database.stop_server().await;
        }
        until(SECOND * 10, async || !works(&way).await).await;
        // The first broken connection is enough; readiness may last a little longer.
        until(SECOND * 10, async || way.readiness.postgres_refuses()).await;
        let begun = Instant::now();
        let fault = way.db.acquire().await.unwrap_err();
        assert_eq!(fault, Fault::Unreachable);
        assert!(begun.elapsed() < SECOND, "it waited for the pool");
        until(SECOND * 10, async || !way.readiness.is_ready()).await;
        database.start_server().await;
        let took = back_after(&way, SECOND * 10).await;
        assert!(took < SECOND * 5, "{took:?}");
        until(SECOND * 5, async || !way.readiness.postgres_refuses()).await;
        until(SECOND * 5, async || way.readiness.is_ready()).await;
    }
}

#[tokio::test]
async fn a_connection_cut_after_the_statement_leaves_its_outcome_unknown() {
    let database = TestDb::new().await;
    let proxy = Proxy::before(&database.url());
    let way = way(&proxy.url(&database.url()), &[]);
    fill(&way, 1).await;
    proxy.cut_on(CutPoint::After, |bytes| {
        bytes.windows(6).any(|window| window == b"MARKER")
    });
    let error = sqlx::raw_sql("SELECT 'MARKER'")
        .execute(&way.db.pool())
        .await
        .unwrap_err();
    let fault = way.db.observe(&error);
    assert_eq!(fault, Fault::OutcomeUnknown);
    assert!(!fault.changed_nothing() && fault.may_pass_later());
    proxy.cut_on_nothing();
    assert!(works(&way).await, "the pool was replaced");
}

#[tokio::test]
async fn a_full_pool_is_told_from_an_absent_postgres() {
    let database = TestDb::new().await;
    let way = way(&database.url(), &[("HOOK_DB_POOL_MAX", "1")]);
    way.db.wait_until_usable(&way.stop, None).await.unwrap();
    let held = way.db.acquire().await.unwrap();
    let begun = Instant::now();
    assert_eq!(way.db.acquire().await.unwrap_err(), Fault::Overloaded);
    assert!(begun.elapsed() < SECOND * 2);
    drop(held);
    assert!(works(&way).await);
}

/// PG-09: a cached statement that no longer fits is told apart, and a new connection helps.
#[tokio::test]
async fn pg_09_a_stale_statement_is_gone_with_its_connection() {
    let database = TestDb::new().await;
    let way = way(&database.url(), &[("HOOK_DB_POOL_MAX", "1")]);
    let mut other = database.connect().await;
    sqlx::raw_sql("CREATE TABLE shape (a int)")
        .execute(&mut other)
        .await
        .unwrap();
    let look = async || {
        sqlx::query("SELECT * FROM shape")
            .fetch_all(&way.db.pool())
            .await
    };
    look().await.unwrap();
    sqlx::raw_sql("ALTER TABLE shape ADD COLUMN b text")
        .execute(&mut other)
        .await
        .unwrap();
    let error = look().await.unwrap_err();
    assert_eq!(way.db.observe(&error), Fault::StaleStatement);
    look().await.unwrap();
}

/// OBS-02 (a): tables that are locked away make the process unready, and cost no connections.
#[tokio::test]
async fn obs_02_locked_tables_take_readiness_away_until_they_are_back() {
    let database = TestDb::new().await;
    let way = way(&database.url(), &[("HOOK_DB_POOL_MAX", "3")]);
    way.db.wait_until_usable(&way.stop, None).await.unwrap();
    let _watch = watch(&way);
    let mut other = database.connect().await;
    sqlx::raw_sql("BEGIN; LOCK TABLE hook.ready IN ACCESS EXCLUSIVE MODE")
        .execute(&mut other)
        .await
        .unwrap();
    // Honest work that waits for the lock: the pool is busy, not broken.
    let mut work = JoinSet::new();
    for _ in 0..2 {
        let pool = way.db.pool();
        work.spawn(async move {
            sqlx::query("SELECT 1 FROM hook.ready LIMIT 1")
                .execute(&pool)
                .await
                .map(|_| ())
        });
    }
    until(SECOND * 10, async || !way.readiness.is_ready()).await;
    let asked = Instant::now();
    while asked.elapsed() < SECOND * 6 {
        let sessions: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'hook-worker'",
        )
        .fetch_one(&mut other)
        .await
        .unwrap();
        assert!(sessions <= 4, "{sessions} sessions for a pool of 3");
        way.stop.pause(SECOND / 4).await;
    }
    sqlx::raw_sql("COMMIT").execute(&mut other).await.unwrap();
    until(SECOND * 5, async || way.readiness.is_ready()).await;
    while let Some(worked) = work.join_next().await {
        worked.unwrap().unwrap();
    }
}
