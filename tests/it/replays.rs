//! A replay outlives everybody who works on it.

use std::{collections::BTreeMap, time::Duration};

use hook_testkit::{
    db::TestDb,
    process::{Program, Signal},
    sink::{Sink, answer::Answer},
    stack::Stack,
    wait::{pause, wait_for},
};
use serde_json::json;

use crate::kit::LIMIT;

const JOBS: usize = 150;
const KILLS: usize = 3;

/// Janitors and the API are killed in the middle of it, again and again: every job is delivered by
/// its second attempt, none has a third.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_janitors_and_apis_lose_and_double_nothing_of_a_replay() {
    let db = TestDb::new().await;
    let sink = Sink::start(Answer::status(400)).await;
    let mut stack = Stack::builder(&db.url())
        .set("HOOK_JANITOR_INTERVAL", "100ms")
        .start()
        .await;
    let job = json!({"url": sink.url("/"), "target": "sick.example"});
    let jobs = vec![job; JOBS];
    let stored = stack.post("/v1/jobs/batch", &json!({ "jobs": jobs })).await;
    assert_eq!(stored.status, 202, "{}", stored.text());
    let failed = "/v1/jobs?status=failed&limit=500";
    wait_for(
        LIMIT,
        async || stack.get(failed).await.json(),
        |page| {
            page["jobs"]
                .as_array()
                .is_some_and(|jobs| jobs.len() == JOBS)
        },
    )
    .await;
    sink.set_script(Answer::ok());

    let asked = json!({"target": "sick.example", "rate_per_second": 100, "idempotency_key": "k"});
    let started = stack.post("/v1/jobs/replay", &asked).await;
    assert_eq!(started.status, 202, "{}", started.text());
    let path = format!("/v1/replays/{}", started.id());
    for _ in 0..KILLS {
        pause(Duration::from_millis(150)).await;
        stack.api.signal(Signal::Kill);
        stack.restart_api().await;
        let janitor = stack.spawn(Program::Janitor).await;
        let mut old = stack.janitor.replace(janitor).expect("there is one");
        old.signal(Signal::Kill);
        old.wait_exit(LIMIT).await;
        // Asking again after a lost answer is no second replay.
        let again = stack.post("/v1/jobs/replay", &asked).await;
        assert_eq!((again.status, again.id()), (200, started.id()));
    }
    let ended = wait_for(
        LIMIT,
        async || stack.get(&path).await.json(),
        |replay| !replay["finished_at"].is_null(),
    )
    .await;
    assert_eq!(
        (&ended["state"], &ended["total"], &ended["done"]),
        (&json!("completed"), &json!(JOBS), &json!(JOBS))
    );
    wait_for(
        LIMIT,
        async || {
            stack
                .get("/v1/jobs?status=completed&limit=500")
                .await
                .json()
        },
        |page| {
            page["jobs"]
                .as_array()
                .is_some_and(|jobs| jobs.len() == JOBS)
        },
    )
    .await;
    let mut attempts: BTreeMap<String, usize> = BTreeMap::new();
    for request in sink.requests() {
        let id = request.header("webhook-id").expect("each has an id");
        *attempts.entry(id.to_owned()).or_default() += 1;
    }
    assert_eq!(attempts.len(), JOBS);
    assert!(
        attempts.values().all(|attempts| *attempts == 2),
        "{attempts:?}"
    );
}
