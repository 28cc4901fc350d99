//! Much work at once after a pause, and new work after silence.

use std::time::Duration;

use hook_testkit::{
    db::TestDb,
    process::Program,
    sink::{Sink, answer::Answer},
    stack::Stack,
    wait::{pause, wait_for, wait_until},
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};

use crate::kit::{LIMIT, amount, counts, enqueue_by_sql, enqueue_many, seeded, wait_drained};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const BODY_KIB: u64 = 256;
/// How much later than it should a request may come on a busy machine.
const BUSY: Duration = Duration::from_secs(5);

/// Jobs one by one, so that every session has made up its mind how to do what; then a backlog.
const FIRST: usize = 60;
const BACKLOG: usize = 2_000;

/// Postgres has looked at the tables while they were empty, as it does in every quiet night, and
/// plans for tables that stay empty. Whoever plans so, and keeps to it while the tables fill, reads
/// all that there is for each job.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_were_empty_when_they_were_analysed_are_not_read_whole_later() {
    let db = TestDb::new().await;
    let pool = db.pool().await;
    sqlx::query("VACUUM (ANALYZE)")
        .execute(&pool)
        .await
        .expect("an empty database can be analysed");
    let sink = Sink::start(200).await;
    let mut stack = Stack::start(&db.url()).await;
    for n in 1..=FIRST {
        stack.enqueue_to(&sink.url("/")).await;
        sink.wait_requests(n, LIMIT).await;
    }
    let job = json!({"url": sink.url("/")});
    enqueue_many(&stack, &vec![job; BACKLOG]).await;
    sink.wait_requests(FIRST + BACKLOG, LIMIT).await;
    // A session tells what it has read in the end at the latest.
    for process in stack.workers.iter_mut().chain([&mut stack.api]) {
        process.terminate(LIMIT).await;
    }
    wait_until(LIMIT, async || {
        let (found, read): (i64, i64) = sqlx::query_as(
            "SELECT sum(idx_scan)::bigint, sum(seq_tup_read)::bigint FROM pg_stat_user_tables
            WHERE schemaname = 'hook' AND relname LIKE 'job_%'",
        )
        .fetch_one(&pool)
        .await
        .expect("Postgres counts what is read");
        let jobs = i64::try_from(FIRST + BACKLOG).expect("not so many");
        assert!(read <= jobs, "{read} rows were read for {jobs} jobs");
        if found < jobs {
            return Err(format!("{found} of {jobs} jobs were looked up by an index"));
        }
        Ok(())
    })
    .await;
}

/// PAY-11: the backlog is far larger than what a worker may hold of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pay_11_a_backlog_is_worked_off_in_bounded_memory() {
    let jobs = amount(400, 2_000);
    let db = TestDb::new().await;
    let pool = db.pool().await;
    let sink = Sink::start(200).await;
    let mut stack = Stack::builder(&db.url())
        .set("HOOK_DEQUEUE_BATCH_MAX", 8)
        .start()
        .await;
    let before = stack.worker().usage().rss_bytes;
    stack.workers[0].terminate(LIMIT).await;
    stack.workers.clear();
    sqlx::query(
        "SELECT hook.enqueue($1, body => decode(repeat('6162636465666768', $3), 'hex'),
            target => 't' || n % 4) FROM generate_series(1, $2) AS n",
    )
    .bind(sink.url("/"))
    .bind(i32::try_from(jobs).expect("not so many"))
    .bind(i32::try_from(BODY_KIB * KIB / 8).expect("not so large"))
    .execute(&pool)
    .await
    .expect("the backlog is stored");
    stack.start_worker().await;
    let mut most = 0;
    let mut slow = false;
    while counts(&pool).await["completed"] < i64::try_from(jobs).expect("not so many") {
        most = most.max(stack.worker().usage().rss_peak_bytes);
        // The receiver becomes slow on the way; four at a time hold their bodies for longer.
        if !slow && sink.request_count() > jobs - 40 {
            sink.set_script(Answer::ok().pause_before_head(Duration::from_millis(300)));
            slow = true;
        }
        pause(Duration::from_millis(50)).await;
    }
    let bound = before + 8 * BODY_KIB * KIB * 4 + 32 * MIB;
    println!("{jobs} jobs: at most {most} bytes, {before} without any, {bound} allowed");
    assert!(most <= bound, "{most} bytes of {bound}");
    assert!(
        jobs as u64 * BODY_KIB * KIB > 2 * (bound - before),
        "the backlog was too small"
    );
    assert!(slow);
    assert!(stack.all_run(), "nothing was restarted");
    let requests = sink.requests();
    assert!(
        requests
            .iter()
            .all(|request| request.body.len() as u64 == BODY_KIB * KIB)
    );
}

/// API-07: every job is served soon after its 202, the last one as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn api_07_no_job_waits_for_a_later_one() {
    let per_client = amount(25, 160);
    let clients: usize = 32;
    let poll = Duration::from_secs(1);
    let seed: u64 = seeded().random();
    let db = TestDb::new().await;
    let sink = Sink::start(200).await;
    let stack = Stack::builder(&db.url())
        .set("HOOK_POLL_INTERVAL", "1s")
        .set("HOOK_WORKER_SLOTS", 64)
        .start()
        .await;
    let mut apis = Vec::new();
    for _ in 0..3 {
        apis.push(stack.spawn(Program::Api).await);
    }
    let mut urls = vec![stack.api_url("/v1/jobs")];
    for api in &apis {
        let address = api
            .address(hook_testkit::process::Listener::Public, LIMIT)
            .await;
        urls.push(format!("http://{address}/v1/jobs"));
    }
    let mut producers = JoinSet::new();
    for lane in 0..clients {
        let (client, url) = (stack.client().clone(), urls[lane % urls.len()].clone());
        let job = json!({"url": sink.url("/"), "target": format!("t{lane}.test")});
        producers.spawn(async move {
            let mut rng = StdRng::seed_from_u64(seed ^ lane as u64);
            let mut accepted = Vec::new();
            for _ in 0..per_client {
                let answer = client
                    .post(&url)
                    .json(&job)
                    .send()
                    .await
                    .expect("an answer");
                assert_eq!(answer.status(), 202);
                let at = Instant::now();
                let answer: serde_json::Value = answer.json().await.expect("JSON");
                accepted.push((answer["id"].as_str().expect("an id").to_owned(), at));
                pause(Duration::from_millis(rng.random_range(0..=20))).await;
            }
            accepted
        });
    }
    let accepted: Vec<_> = producers.join_all().await.into_iter().flatten().collect();
    let requests = sink.wait_requests(accepted.len(), LIMIT).await;
    let mut slowest = Duration::ZERO;
    for (id, at) in &accepted {
        let request = requests.iter().find(|request| request.id() == id);
        let request = request.expect("every accepted job is served");
        slowest = slowest.max(request.head_read.saturating_duration_since(*at));
    }
    println!(
        "the slowest of {} jobs came {slowest:?} after its 202",
        accepted.len()
    );
    assert!(
        slowest <= poll + Duration::from_millis(250) + BUSY,
        "{slowest:?}"
    );
    assert_eq!(requests.len(), accepted.len());
}

/// API-08: rows that nobody told of are found by looking.
#[tokio::test]
async fn api_08_rows_made_by_sql_are_served_unannounced() {
    let db = TestDb::new().await;
    let pool = db.pool().await;
    let sink = Sink::start(200).await;
    let mut stack = Stack::builder(&db.url())
        .set("HOOK_POLL_INTERVAL", "500ms")
        .start()
        .await;
    // With defaults for everything, in a transaction of the application's own.
    let mut transaction = pool.begin().await.unwrap();
    for _ in 0..10 {
        sqlx::query("SELECT hook.enqueue($1)")
            .bind(sink.url("/sql"))
            .execute(&mut *transaction)
            .await
            .unwrap();
    }
    assert_eq!(sink.request_count(), 0, "nothing is seen before the commit");
    transaction.commit().await.unwrap();
    let committed = Instant::now();
    sink.wait_requests(10, Duration::from_millis(750) + BUSY)
        .await;
    println!("served {:?} after the commit", committed.elapsed());
    // Without a word to anybody: the rows alone, for a target that no worker has heard of.
    let before = sink.request_count();
    sqlx::query(
        "WITH job AS (
            INSERT INTO hook.job (shard, bucket, job_id, created_at, target_id, target, url)
            SELECT 0, hook.open_bucket(0::smallint),
                hook.new_job_id((extract(epoch FROM clock_timestamp()) * 1000000)::bigint + n), now(),
                hook.target_id('quiet.test'), 'quiet.test', $1
            FROM generate_series(1, 10) AS n RETURNING bucket, job_id, target_id)
        INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, bucket)
        SELECT 0, 0, target_id, now(), job_id, bucket FROM job",
    )
    .bind(sink.url("/quiet"))
    .execute(&pool)
    .await
    .unwrap();
    let inserted = Instant::now();
    sink.wait_requests(before + 10, Duration::from_millis(750) + BUSY)
        .await;
    println!("served {:?} after the insert", inserted.elapsed());
    wait_drained(&pool).await;
    let refused = enqueue_by_sql(&pool, "ftp://sink.test/").await;
    assert!(refused.is_err());
    let zero = "INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, bucket, attempt)
        SELECT 0, 9, 1, 'infinity', gen_random_uuid(), 0, -1";
    assert!(sqlx::query(zero).execute(&pool).await.is_err());
    assert!(stack.all_run());
    wait_for(
        LIMIT,
        async || stack.metrics(Program::Worker).await,
        |metrics| metrics.sum("hook_worker_attempts_total", &[("outcome", "delivered")]) == 20.0,
    )
    .await;
}
