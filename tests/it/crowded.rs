//! More processes than Postgres has connections for.

use std::time::Duration;

use hook_testkit::{
    db::TestDb,
    process::{Listener, Process, Program},
    proxy::Proxy,
    sink::Sink,
    stack::Stack,
    wait::{pause, wait_for},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::kit::{CREATE_ROLE, LIMIT, amount, enqueue_many, grant, wait_drained, with_role};

/// An API and two workers with two connections each, a connection of each worker to listen, and one
/// of a janitor.
const CONNECTIONS: i64 = 2 + 2 * 3 + 1;

/// What `/readyz` says.
async fn readyz(stack: &Stack, process: &Process) -> (u16, String) {
    let ops = process.address(Listener::Ops, LIMIT).await;
    let url = format!("http://{ops}/readyz");
    let reply = stack.send(stack.client().get(url)).await;
    (reply.status, reply.text())
}

/// PG-11: processes that find no connection left stay up, say so seldom, ask seldom, and are ready
/// soon after there is room. Those that work notice nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_11_processes_without_a_connection_wait_and_disturb_nobody() {
    // Three are kept for superusers, and this test has one of its own.
    let most = (CONNECTIONS + 3 + 1).to_string();
    let db = TestDb::durable_with(&[("max_connections", &most)]).await;
    let pool = db.pool().await;
    grant(&pool, "crowd", CREATE_ROLE).await;
    let url = with_role(&db.url(), "crowd");
    let sink = Sink::start(200).await;
    let mut stack = Stack::builder(&url)
        .set("HOOK_DB_POOL_MAX", 2)
        .set_for(Program::Janitor, "HOOK_DB_POOL_MAX", 1)
        .workers(2)
        .start()
        .await;
    let job = |n| json!({"url": sink.url("/c"), "target": format!("t{}.test", n % 20)});
    let jobs: Vec<Value> = (0..50).map(job).collect();
    let all_taken = async || -> i64 {
        enqueue_many(&stack, &jobs).await;
        sqlx::query_scalar("SELECT count(*) FROM pg_stat_activity WHERE usename = 'crowd'")
            .fetch_one(&pool)
            .await
            .expect("sessions can be counted")
    };
    wait_for(LIMIT, all_taken, |taken| *taken == CONNECTIONS).await;
    wait_drained(&pool).await;
    let faults = async |stack: &Stack| {
        let mut faults = 0.0;
        for process in stack.processes() {
            let metrics = stack.metrics_of(process).await;
            faults += metrics.sum("hook_db_faults_total", &[]);
        }
        faults
    };
    let before = faults(&stack).await;

    let proxy = Proxy::before(&url);
    let mut surplus = Vec::new();
    for _ in 0..2 {
        let process = stack.process(Program::Worker).await;
        surplus.push(process.set("DATABASE_URL", proxy.url(&url)).start());
    }
    let begun = Instant::now();
    for process in &surplus {
        let said = async || readyz(&stack, process).await;
        let full =
            |(status, text): &(u16, String)| *status == 503 && text.contains("no connection left");
        wait_for(LIMIT, said, full).await;
    }
    let sent = sink.request_count();
    let meanwhile = Duration::from_secs(if amount(0, 1) == 0 { 2 } else { 25 });
    while begun.elapsed() < meanwhile {
        enqueue_many(&stack, &jobs[..5]).await;
        pause(Duration::from_millis(100)).await;
    }
    wait_drained(&pool).await;
    assert!(sink.request_count() > sent, "the others work");
    assert_eq!(faults(&stack).await, before, "the others see no errors");
    let waited = usize::try_from(begun.elapsed().as_secs()).expect("it is short");
    // At most one try a second each.
    let tries = proxy.accepted();
    assert!(tries <= 2 * (waited + 2), "{tries} tries in {waited} s");
    for process in &mut surplus {
        assert_eq!(process.exit_status(), None, "it stays up");
        let lines = process.lines();
        let waits = lines
            .iter()
            .filter(|line| line.text.contains("waiting for Postgres"));
        let waits = waits.count();
        assert!(
            (1..=waited / 10 + 2).contains(&waits),
            "{waits} lines in {waited} s"
        );
    }

    for mut worker in std::mem::take(&mut stack.workers) {
        assert_eq!(worker.terminate(LIMIT).await.code(), Some(0));
    }
    let room = Instant::now();
    for process in &surplus {
        process.wait_ready(LIMIT).await;
    }
    let took = room.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
    println!("ready {took:?} after there was room, {tries} tries in {waited} s");
    enqueue_many(&stack, &jobs).await;
    let counts = wait_drained(&pool).await;
    assert_eq!(counts["ended"], 0);
    let completed = usize::try_from(counts["completed"]).expect("it is small");
    assert_eq!(sink.request_count(), completed, "nothing is sent twice");
}
