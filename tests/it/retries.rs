//! What a receiver's answers lead to, seen from outside: queues, gaps, ends, and separate workers.

use hook_testkit::{
    db::TestDb,
    process::Program,
    sink::{Sink, answer::Answer, script::Script},
    stack::Stack,
};
use serde_json::json;

use crate::kit::{LIMIT, attempts};

/// Gaps between the requests of a job, in milliseconds.
fn gaps_ms(sink: &Sink, id: &str) -> Vec<u128> {
    let requests = sink.requests_for(id);
    requests
        .windows(2)
        .map(|pair| (pair[1].head_read - pair[0].head_read).as_millis())
        .collect()
}

#[tokio::test]
async fn a_target_that_fails_twice_gets_retries_by_the_schedule_in_the_degraded_queue() {
    let db = TestDb::new().await;
    let script = Script::sequence([Answer::status(503), Answer::status(503), Answer::ok()]);
    let sink = Sink::start(script).await;
    let stack = Stack::builder(&db.url()).start().await;
    let reply = stack
        .enqueue(&json!({"url": sink.url("/x"), "payload": 1}))
        .await;
    assert_eq!(reply.json()["queue"], "primary");
    let job = stack.wait_final(&reply.id(), LIMIT).await;
    assert_eq!(
        (&job["status"], &job["attempt"], &job["queue"]),
        (&json!("completed"), &json!(3), &json!("degraded"))
    );
    let statuses: Vec<_> = attempts(&job)
        .iter()
        .map(|attempt| attempt["response_status"].clone())
        .collect();
    assert_eq!(statuses, [503, 503, 200]);
    let metrics = stack.metrics(Program::Worker).await;
    let of_queue = |queue| metrics.sum("hook_worker_attempts_total", &[("queue", queue)]);
    assert_eq!((of_queue("primary"), of_queue("degraded")), (1.0, 2.0));
    // 1 s and 2 s, each ± 20 %, and up to a poll and a busy machine late.
    let gaps = gaps_ms(&sink, &reply.id());
    assert!(
        (800..2200).contains(&gaps[0]) && (1600..3400).contains(&gaps[1]),
        "{gaps:?}"
    );
}

#[tokio::test]
async fn what_fails_for_good_ends_failed_after_as_many_attempts_as_it_should() {
    let db = TestDb::new().await;
    let (always, gone) = (Sink::start(500).await, Sink::start(404).await);
    let stack = Stack::builder(&db.url()).start().await;
    let hopeful = stack.enqueue_to(&always.url("/x")).await;
    let hopeless = stack.enqueue_to(&gone.url("/x")).await;
    let job = stack.wait_final(&hopeless, LIMIT).await;
    assert_eq!(
        (&job["status"], &job["attempt"]),
        (&json!("failed"), &json!(1))
    );
    assert_eq!(attempts(&job)[0]["outcome"], "permanent");
    let job = stack.wait_final(&hopeful, LIMIT).await;
    assert_eq!(
        (&job["status"], &job["attempt"]),
        (&json!("failed"), &json!(3))
    );
    assert_eq!((always.request_count(), gone.request_count()), (3, 1));
}

#[tokio::test]
async fn each_queue_may_have_workers_of_its_own() {
    let db = TestDb::new().await;
    let sink = Sink::start(Script::sequence([Answer::status(503), Answer::ok()])).await;
    let mut stack = Stack::builder(&db.url())
        .set("HOOK_WORKER_QUEUES", "primary")
        .start()
        .await;
    let degraded = stack
        .process(Program::Worker)
        .await
        .set("HOOK_WORKER_QUEUES", "degraded")
        .set("HOOK_WORKER_NAME", "of-the-degraded-queue")
        .start();
    degraded.wait_ready(LIMIT).await;
    let id = stack.enqueue_to(&sink.url("/x")).await;
    let job = stack.wait_final(&id, LIMIT).await;
    assert_eq!(job["status"], "completed");
    assert_ne!(attempts(&job)[0]["worker"], "of-the-degraded-queue");
    assert_eq!(attempts(&job)[1]["worker"], "of-the-degraded-queue");
    assert!(stack.all_run());
}
