//! Jobs whose worker was killed come back within seconds; those whose worker lives do not.

use std::time::Duration;

use hook_testkit::{
    db::TestDb,
    process::{Program, Signal},
    sink::{Sink, answer::Answer, script::Script},
    stack::Stack,
    wait::{pause, wait_for},
};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::time::Instant;

use crate::kit::{LIMIT, amount, assert_ended, attempts, enqueue_many, wait_drained};

const SLOTS: usize = 32;
/// Jobs in hand at one time; the last slots are not given to targets that do not answer.
const HELD: usize = 16;

/// Jobs that are at a receiver now.
async fn leased(pool: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM hook.lease")
        .fetch_one(pool)
        .await
        .expect("leases can be counted")
}

/// Enqueues jobs for different targets.
async fn enqueue(stack: &Stack, sink: &Sink, round: usize) -> Vec<String> {
    let jobs: Vec<Value> = (0..HELD)
        .map(|n| json!({"url": sink.url("/o"), "target": format!("r{round}-{n}.test")}))
        .collect();
    enqueue_many(stack, &jobs).await
}

fn long_attempts(db: &TestDb) -> hook_testkit::stack::builder::StackBuilder {
    Stack::builder(&db.url())
        .set("HOOK_WORKER_SLOTS", SLOTS)
        .set("HOOK_ATTEMPT_TIMEOUT", "45s")
        .set("HOOK_LEASE", "60s")
        .set("HOOK_SHUTDOWN_GRACE", "45s")
}

/// Issue: orphans of a killed worker, where the database sees the connection drop, p99 ≤ 3 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_a_killed_worker_come_back_within_seconds() {
    let db = TestDb::new().await;
    let first_hangs = Script::sequence([Answer::silence(), Answer::ok()]);
    let sink = Sink::start(first_hangs).await;
    let mut stack = long_attempts(&db).start().await;
    let pool = db.pool().await;
    let mut came_back = Vec::new();
    for round in 0..amount(4, 20) {
        let ids = enqueue(&stack, &sink, round).await;
        sink.wait_requests(round * 2 * HELD + HELD, LIMIT).await;
        stack.start_worker().await;
        let killed = Instant::now();
        let mut worker = stack.workers.remove(0);
        worker.signal(Signal::Kill);
        let counts = wait_drained(&pool).await;
        assert_eq!(counts["ended"], 0);
        worker.wait_exit(LIMIT).await;
        for id in &ids {
            let requests = sink.requests_for(id);
            assert_eq!(requests.len(), 2, "each job is sent once more");
            came_back.push(requests[1].head_read.duration_since(killed));
            let job = stack.job(id).await;
            assert_ended(&job, "completed", 2, None);
            assert_eq!(attempts(&job)[0]["error_kind"], "lease_expired");
        }
    }
    let reaped = stack.metrics(Program::Janitor).await;
    let reaped = reaped.sum("hook_janitor_leases_reaped_total", &[]);
    assert_eq!(reaped, came_back.len() as f64, "every lost attempt counts");
    came_back.sort_unstable();
    let p99 = came_back[(came_back.len() * 99).div_ceil(100) - 1];
    println!(
        "{} orphans: median {:?}, p99 {p99:?}, longest {:?}",
        came_back.len(),
        came_back[came_back.len() / 2],
        came_back[came_back.len() - 1]
    );
    // 3 s on a machine that has time for it; the lease would be 60 s.
    assert!(p99 < Duration::from_secs(8), "{p99:?}");
}

/// A worker that lost all its connections, then its Postgres, and was then told to stop, is not
/// taken for dead: what it holds is sent once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_lives_keeps_its_jobs_whatever_happens_to_its_connections() {
    let db = TestDb::durable().await;
    let sink = Sink::start(Answer::ok().pause_before_head(Duration::from_secs(20))).await;
    let mut stack = long_attempts(&db).start().await;
    let ids = enqueue(&stack, &sink, 0).await;
    sink.wait_requests(HELD, LIMIT).await;
    // Old enough for anybody to be judged.
    pause(Duration::from_secs(4)).await;
    for _ in 0..3 {
        let mut connection = db.connect().await;
        sqlx::query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE application_name IS DISTINCT FROM 'hook-janitor' AND datname = current_database()
                AND pid <> pg_backend_pid()",
        )
        .execute(&mut connection)
        .await
        .expect("sessions can be ended");
        pause(Duration::from_millis(700)).await;
    }
    db.crash_server().await;
    pause(Duration::from_millis(500)).await;
    db.start_server().await;
    stack.workers[0].signal(Signal::Terminate);
    let pool = db.pool().await;
    assert_eq!(leased(&pool).await, 16, "all are still in hand");
    let status = stack.workers[0].wait_exit(LIMIT).await;
    assert_eq!(status.code(), Some(0));
    let counts = wait_drained(&pool).await;
    assert_eq!((counts["completed"], counts["ended"]), (16, 0));
    assert_eq!(sink.request_count(), ids.len(), "nothing was sent twice");
}

/// A worker that is stopped, not dead, keeps its connection: its jobs come back with the leases,
/// once, and what it reports afterwards is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_a_stopped_worker_come_back_with_their_leases() {
    let db = TestDb::new().await;
    let sink = Sink::start(Script::sequence([
        Answer::ok().pause_before_head(Duration::from_millis(1500)),
        Answer::ok(),
    ]))
    .await;
    let mut stack = Stack::builder(&db.url())
        .set("HOOK_WORKER_SLOTS", SLOTS)
        .set("HOOK_ATTEMPT_TIMEOUT", "3s")
        .set("HOOK_LEASE", "8s")
        .start()
        .await;
    let pool = db.pool().await;
    let ids = enqueue(&stack, &sink, 0).await;
    sink.wait_requests(HELD, LIMIT).await;
    let frozen = stack.workers.remove(0);
    frozen.signal(Signal::Stop);
    let stopped = Instant::now();
    stack.start_worker().await;
    wait_for(LIMIT, async || leased(&pool).await, |left| *left == 0).await;
    let counts = wait_drained(&pool).await;
    assert_eq!((counts["completed"], counts["ended"]), (16, 0));
    for id in &ids {
        let requests = sink.requests_for(id);
        assert_eq!(requests.len(), 2);
        let after = requests[1].head_read.duration_since(stopped);
        assert!(
            after > Duration::from_secs(5),
            "{after:?}: the lease was not over"
        );
    }
    frozen.signal(Signal::Continue);
    let lost = async || {
        let metrics = stack.metrics_of(&frozen).await;
        metrics.sum("hook_worker_leases_lost_total", &[])
    };
    wait_for(LIMIT, lost, |lost| *lost == 16.0).await;
    for id in &ids {
        assert_ended(&stack.job(id).await, "completed", 2, None);
    }
}
