//! Plans: the hot statements use their indexes on empty, filled and never analysed tables.

use std::time::Duration;

use hook_common::{
    db::{Db, PLANNING},
    job::Tier,
    queue::{PREPARE_DEQUEUE, PREPARE_FINISH, Queue},
};
use sqlx::{Executor as _, PgConnection, PgPool, Row as _};

use super::kit::{Kit, fill, head, term};

/// What the server makes of the dequeue in this mode.
async fn dequeue_plan(kit: &Kit, mode: &'static str) -> String {
    let mut connection = kit.pool.acquire().await.unwrap();
    connection.execute(mode).await.unwrap();
    dequeue_plan_of(&mut connection).await
}

/// What the server makes of the dequeue in this session.
async fn dequeue_plan_of(connection: &mut PgConnection) -> String {
    connection.execute("DEALLOCATE ALL").await.unwrap();
    connection
        .execute(sqlx::raw_sql(PREPARE_DEQUEUE))
        .await
        .unwrap();
    let rows = connection
        .fetch_all(sqlx::raw_sql(EXPLAIN_DEQUEUE))
        .await
        .unwrap();
    connection.execute("DEALLOCATE ALL").await.unwrap();
    rows.iter()
        .map(|row| row.get::<String, _>(0))
        .collect::<Vec<_>>()
        .join("\n")
}

const EXPLAIN_DEQUEUE: &str = "EXPLAIN EXECUTE hook_dequeue (0,
    ARRAY[hook.target_id('t1'), hook.target_id('t2'), hook.target_id('t3'), hook.target_id('t4')],
    array_fill(0::smallint, ARRAY[4]), array_fill(1, ARRAY[4]),
    array_fill('0001-01-01T00:00:00Z'::timestamptz, ARRAY[4]), 50, 30000, 15000, 'w')";

fn assert_probes_heads(plan: &str) {
    assert!(
        plan.contains("Index") && plan.contains("ready_head"),
        "no probe of ready_head:\n{plan}"
    );
    assert!(
        !plan.contains("Seq Scan on ready"),
        "the whole table is read:\n{plan}"
    );
    assert!(
        !plan.contains("Sort Key: ready"),
        "the backlog is sorted:\n{plan}"
    );
    assert!(
        plan.contains("Tid Scan on ready"),
        "rows are not deleted where they were found:\n{plan}"
    );
}

const EXPLAIN_FINISH: &str = "EXPLAIN EXECUTE hook_finish (0, ARRAY['(0,1)', '(0,2)'],
    array_fill(gen_random_uuid(), ARRAY[2]), ARRAY[1, 1]::bigint[], ARRAY[2, 2]::smallint[], ARRAY[0, 0]::smallint[],
    ARRAY[0, 0]::bigint[], ARRAY[0, 0]::smallint[], ARRAY[0, 0]::smallint[], ARRAY[200, 200]::smallint[],
    ARRAY['', '']::bytea[], ARRAY[false, false], ARRAY[5, 5])";

/// The generic plan is the one of the steady state, and it does not know how many results there
/// are: a nested loop over all of them for each would be quadratic.
#[tokio::test]
async fn a_finish_looks_each_lease_up_where_it_lies() {
    let kit = Kit::new().await;
    let mut connection = kit.pool.acquire().await.unwrap();
    connection
        .execute("SET plan_cache_mode = force_generic_plan")
        .await
        .unwrap();
    connection
        .execute(sqlx::raw_sql(PREPARE_FINISH))
        .await
        .unwrap();
    let rows = connection.fetch_all(sqlx::raw_sql(EXPLAIN_FINISH)).await;
    let lines: Vec<String> = rows.unwrap().iter().map(|row| row.get(0)).collect();
    connection.execute("DEALLOCATE ALL").await.unwrap();
    let plan = lines.join("\n");
    assert!(
        plan.contains("TID Cond: (ctid = i"),
        "no look-up by ctid:\n{plan}"
    );
    assert!(
        !plan.contains("Seq Scan on lease"),
        "all leases are read:\n{plan}"
    );
}

#[tokio::test]
async fn a_dequeue_probes_heads_whatever_is_known_of_the_table() {
    let kit = Kit::new().await;
    for mode in [
        "SET plan_cache_mode = auto",
        "SET plan_cache_mode = force_generic_plan",
    ] {
        assert_probes_heads(&dequeue_plan(&kit, mode).await);
    }
    fill(&kit.pool, 30_000, 300).await;
    assert_probes_heads(&dequeue_plan(&kit, "SET plan_cache_mode = auto").await);
    kit.pool.execute("ANALYZE hook.ready").await.unwrap();
    for mode in [
        "SET plan_cache_mode = auto",
        "SET plan_cache_mode = force_generic_plan",
    ] {
        assert_probes_heads(&dequeue_plan(&kit, mode).await);
    }
}

/// A vacuum that found nothing alive, and could not give the pages back, says so to the planner. Then
/// one index seems as good as another, also one that finds all rows, and workers forbid what that
/// would need.
#[tokio::test]
async fn a_dequeue_of_a_worker_probes_heads_where_the_table_is_believed_to_be_empty() {
    let kit = Kit::new().await;
    fill(&kit.pool, 50_000, 300).await;
    let mut worker = kit.pool.acquire().await.unwrap();
    for (name, value) in PLANNING {
        sqlx::query("SELECT set_config($1, $2, false)")
            .bind(name)
            .bind(value)
            .execute(&mut *worker)
            .await
            .unwrap();
    }
    for mode in [
        "SET plan_cache_mode = force_custom_plan",
        "SET plan_cache_mode = force_generic_plan",
    ] {
        worker.execute(mode).await.unwrap();
        worker
            .execute(
                "UPDATE pg_class SET reltuples = 0, relpages = pg_relation_size(oid) / 8192
                WHERE relnamespace = 'hook'::regnamespace AND relname LIKE 'ready%'",
            )
            .await
            .unwrap();
        let plan = dequeue_plan_of(&mut worker).await;
        assert_probes_heads(&plan);
        // What Postgres adds to the price of what is forbidden and done all the same.
        assert!(!plan.contains("10000000000"), "{plan}");
    }
}

#[tokio::test]
async fn a_dequeue_touches_few_buffers_per_job() {
    let kit = Kit::new().await;
    fill(&kit.pool, 50_000, 100).await;
    let heads: Vec<_> = (0..50)
        .map(|n| head(&format!("t{n}"), Tier::Primary, 1))
        .collect();
    let term = term(Duration::from_secs(60));
    // Warm the catalogue caches, whose buffers are not the statement's.
    kit.queue.dequeue(&heads, 50, &term).await.unwrap();
    let touched = |pool: PgPool| async move {
        let row = pool
            .fetch_one(
                "SELECT (heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit)::bigint
                 FROM pg_statio_user_tables WHERE schemaname = 'hook' AND relname = 'ready'",
            )
            .await
            .unwrap();
        row.get::<i64, _>(0)
    };
    kit.pool
        .execute("SELECT pg_stat_force_next_flush()")
        .await
        .unwrap();
    let before = touched(kit.pool.clone()).await;
    let mut leased = 0;
    for _ in 0..10 {
        leased += kit
            .queue
            .dequeue(&heads, 50, &term)
            .await
            .unwrap()
            .jobs
            .len();
    }
    assert_eq!(leased, 500);
    let limit = Duration::from_secs(15);
    let after = hook_testkit::wait::wait_until(limit, || {
        let pool = kit.pool.clone();
        async move {
            pool.execute("SELECT pg_stat_clear_snapshot()")
                .await
                .unwrap();
            let now = touched(pool).await;
            if now > before + 500 {
                Ok(now)
            } else {
                Err(now)
            }
        }
    })
    .await;
    let per_job = (after - before) / 500;
    assert!(
        per_job <= 10,
        "{per_job} buffers of the ready table per job"
    );
}

/// What a planner that may use none of its better joins makes of the claim must not lease more
/// than was asked for; the whole worker is tried in the system tests.
#[tokio::test]
async fn q_10_a_dequeue_leases_no_more_than_asked_whatever_the_planner_may_use() {
    let kit = Kit::new().await;
    kit.pool
        .execute("ALTER TABLE hook.ready SET (autovacuum_enabled = off)")
        .await
        .unwrap();
    fill(&kit.pool, 1_000, 10).await;
    let heads: Vec<_> = (0..10)
        .map(|n| head(&format!("t{n}"), Tier::Primary, 3))
        .collect();
    kit.pool.execute(WITHOUT_GOOD_PLANS).await.unwrap();
    for (mode, leased_in_all) in [(GENERIC_PLANS, 60), (CUSTOM_PLANS, 120)] {
        kit.pool.execute(mode).await.unwrap();
        // New connections have the settings.
        let pool = PgPool::connect(&kit.url()).await.unwrap();
        let queue = Queue::new(Db::around(pool));
        let term = term(Duration::from_secs(60));
        for _ in 0..20 {
            let leased = queue.dequeue(&heads, 3, &term).await.unwrap();
            assert_eq!(leased.jobs.len(), 3);
        }
        assert_eq!(kit.places().await.lease, leased_in_all);
    }
}

const WITHOUT_GOOD_PLANS: &str = "DO $$
DECLARE setting text;
BEGIN
    FOREACH setting IN ARRAY '{enable_hashjoin,enable_mergejoin,enable_hashagg,enable_material,enable_memoize}'::text[]
    LOOP
        EXECUTE format('ALTER DATABASE %I SET %I = off', current_database(), setting);
    END LOOP;
END $$";
const GENERIC_PLANS: &str = "DO $$ BEGIN
    EXECUTE format('ALTER DATABASE %I SET plan_cache_mode = force_generic_plan', current_database());
END $$";
const CUSTOM_PLANS: &str = "DO $$ BEGIN
    EXECUTE format('ALTER DATABASE %I SET plan_cache_mode = force_custom_plan', current_database());
END $$";
