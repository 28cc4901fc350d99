//! Rows that cannot be sent and results that cannot be written: the jobs beside them go on.

use std::time::Duration;

use hook_testkit::{
    db::TestDb,
    process::Program,
    sink::{Sink, answer::Answer},
    stack::Stack,
    wait::{pause, wait_for},
};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::time::Instant;

use crate::kit::{CREATE_ROLE, LIMIT, counts, enqueue_many, grant, with_role};

async fn run(pool: &PgPool, statement: &'static str) {
    sqlx::raw_sql(statement)
        .execute(pool)
        .await
        .unwrap_or_else(|error| panic!("{statement}: {error}"));
}

#[tokio::test]
async fn q_18_rows_that_cannot_be_decoded_end_failed_and_hold_nobody_up() {
    let db = TestDb::new().await;
    let pool = db.pool().await;
    let sink = Sink::start(200).await;
    run(&pool, PLANT_ROWS).await;
    for refused in REFUSED {
        let planted = sqlx::raw_sql(*refused).execute(&pool).await;
        assert!(planted.is_err(), "not refused: {refused}");
    }
    let mut stack = Stack::builder(&db.url()).start().await;
    let pids = stack.pids();
    let good: Vec<Value> = (0..100)
        .map(|n| json!({"url": sink.url("/x"), "target": format!("t{}.test", n % 10)}))
        .collect();
    let begun = Instant::now();
    enqueue_many(&stack, &good).await;
    let same_target = json!({"url": sink.url("/y"), "target": "poison.test"});
    stack.enqueue_id(&same_target).await;
    sink.wait_requests(101, Duration::from_secs(10)).await;
    println!("101 good jobs after {:?}", begun.elapsed());
    wait_for(
        LIMIT,
        async || counts(&pool).await,
        |counts| counts["waiting"] + counts["running"] == 0,
    )
    .await;
    let ends: Vec<(String, i16, i16)> = sqlx::query_as(
        "SELECT j.metadata, f.status, f.error_kind FROM hook.job AS j
         JOIN hook.finished AS f ON f.job_id = j.job_id AND f.bucket = j.bucket
         WHERE j.target = 'poison.test' AND j.metadata IS NOT NULL",
    )
    .fetch_all(&pool)
    .await
    .expect("ends can be read");
    assert_eq!(ends.len(), 22, "eleven kinds in each queue");
    for (kind, status, error_kind) in &ends {
        // Failed, `invalid_request`.
        assert_eq!((*status, *error_kind), (3, 11), "{kind}");
    }
    assert_eq!(sink.request_count(), 101, "no poison was sent");
    assert_eq!(stack.pids(), pids);
    assert!(stack.all_run());
    let failed = stack.metrics(Program::Worker).await;
    assert_eq!(failed.sum("hook_worker_dequeue_failures_total", &[]), 0.0);
}

/// Jobs at the head of both queues that no producer could have stored.
const PLANT_ROWS: &str = "
WITH kinds (kind, url, method, headers, signing) AS (VALUES
    ('list of headers', 'http://127.0.0.1:9/', 0, '[1, 2]'::jsonb, NULL::text[]),
    ('text as headers', 'http://127.0.0.1:9/', 0, '\"x\"', NULL),
    ('number as header', 'http://127.0.0.1:9/', 0, '{\"a\": 1e999}', NULL),
    ('null as header', 'http://127.0.0.1:9/', 0, '{\"a\": null}', NULL),
    ('unknown method', 'http://127.0.0.1:9/', 77, NULL, NULL),
    ('negative method', 'http://127.0.0.1:9/', -1, NULL, NULL),
    ('empty url', '', 0, NULL, NULL),
    ('no web address', 'ftp://127.0.0.1/', 0, NULL, NULL),
    ('broken address', 'http://[::/', 0, NULL, NULL),
    ('null as secret', 'http://127.0.0.1:9/', 0, NULL, '{NULL}'),
    ('table of secrets', 'http://127.0.0.1:9/', 0, NULL, '{{a,b},{c,d}}')
), planted AS (
    SELECT kinds.*, tier, gen_random_uuid() AS job_id, hook.open_bucket(0::smallint) AS bucket
    FROM kinds CROSS JOIN (VALUES (0::smallint), (1::smallint)) AS t (tier)
), jobs AS (
    INSERT INTO hook.job (shard, bucket, job_id, created_at, target_id, target, method, url, headers, signing,
        metadata, body)
    SELECT 0, bucket, job_id, now(), hook.target_id('poison.test'), 'poison.test', method, url, headers, signing,
        kind, '\\xc328ff'
    FROM planted
)
INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, bucket)
SELECT 0, tier, hook.target_id('poison.test'), now() - interval '1 hour', job_id, bucket FROM planted";

/// Rows that would fail the dequeue or the finish itself are refused where they are written.
const REFUSED: &[&str] = &[
    "INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, bucket)
     VALUES (0, 7, 1, now(), gen_random_uuid(), 0)",
    "INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, bucket)
     VALUES (0, 0, 1, now(), gen_random_uuid(), 99)",
    "INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, bucket)
     VALUES (0, 0, 1, 'infinity', gen_random_uuid(), 0)",
    "INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, bucket, fence)
     VALUES (0, 0, 1, now(), gen_random_uuid(), 0, 9223372036854775807)",
    "INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, bucket, attempt)
     VALUES (0, 0, 1, now(), gen_random_uuid(), 0, 2147483647)",
    "INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, bucket, timeout_ms)
     VALUES (0, 0, 1, now(), gen_random_uuid(), 0, 2147483647)",
    "UPDATE hook.ready SET tier = -1",
];

/// Only one result can never be written; the others are, and it is not sent for ever.
#[tokio::test]
async fn q_19_a_result_that_cannot_be_written_costs_no_endless_repeats() {
    let db = TestDb::new().await;
    let pool = db.pool().await;
    let sink = Sink::start(200).await;
    let stack = Stack::builder(&db.url()).start().await;
    run(
        &pool,
        "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF EXISTS (SELECT FROM hook.job WHERE job_id = NEW.job_id AND url LIKE '%/7') THEN
                 RAISE EXCEPTION 'no result for this job';
             END IF;
             RETURN NEW;
         END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON hook.finished FOR EACH ROW EXECUTE FUNCTION public.refuse()",
    )
    .await;
    let jobs: Vec<Value> = (0..50)
        .map(|n| json!({"url": sink.url(&format!("/{n}")), "target": format!("t{}.test", n % 10)}))
        .collect();
    let ids = enqueue_many(&stack, &jobs).await;
    let done = |counts: &std::collections::HashMap<_, i64>| counts["completed"] == 49;
    wait_for(LIMIT, async || counts(&pool).await, done).await;
    let attempts: Vec<i32> = sqlx::query_scalar("SELECT DISTINCT attempt FROM hook.finished")
        .fetch_all(&pool)
        .await
        .expect("ends can be read");
    assert_eq!(attempts, [1]);
    let refused = async || {
        let metrics = stack.metrics(Program::Worker).await;
        metrics.sum("hook_worker_finish_retries_total", &[])
    };
    wait_for(LIMIT, refused, |refused| *refused >= 1.0).await;
    // Each time the lease is over, which is brought forward, the job is given back and sent again,
    // until it has had its attempts.
    for requests in 2..=3 {
        wait_for(
            LIMIT,
            async || {
                run(
                    &pool,
                    "UPDATE hook.lease SET leased_until = now() - interval '1 second'",
                )
                .await;
                sink.requests_for(&ids[7]).len()
            },
            |count| *count == requests,
        )
        .await;
    }
    run(
        &pool,
        "UPDATE hook.lease SET leased_until = now() - interval '1 second'",
    )
    .await;
    // Beside the lease that cannot be ended, others are still reaped.
    let other = stack.enqueue_id(&json!({"url": sink.url("/other")})).await;
    stack.wait_final(&other, LIMIT).await;
    pause(Duration::from_millis(2500)).await;
    assert_eq!(sink.requests_for(&ids[7]).len(), 3);
    assert_eq!(stack.job(&ids[7]).await["status"], "running", "parked");
    let said = stack.logs();
    let said = said
        .iter()
        .filter(|line| line.text.contains("refuses the result") && line.text.contains(&ids[7]));
    assert!(said.count() <= 3, "once per attempt");
}

#[tokio::test]
async fn q_19_results_are_kept_while_the_right_to_write_them_is_gone() {
    let db = TestDb::new().await;
    let pool = db.pool().await;
    let sink = Sink::start(Answer::ok().pause_before_head(Duration::from_millis(300))).await;
    let role = format!("worker_{}", db.name());
    let worker_url = with_role(&db.url(), &role);
    grant(&pool, &role, CREATE_ROLE).await;
    let stack = Stack::builder(&db.url())
        .set_for(Program::Worker, "DATABASE_URL", worker_url)
        .start()
        .await;
    let jobs: Vec<Value> = (0..40)
        .map(|n| json!({"url": sink.url("/x"), "target": format!("t{}.test", n % 10)}))
        .collect();
    enqueue_many(&stack, &jobs).await;
    sink.wait_requests(4, LIMIT).await;
    grant(&pool, &role, REVOKE).await;
    let refused = async || {
        let metrics = stack.metrics(Program::Worker).await;
        metrics.sum("hook_worker_finish_retries_total", &[])
    };
    wait_for(LIMIT, refused, |refused| *refused >= 4.0).await;
    pause(Duration::from_secs(1)).await;
    let sent = sink.request_count();
    assert!(sent <= 30, "the worker goes on sending: {sent}");
    let idle: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND state LIKE 'idle in transaction%' AND state_change < now() - interval '1 second'",
    )
    .fetch_one(&pool)
    .await
    .expect("sessions can be read");
    assert_eq!(idle, 0);
    let sessions: i64 =
        sqlx::query_scalar("SELECT count(*) FROM pg_stat_activity WHERE usename = $1")
            .bind(&role)
            .fetch_one(&pool)
            .await
            .expect("sessions can be read");
    // The pool, and the connection that listens.
    assert!(sessions <= 11, "{sessions} sessions");
    grant(&pool, &role, GRANT).await;
    wait_for(
        LIMIT,
        async || counts(&pool).await,
        |counts| counts["completed"] == 40,
    )
    .await;
    assert_eq!(sink.request_count(), 40, "nothing is sent twice");
}

const REVOKE: &str = "DO $$ BEGIN
    EXECUTE format('REVOKE INSERT ON hook.finished FROM %I', current_setting('test.role'));
END $$";
const GRANT: &str = "DO $$ BEGIN
    EXECUTE format('GRANT INSERT ON hook.finished TO %I', current_setting('test.role'));
END $$";
