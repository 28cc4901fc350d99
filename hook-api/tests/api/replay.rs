//! Asking for many finished jobs to be put back. How they are is tested with the janitor.

use std::time::Duration;

use hook_testkit::wait::wait_for;
use serde_json::{Value, json};

use super::kit::{Api, URL};

const ROUTE: &str = "/v1/jobs/replay";

/// Has so many failed jobs of the usual URL's target: enough that a slow replay goes on for longer
/// than any test.
async fn fail_jobs(api: &Api, jobs: usize) {
    let jobs = vec![json!({"url": URL}); jobs];
    let stored = api
        .post("/v1/jobs/batch", &json!({ "jobs": jobs }).to_string())
        .await;
    for job in stored.json["jobs"].as_array().unwrap() {
        api.finish(job["id"].as_str().unwrap(), 3).await;
    }
}

/// What is shown of a replay but for how far it has come.
fn asked_for(shown: &Value) -> Value {
    let mut shown = shown.clone();
    for name in ["state", "total", "done", "finished_at"] {
        assert!(
            shown.as_object_mut().unwrap().remove(name).is_some(),
            "{name}"
        );
    }
    shown
}

async fn start(api: &Api, body: &Value) -> Value {
    let answer = api.post(ROUTE, &body.to_string()).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    answer.json
}

#[tokio::test]
async fn the_api_alone_puts_jobs_back() {
    let api = Api::start().await;
    fail_jobs(&api, 3).await;
    let replay = start(&api, &json!({"limit": 2})).await;
    let path = format!("/v1/replays/{}", replay["id"].as_str().unwrap());
    let ended = wait_for(
        Duration::from_secs(30),
        async || api.get(&path).await.json,
        |replay| !replay["finished_at"].is_null(),
    )
    .await;
    assert_eq!(
        (&ended["state"], &ended["total"], &ended["done"]),
        (&json!("completed"), &json!(2), &json!(2))
    );
    let waiting: i64 = sqlx::query_scalar("SELECT count(*) FROM hook.ready")
        .fetch_one(&api.pool)
        .await
        .unwrap();
    assert_eq!(waiting, 2);
}

#[tokio::test]
async fn a_replay_is_a_row_that_can_be_looked_at_and_stopped() {
    let api = Api::start().await;
    fail_jobs(&api, 20).await;
    let asked = json!({"status": "cancelled", "target": "a.example", "queue": "degraded",
        "error_kind": "timeout", "from": "2026-01-31T12:00:00Z", "limit": 5, "rate_per_second": 7});
    let replay = start(&api, &asked).await;
    for (name, value) in asked.as_object().unwrap() {
        let shown = replay[name]
            .as_str()
            .map(|text| text.replace(".000000Z", "Z"));
        assert_eq!(
            &shown.map_or(replay[name].clone(), Value::from),
            value,
            "{replay}"
        );
    }
    let slow = start(&api, &json!({"rate_per_second": 1})).await;
    assert_eq!(
        (&slow["status"], &slow["limit"]),
        (&json!("failed"), &json!(1000))
    );

    let path_of = |replay: &Value| format!("/v1/replays/{}", replay["id"].as_str().unwrap());
    let shown = api.get(&path_of(&replay)).await.json;
    assert_eq!(asked_for(&shown), asked_for(&replay));
    let first_page = api.get("/v1/replays?limit=1").await.json;
    assert_eq!(asked_for(&first_page["replays"][0]), asked_for(&slow));
    let cursor = first_page["next_cursor"].as_str().unwrap();
    let page = api
        .get(&format!("/v1/replays?limit=1&cursor={cursor}"))
        .await;
    assert_eq!(asked_for(&page.json["replays"][0]), asked_for(&replay));
    assert_eq!(page.json["next_cursor"], Value::Null);

    let cancel = format!("{}/cancel", path_of(&slow));
    let stopped = api.send("POST", &cancel, &[], b"").await;
    assert_eq!(
        (stopped.status, &stopped.json["state"]),
        (200, &json!("cancelled"))
    );
    api.send("POST", &cancel, &[], b"")
        .await
        .assert_problem(409, "state_conflict");
    for path in [
        "/v1/replays/none",
        "/v1/replays/018bcfe5-687b-7fff-bfff-ffffffffffff",
    ] {
        api.get(path).await.assert_problem(404, "not_found");
    }
}

#[tokio::test]
async fn the_same_key_and_request_is_the_same_replay() {
    let api = Api::start().await;
    let json_type = ("content-type", "application/json");
    let asked = json!({"target": "a.example", "from": "2026-01-31T12:00:00.123456Z"}).to_string();
    let headers = [json_type, ("idempotency-key", "k")];
    let first = api.send("POST", ROUTE, &headers, asked.as_bytes()).await;
    let again = api.send("POST", ROUTE, &headers, asked.as_bytes()).await;
    assert_eq!((first.status, again.status), (202, 200), "{again:?}");
    assert_eq!(asked_for(&first.json), asked_for(&again.json));
    // In the body it is the same key; the defaults written out are the same request.
    let in_body = json!({"target": "a.example", "from": "2026-01-31T13:00:00.123456+01:00",
        "status": "failed", "limit": 1000, "idempotency_key": "k"});
    let again = api.post(ROUTE, &in_body.to_string()).await;
    assert_eq!(
        (again.status, asked_for(&again.json)),
        (200, asked_for(&first.json))
    );
    let other = json!({"target": "b.example", "idempotency_key": "k"}).to_string();
    api.post(ROUTE, &other)
        .await
        .assert_problem(409, "idempotency_key_reused");
    let answer = api
        .send("POST", ROUTE, &headers, br#"{"idempotency_key":"l"}"#)
        .await;
    answer.assert_names("/idempotency_key");
    assert_eq!(
        api.get("/v1/replays").await.json["replays"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn no_more_than_twenty_are_under_way() {
    let api = Api::start().await;
    // Each of them puts one job back in a second.
    fail_jobs(&api, 300).await;
    let slow = json!({"rate_per_second": 1});
    let mut last = Value::Null;
    for _ in 0..20 {
        last = start(&api, &slow).await;
    }
    api.post(ROUTE, "{}")
        .await
        .assert_problem(409, "state_conflict");
    let id = last["id"].as_str().unwrap();
    api.send("POST", &format!("/v1/replays/{id}/cancel"), &[], b"")
        .await;
    start(&api, &slow).await;
}

#[tokio::test]
async fn a_replay_refuses_what_it_does_not_understand() {
    let api = Api::start().await;
    for (body, pointer) in [
        (json!({"status": "running"}), "/status"),
        (json!({"limit": 0}), "/limit"),
        (json!({"limit": "5"}), "/limit"),
        (json!({"rate_per_second": 1001}), "/rate_per_second"),
        (json!({"rate_per_second": 0.5}), "/rate_per_second"),
        (json!({"from": "x"}), "/from"),
        (json!({"target": ""}), "/target"),
        (json!({"idempotency_key": ""}), "/idempotency_key"),
        (json!({"idempotency_key": "a\nb"}), "/idempotency_key"),
    ] {
        let answer = api.post(ROUTE, &body.to_string()).await;
        answer.assert_problem(422, "field_invalid");
        answer.assert_names(pointer);
    }
    api.post(ROUTE, r#"{"oops":1}"#)
        .await
        .assert_problem(422, "unknown_field");
    api.post(ROUTE, r#"{"limit":1,"limit":2}"#)
        .await
        .assert_problem(400, "json_invalid");
    api.post(ROUTE, "[]")
        .await
        .assert_problem(400, "json_invalid");
    assert_eq!(api.get("/v1/replays").await.json["replays"], json!([]));
}
