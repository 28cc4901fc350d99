//! Targets that are held: because they asked for it, or because they are down.

use std::time::Duration;

use hook_testkit::{
    db::TestDb,
    sink::{Sink, answer::Answer, record::in_flight_peak},
    stack::Stack,
    wait::{pause, stays, wait_for},
};
use serde_json::json;
use tokio::time::Instant;

use crate::kit::{LIMIT, enqueue_many, target, wait_drained, wait_state};

#[tokio::test]
async fn a_target_that_is_down_is_probed_by_one_worker_at_a_time_and_released_by_a_success() {
    let db = TestDb::new().await;
    let failing = Answer::status(500).pause_before_head(Duration::from_millis(100));
    let sink = Sink::start(failing).await;
    let mut stack = Stack::builder(&db.url())
        .workers(3)
        .set("HOOK_HOLD_FAILURES", 5)
        .set("HOOK_HOLD_AFTER", "500ms")
        .set("HOOK_PROBE_INTERVAL_MIN", "400ms")
        .set("HOOK_PROBE_INTERVAL_MAX", "2s")
        .set("HOOK_MAX_ATTEMPTS", 100)
        .set("HOOK_RETRY_SCHEDULE", "100ms")
        .start()
        .await;
    let jobs: Vec<_> = (0..100)
        .map(|n| json!({"url": sink.url(&format!("/{n}")), "target": "down.test"}))
        .collect();
    enqueue_many(&stack, &jobs).await;
    wait_state(&stack, "down.test", "held").await;
    // What ran when it was held, in workers that had not heard of it yet, comes to its end.
    pause(Duration::from_millis(1500)).await;
    let before = sink.request_count();
    // A worker that starts cold knows of the hold.
    stack.workers[0].terminate(LIMIT).await;
    stack.workers.remove(0);
    stack.start_worker().await;
    let probes = sink
        .wait_requests(before + 3, LIMIT)
        .await
        .split_off(before);
    assert_eq!(in_flight_peak(&probes), 1);
    let gaps: Vec<Duration> = probes
        .windows(2)
        .map(|pair| pair[1].started - pair[0].started)
        .collect();
    assert!(
        gaps.iter().all(|gap| *gap >= Duration::from_millis(700)),
        "{gaps:?}"
    );
    let tried: i64 = sqlx::query_scalar("SELECT max(attempt)::bigint FROM hook.ready")
        .fetch_one(&db.pool().await)
        .await
        .expect("attempts can be read");
    assert!(tried < 30, "attempts are not used up: {tried}");

    sink.set_script(200);
    let healed = Instant::now();
    let count = sink.request_count();
    sink.wait_requests(count + 1, LIMIT).await;
    // The longest interval, the wait for the next look, and a busy machine.
    assert!(healed.elapsed() < Duration::from_secs(5));
    let counts = wait_drained(&db.pool().await).await;
    assert_eq!((counts["completed"], counts["ended"]), (100, 0));
    let free = |state: &serde_json::Value| state["state"] != "held";
    let down = async || target(&stack, "down.test").await;
    wait_for(LIMIT, down, free).await;
    let (mut failed, mut answered) = (0.0, 0.0);
    for worker in &stack.workers {
        let metrics = stack.metrics_of(worker).await;
        let of = |result| metrics.sum("hook_worker_probes_total", &[("result", result)]);
        failed += of("failed");
        answered += of("answered");
    }
    assert_eq!(answered, 1.0, "one success releases it");
    assert!(failed >= 3.0, "{failed} probes failed");
}

#[tokio::test]
async fn retry_after_holds_the_whole_target_in_every_worker() {
    let db = TestDb::new().await;
    let busy = Answer::status(429).header("retry-after", "4");
    let sink = Sink::start(busy).await;
    let stack = Stack::builder(&db.url()).workers(2).start().await;
    let job = |n: usize| json!({"url": sink.url(&format!("/{n}")), "target": "busy.test"});
    stack.enqueue_id(&job(0)).await;
    let asked = sink.wait_requests(1, LIMIT).await[0].head_read;
    wait_state(&stack, "busy.test", "held").await;
    // The other worker reads about every second.
    pause(Duration::from_millis(1500)).await;
    let before = sink.request_count();
    sink.set_script(200);
    enqueue_many(&stack, &(1..50).map(job).collect::<Vec<_>>()).await;
    let until = asked + Duration::from_millis(3800);
    stays(
        until.saturating_duration_since(Instant::now()),
        async || sink.request_count(),
        |count| *count == before,
    )
    .await;
    let counts = wait_drained(&db.pool().await).await;
    assert_eq!(counts["completed"], 50);
}

#[tokio::test]
async fn a_person_ends_a_pause_that_the_target_asked_for() {
    let db = TestDb::new().await;
    let busy = Answer::status(503).header("retry-after", "36000");
    let sink = Sink::start(busy).await;
    let stack = Stack::builder(&db.url()).workers(2).start().await;
    let job = |n: usize| json!({"url": sink.url(&format!("/{n}")), "target": "busy.test"});
    stack.enqueue_id(&job(0)).await;
    sink.wait_requests(1, LIMIT).await;
    wait_state(&stack, "busy.test", "held").await;
    let state = target(&stack, "busy.test").await;
    assert!(state["asked_until"].is_string(), "{state}");
    // The other worker reads about every second; the one that was asked must not tell it again
    // afterwards.
    pause(Duration::from_millis(1500)).await;
    enqueue_many(&stack, &(1..=20).map(job).collect::<Vec<_>>()).await;
    pause(Duration::from_millis(500)).await;
    assert_eq!(sink.request_count(), 1);
    sink.set_script(200);
    let probe = "/v1/targets/busy.test/probe";
    let answer = stack.post(probe, &json!({})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["asked_until"], json!(null));
    sink.wait_requests(21, Duration::from_secs(5)).await;
    assert_ne!(target(&stack, "busy.test").await["state"], "held");
    let refused = stack.post(probe, &json!({})).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
}

#[tokio::test]
async fn a_pause_is_obeyed_by_all_workers_and_ends_at_once() {
    let db = TestDb::new().await;
    let sink = Sink::start(200).await;
    let stack = Stack::builder(&db.url()).workers(2).start().await;
    // However its host is given, it is the one target that jobs with this host have.
    let given = "/v1/targets/http%3A%2F%2FHELD.test%3A8080%2Fx";
    let reply = stack.post(&format!("{given}/pause"), &json!({})).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["target"], "held.test");
    assert_eq!(reply.json()["unused"], true);
    for route in ["pause", "resume"] {
        let route = format!("/v1/targets/no%20host/{route}");
        assert_eq!(stack.post(&route, &json!({})).await.status, 422);
    }
    pause(Duration::from_millis(1500)).await;
    let jobs: Vec<_> = (0..20)
        .map(|_| json!({"url": sink.url("/x"), "target": "held.test"}))
        .collect();
    enqueue_many(&stack, &jobs).await;
    stays(
        Duration::from_secs(1),
        async || sink.request_count(),
        |count| *count == 0,
    )
    .await;
    let reply = stack.post(&format!("{given}/resume"), &json!({})).await;
    assert_eq!(reply.json()["unused"], false);
    wait_for(
        Duration::from_secs(4),
        async || sink.request_count(),
        |count| *count == 20,
    )
    .await;
}

#[tokio::test]
async fn a_person_lets_the_next_probe_go_out_now() {
    let db = TestDb::new().await;
    let sink = Sink::start(500).await;
    let stack = Stack::builder(&db.url())
        .set("HOOK_HOLD_FAILURES", 5)
        .set("HOOK_HOLD_AFTER", "200ms")
        .set("HOOK_PROBE_INTERVAL_MIN", "30m")
        .set("HOOK_PROBE_INTERVAL_MAX", "30m")
        .set("HOOK_MAX_ATTEMPTS", 100)
        .set("HOOK_RETRY_SCHEDULE", "100ms")
        .start()
        .await;
    let jobs: Vec<_> = (0..20)
        .map(|_| json!({"url": sink.url("/"), "target": "down.test"}))
        .collect();
    enqueue_many(&stack, &jobs).await;
    wait_state(&stack, "down.test", "held").await;
    let quiet = async || target(&stack, "down.test").await;
    wait_for(LIMIT, quiet, |state| state["running"] == 0).await;
    let next_probe = |state: &serde_json::Value| state["next_probe_at"].as_str().map(str::to_owned);
    let first = next_probe(&quiet().await);
    // It fails once more: that is one attempt, and the next probe is far away again, which the worker says
    // about a second later.
    let count = sink.request_count();
    let probe = "/v1/targets/down.test/probe";
    let answer = stack.post(probe, &json!({})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    sink.wait_requests(count + 1, LIMIT).await;
    wait_for(LIMIT, quiet, |state| next_probe(state) > first).await;
    assert_eq!(sink.request_count(), count + 1);
    // It is back: the probe releases it.
    sink.set_script(200);
    let answer = stack.post(probe, &json!({})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let counts = wait_drained(&db.pool().await).await;
    assert_eq!((counts["completed"], counts["ended"]), (20, 0));
    wait_for(LIMIT, quiet, |state| state["state"] != "held").await;
    let refused = stack.post(probe, &json!({})).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
}
