//! What Postgres believes of the tables may be wrong by far; dequeues stay quick.

use std::time::Duration;

use hook_common::{
    db::Db,
    job::Tier,
    queue::{Head, Queue},
};
use sqlx::{Executor as _, PgPool, Row as _, postgres::PgPoolOptions};
use tokio::time::Instant;

use super::kit::{Kit, fill, head, term};

/// Targets of the burst.
const TARGETS: i32 = 500;
/// Dequeues that are measured in each phase, and heads of each.
const DEQUEUES: i32 = 40;
const HEADS: i32 = 10;
/// Pages of `hook.ready` and its indexes for each head, besides those of its own dead rows.
const PAGES_MAX: i64 = 40;
/// Far above what one takes, far below what a bad plan would.
const SLOWEST: Duration = Duration::from_secs(1);

/// Scans of the whole of `hook.ready`, and pages of it and its indexes that were looked at.
async fn looked_at(pool: &PgPool) -> (i64, i64) {
    pool.execute("SELECT pg_stat_force_next_flush()")
        .await
        .unwrap();
    let row = pool
        .fetch_one(
            "SELECT seq_scan, (heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit)::bigint
            FROM pg_stat_user_tables JOIN pg_statio_user_tables USING (relid)
            WHERE relid = 'hook.ready'::regclass",
        )
        .await
        .unwrap();
    (row.get(0), row.get(1))
}

/// Measures dequeues, and asserts that none was slow or read more than it had to.
async fn phase(queue: &Queue, pool: &PgPool, what: &str) {
    let term = term(Duration::from_secs(600));
    let before = looked_at(pool).await;
    let mut slowest = Duration::ZERO;
    for round in 0..DEQUEUES {
        let heads: Vec<Head> = (0..HEADS)
            .map(|n| {
                let target = (round * HEADS + n) % TARGETS;
                head(&format!("t{target}"), Tier::Primary, 1)
            })
            .collect();
        let begun = Instant::now();
        queue.dequeue(&heads, 10, &term).await.unwrap();
        slowest = slowest.max(begun.elapsed());
    }
    let after = looked_at(pool).await;
    let pages = (after.1 - before.1) / i64::from(DEQUEUES * HEADS);
    let dead = i64::from(jobs() / TARGETS);
    assert_eq!(after.0, before.0, "{what}: the whole table was read");
    assert!(pages <= PAGES_MAX + dead, "{what}: {pages} pages a head");
    assert!(slowest < SLOWEST, "{what}: {slowest:?}");
}

/// PG-02: a table that was almost empty when it was analysed grows by a burst and shrinks again,
/// whichever way plans are chosen and kept.
#[tokio::test]
async fn pg_02_statistics_that_are_wrong_by_far_do_not_slow_dequeues_down() {
    for mode in ["auto", "force_generic_plan", "force_custom_plan"] {
        let kit = Kit::new().await;
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .connect(&kit.url())
            .await
            .unwrap();
        sqlx::query("SELECT set_config('plan_cache_mode', $1, false)")
            .bind(mode)
            .execute(&pool)
            .await
            .unwrap();
        let queue = Queue::new(Db::around(pool.clone()));
        pool.execute("ALTER TABLE hook.ready SET (autovacuum_enabled = off)")
            .await
            .unwrap();
        fill(&pool, 10, TARGETS).await;
        pool.execute("ANALYZE hook.ready").await.unwrap();
        // Enough for a generic plan to be chosen.
        phase(&queue, &pool, &format!("{mode}, few")).await;
        fill(&pool, jobs(), TARGETS).await;
        phase(&queue, &pool, &format!("{mode}, after the burst")).await;
        pool.execute(
            "DELETE FROM hook.ready WHERE target_id <> ALL (ARRAY(
            SELECT hook.target_id('t' || n) FROM generate_series(0, 9) AS n))",
        )
        .await
        .unwrap();
        phase(&queue, &pool, &format!("{mode}, after it has shrunk")).await;
    }
}

/// Jobs of the burst.
fn jobs() -> i32 {
    if std::env::var_os("HOOK_TEST_FULL").is_some() {
        500_000
    } else {
        30_000
    }
}
