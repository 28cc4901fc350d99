//! Putting many finished jobs back.

use serde_json::json;

use super::kit::{Api, URL};

#[tokio::test]
async fn failed_jobs_go_back_into_the_degraded_queue_at_a_rate() {
    let api = Api::start().await;
    let mut of = Vec::new();
    for n in 0..12 {
        let host = if n < 9 { "a.example" } else { "b.example" };
        let id = api
            .enqueue(&format!(r#"{{"url":"https://{host}/"}}"#))
            .await;
        api.finish(&id, if n == 0 { 2 } else { 3 }).await;
        of.push(id);
    }
    let body = json!({"status": "failed", "target": "a.example", "limit": 5}).to_string();
    let answer = api.post("/v1/jobs/replay", &body).await;
    assert_eq!(
        answer.json,
        json!({"replayed": 5, "more": true}),
        "{answer:?}"
    );
    let body = json!({"status": "failed", "target": "a.example"}).to_string();
    let answer = api.post("/v1/jobs/replay", &body).await;
    assert_eq!(
        answer.json,
        json!({"replayed": 3, "more": false}),
        "{answer:?}"
    );
    let rows: Vec<(String, i16, i32, i16)> = sqlx::query_as(
        "SELECT job_id::text, tier, attempt, bucket FROM hook.ready ORDER BY run_at",
    )
    .fetch_all(&api.pool)
    .await
    .unwrap();
    assert_eq!(rows.len(), 8);
    assert!(
        rows.iter()
            .all(|(_, tier, attempt, bucket)| (*tier, *attempt, *bucket) == (1, 0, -1))
    );
    let spread_ms: f64 = sqlx::query_scalar(
        "SELECT extract(epoch FROM max(run_at) - min(run_at))::float8 * 1000 FROM hook.ready",
    )
    .fetch_one(&api.pool)
    .await
    .unwrap();
    assert!(spread_ms >= 30.0, "{spread_ms}");
    let job = api.get(&format!("/v1/jobs/{}", of[1])).await.json;
    assert_eq!(
        (&job["status"], &job["queue"]),
        (&json!("available"), &json!("degraded"))
    );
    assert_eq!(job["attempts"].as_array().unwrap().len(), 1);
    // Nothing was lost on the way.
    assert_eq!(api.rows().await, 12);
}

#[tokio::test]
async fn completed_and_cancelled_jobs_can_be_replayed_too() {
    let api = Api::start().await;
    let done = api.enqueue(&format!(r#"{{"url":"{URL}"}}"#)).await;
    api.finish(&done, 2).await;
    let stopped = api.enqueue(&format!(r#"{{"url":"{URL}"}}"#)).await;
    api.send("POST", &format!("/v1/jobs/{stopped}/cancel"), &[], b"")
        .await;
    for status in ["completed", "cancelled"] {
        let answer = api
            .post("/v1/jobs/replay", &json!({"status": status}).to_string())
            .await;
        assert_eq!(answer.json["replayed"], 1, "{answer:?}");
    }
    let answer = api.post("/v1/jobs/replay", "{}").await;
    assert_eq!(answer.json, json!({"replayed": 0, "more": false}));
}

#[tokio::test]
async fn a_replay_refuses_what_it_does_not_understand() {
    let api = Api::start().await;
    for (body, pointer) in [
        (json!({"status": "running"}), "/status"),
        (json!({"limit": 0}), "/limit"),
        (json!({"limit": "5"}), "/limit"),
        (json!({"from": "x"}), "/from"),
        (json!({"target": ""}), "/target"),
    ] {
        let answer = api.post("/v1/jobs/replay", &body.to_string()).await;
        answer.assert_problem(422, "field_invalid");
        answer.assert_names(pointer);
    }
    api.post("/v1/jobs/replay", r#"{"oops":1}"#)
        .await
        .assert_problem(422, "unknown_field");
    api.post("/v1/jobs/replay", r#"{"limit":1,"limit":2}"#)
        .await
        .assert_problem(400, "json_invalid");
    api.post("/v1/jobs/replay", "[]")
        .await
        .assert_problem(400, "json_invalid");
}

#[tokio::test]
async fn jobs_whose_time_to_live_is_over_are_left_out() {
    let api = Api::start().await;
    let past = r#""scheduled_at":"2019-01-01T00:00:00Z","expires_at":"2020-01-01T00:00:00Z""#;
    let over = format!(r#"{{"url":"{URL}",{past}}}"#);
    let open = format!(r#"{{"url":"{URL}","ttl_ms":3600000}}"#);
    for job in [&over, &open, &over] {
        let id = api.enqueue(job).await;
        api.finish(&id, 3).await;
    }
    let answer = api.post("/v1/jobs/replay", r#"{"status":"failed"}"#).await;
    assert_eq!(
        answer.json,
        json!({"replayed": 1, "more": false}),
        "{answer:?}"
    );
    let left = api.get("/v1/jobs?status=failed").await;
    assert_eq!(left.json["jobs"].as_array().unwrap().len(), 2);
}
