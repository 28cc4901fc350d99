//! Restarts in good order: nothing is lost, nothing is sent twice.

use std::time::Duration;

use hook_testkit::{
    db::TestDb,
    process::{Listener, Process, Program, Signal},
    sink::{Sink, answer::Answer},
    stack::Stack,
    wait::pause,
};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinSet, time::Instant};

use crate::kit::{LIMIT, amount, enqueue_many, wait_drained};

/// OPS-01: a worker that is told to stop ends what is in hand, begins nothing, and another one
/// does the rest. The contract's caps hold some slots back from targets that answer slowly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ops_01_a_stop_under_load_strands_and_repeats_nothing() {
    let db = TestDb::new().await;
    let sink = Sink::start(Answer::ok().pause_before_head(Duration::from_secs(1))).await;
    let mut stack = Stack::builder(&db.url())
        .set("HOOK_WORKER_SLOTS", 40)
        .start()
        .await;
    let pool = db.pool().await;
    let jobs: Vec<Value> = (0..150)
        .map(|n| json!({"url": sink.url("/s"), "target": format!("t{n}.test")}))
        .collect();
    enqueue_many(&stack, &jobs).await;
    sink.wait_requests(60, LIMIT).await;
    let mut stopped = stack.workers.remove(0);
    stopped.signal(Signal::Terminate);
    let told = Instant::now();
    let status = stopped.wait_exit(LIMIT).await;
    let took = told.elapsed();
    assert_eq!(status.code(), Some(0));
    // A second for what is in hand, the rest for a busy machine.
    assert!(took < Duration::from_secs(5), "{took:?}");
    let begun = sink.request_count();
    let settled: (i64, i64, i64) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM hook.lease), (SELECT count(*) FROM hook.finished),
            (SELECT count(*) FROM hook.ready WHERE attempt = 0)",
    )
    .fetch_one(&pool)
    .await
    .expect("jobs can be counted");
    let begun = i64::try_from(begun).expect("it is small");
    assert_eq!(settled, (0, begun, 150 - begun), "no attempt is used up");
    stack.start_worker().await;
    let counts = wait_drained(&pool).await;
    assert_eq!((counts["completed"], counts["ended"]), (150, 0));
    assert_eq!(sink.request_count(), 150, "nothing is sent twice");
}

/// A rolling restart of two APIs and three workers under load: each new process is ready before
/// the old one is told to stop. Draining answers 503 and a closed listener refuses; then the
/// producer asks the other API with the same key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_fails_no_enqueue_and_repeats_no_delivery() {
    let db = TestDb::new().await;
    let sink = Sink::start(Answer::ok().pause_before_head(Duration::from_millis(20))).await;
    let mut stack = Stack::builder(&db.url())
        .set("HOOK_WORKER_SLOTS", 32)
        .workers(3)
        .start()
        .await;
    let mut second = stack.spawn(Program::Api).await;
    let bases = watch::Sender::new(self::bases(&stack, &second).await);
    let over = watch::Sender::new(false);
    let mut producers = JoinSet::new();
    for n in 0..4 {
        let (bases, over) = (bases.subscribe(), over.subscribe());
        let (client, url) = (stack.client().clone(), sink.url("/r"));
        producers.spawn(produce(n, client, bases, over, url));
    }
    for _ in 0..amount(2, 50) {
        let new = stack.spawn(Program::Api).await;
        let mut old = std::mem::replace(&mut second, new);
        bases.send_replace(self::bases(&stack, &second).await);
        assert_eq!(old.terminate(LIMIT).await.code(), Some(0));
        let new = stack.spawn(Program::Api).await;
        let mut old = stack.replace_api(new).await;
        bases.send_replace(self::bases(&stack, &second).await);
        assert_eq!(old.terminate(LIMIT).await.code(), Some(0));
        for _ in 0..3 {
            stack.start_worker().await;
            let mut old = stack.workers.remove(0);
            assert_eq!(old.terminate(LIMIT).await.code(), Some(0));
        }
    }
    over.send_replace(true);
    let stored: usize = producers.join_all().await.into_iter().sum();
    let counts = wait_drained(&db.pool().await).await;
    let wanted = i64::try_from(stored).expect("it is small");
    assert_eq!((counts["completed"], counts["ended"]), (wanted, 0));
    assert_eq!(sink.request_count(), stored, "nothing is sent twice");
    println!("{stored} jobs");
}

/// Where the two APIs are.
async fn bases(stack: &Stack, second: &Process) -> Vec<String> {
    let second = second.address(Listener::Public, LIMIT).await;
    vec![stack.api_url(""), format!("http://{second}")]
}

/// Enqueues one job after the other until it is over, and gives their number.
async fn produce(
    producer: usize,
    client: reqwest::Client,
    bases: watch::Receiver<Vec<String>>,
    over: watch::Receiver<bool>,
    url: String,
) -> usize {
    let mut stored = 0;
    while !*over.borrow() {
        let job = json!({"url": url, "target": format!("t{}.test", stored % 40),
            "idempotency_key": format!("{producer}-{stored}")});
        for turn in producer.. {
            let to = format!("{}/v1/jobs", bases.borrow()[turn % 2]);
            match client.post(to).json(&job).send().await {
                Ok(reply) if reply.status().is_success() => break,
                Ok(reply) => assert_eq!(reply.status(), 503),
                Err(_) => pause(Duration::from_millis(10)).await,
            }
        }
        stored += 1;
        pause(Duration::from_millis(5)).await;
    }
    stored
}
