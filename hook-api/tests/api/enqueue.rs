//! One job over HTTP: what is stored, and what the answer says.

use std::time::Duration;

use serde_json::{Value, json};

use super::kit::{Api, URL};

#[tokio::test]
async fn a_job_is_stored_before_its_answer() {
    let api = Api::start().await;
    let body = format!(
        r#"{{"url":"{URL}","payload":{{"type":"invoice.paid","id":12345678901234567890}}}}"#
    );
    let answer = api.post("/v1/jobs", &body).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let id = answer.json["id"].as_str().unwrap();
    assert_eq!(
        answer.json,
        json!({"id": id, "queue": "primary", "target": "example.com", "duplicate": false})
    );
    assert!(id.len() <= 64 && !id.contains('.'));
    let (url, target, payload): (String, String, Vec<u8>) =
        sqlx::query_as("SELECT url, target, body FROM hook.job WHERE job_id = $1::uuid")
            .bind(id)
            .fetch_one(&api.pool)
            .await
            .unwrap();
    assert_eq!((url.as_str(), target.as_str()), (URL, "example.com"));
    assert_eq!(
        payload,
        br#"{"type":"invoice.paid","id":12345678901234567890}"#
    );
}

#[tokio::test]
async fn ids_sort_by_time() {
    let api = Api::start().await;
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(api.enqueue(&format!(r#"{{"url":"{URL}"}}"#)).await);
    }
    assert!(ids.is_sorted(), "{ids:?}");
}

#[tokio::test]
async fn every_field_arrives() {
    let api = Api::start().await;
    let body = json!({
        "url": "https://user:pass@Example.COM./a?b#c", "body": "héllo", "method": "put",
        "headers": {"X-One": "1", "content-type": "text/plain"}, "metadata": {"order": 7},
        "target": "crm", "delay_ms": 60_000, "ttl_ms": 120_000, "max_attempts": 5, "timeout_ms": 2500
    });
    let answer = api.post("/v1/jobs", &body.to_string()).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!(answer.json["target"], "crm");
    let id = answer.json["id"].as_str().unwrap();
    let job = api.get(&format!("/v1/jobs/{id}?body=true")).await.json;
    assert_eq!(job["url"], "https://example.com/a?b");
    assert_eq!(job["method"], "PUT");
    assert_eq!(job["body"], "héllo");
    assert_eq!(job["metadata"], json!({"order": 7}));
    assert_eq!(job["max_attempts"], 5);
    assert_eq!(job["headers"]["X-One"], "1");
    assert_eq!(job["headers"]["authorization"], "Basic dXNlcjpwYXNz");
    assert_eq!(job["status"], "available");
    assert_eq!(job["attempt"], 0);
    assert_eq!(job["attempts"], json!([]));
    assert_eq!(job["error_kind"], Value::Null);
    let hidden = api.get(&format!("/v1/jobs/{id}")).await;
    let text = String::from_utf8(hidden.body).unwrap();
    for secret in ["dXNlcjpwYXNz", "/a?b", "héllo", "pass"] {
        assert!(!text.contains(secret), "{secret} is shown in {text}");
    }
    assert_eq!(hidden.json["headers"]["authorization"], "***");
    assert_eq!(hidden.json["headers"]["X-One"], "1");
    assert!(
        hidden.json["url"]
            .as_str()
            .unwrap()
            .starts_with("https://example.com/")
    );
}

/// The contract wins over the case: the form of a bad time is answered 422.
#[tokio::test]
async fn api_04_times_at_the_edges() {
    let api = Api::start().await;
    for (time, status) in [
        ("9999-12-31T23:59:59Z", 202),
        ("2020-01-01T00:00:00Z", 202),
        ("+10000-01-01T00:00:00Z", 422),
        ("+294277-01-01T00:00:00Z", 422),
        ("infinity", 422),
        ("2026-02-30T00:00:00Z", 422),
    ] {
        let body = json!({"url": URL, "scheduled_at": time});
        let answer = api.post("/v1/jobs", &body.to_string()).await;
        assert_eq!(answer.status, status, "{time}: {answer:?}");
    }
    let beyond: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM hook.ready WHERE run_at > '9999-12-31T23:59:59.999999Z'",
    )
    .fetch_one(&api.pool)
    .await
    .unwrap();
    assert_eq!(beyond, 0);
    // Delays beyond all time are refused or capped, never a fault of ours.
    for delay in ["999999999999999999", "315360000000000"] {
        let body = format!(r#"{{"url":"{URL}","delay_ms":{delay}}}"#);
        let answer = api.post("/v1/jobs", &body).await;
        assert!(matches!(answer.status, 202 | 422), "{answer:?}");
        let body = format!(r#"{{"url":"{URL}","ttl_ms":{delay}}}"#);
        let answer = api.post("/v1/jobs", &body).await;
        assert!(matches!(answer.status, 202 | 422), "{answer:?}");
    }
}

#[tokio::test]
async fn the_older_shape_is_taken() {
    let api = Api::start().await;
    let body = json!({
        "parameters": {"url": URL, "method": "POST", "headers": {"content-type": "application/json"}, "body": "{\"a\":1}"},
        "metadata": {"team_id": 2}, "max_attempts": 3
    });
    let answer = api.post("/webhook", &body.to_string()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let id = answer.json["id"].as_str().unwrap();
    let job = api.get(&format!("/v1/jobs/{id}?body=true")).await.json;
    assert_eq!(job["body"], r#"{"a":1}"#);
    assert_eq!(job["metadata"], json!({"team_id": 2}));
    assert_eq!(job["max_attempts"], 3);
    let answer = api
        .post("/webhook", r#"{"parameters":{"url":"http://127.0.0.1/"}}"#)
        .await;
    answer.assert_problem(422, "target_forbidden");
    answer.assert_names("/parameters/url");
}

#[tokio::test]
async fn jobs_of_penalised_targets_go_into_the_degraded_queue() {
    let api = Api::with(&[("HOOK_PENALTY_REFRESH", "100ms")]).await;
    api.enqueue(r#"{"url":"https://bad.example/"}"#).await;
    sqlx::query(
        "UPDATE hook.target SET penalty_pin = 3, changed_at = now() WHERE name = 'bad.example'",
    )
    .execute(&api.pool)
    .await
    .unwrap();
    hook_testkit::wait::wait_for(
        Duration::from_secs(10),
        async || {
            api.post("/v1/jobs", r#"{"url":"https://bad.example/"}"#)
                .await
                .json["queue"]
                .clone()
        },
        |queue| queue == "degraded",
    )
    .await;
    let answer = api
        .post("/v1/jobs", r#"{"url":"https://good.example/"}"#)
        .await;
    assert_eq!(answer.json["queue"], "primary");
    let tiers: Vec<i16> = sqlx::query_scalar(
        "SELECT DISTINCT r.tier FROM hook.ready r JOIN hook.job j USING (job_id) WHERE j.target = 'bad.example' ORDER BY 1",
    )
    .fetch_all(&api.pool)
    .await
    .unwrap();
    assert_eq!(tiers, [0, 1]);
}

#[tokio::test]
async fn a_full_queue_is_answered_429() {
    let api = Api::with(&[("HOOK_QUEUE_DEPTH_MAX", "5")]).await;
    let body = format!(r#"{{"url":"{URL}"}}"#);
    let mut refused = None;
    for _ in 0..20 {
        let answer = api.post("/v1/jobs", &body).await;
        if answer.status != 202 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("the queue is never full");
    refused.assert_problem(429, "queue_full");
    assert!(refused.header("retry-after").is_some());
    assert!(api.rows().await <= 5);
    let batch = format!(r#"{{"jobs":[{}]}}"#, [body.as_str(); 6].join(","));
    api.post("/v1/jobs/batch", &batch)
        .await
        .assert_problem(429, "queue_full");
    sqlx::query("DELETE FROM hook.ready")
        .execute(&api.pool)
        .await
        .unwrap();
    hook_testkit::wait::wait_for(
        Duration::from_secs(10),
        async || api.post("/v1/jobs", &body).await.status,
        |status| *status == 202,
    )
    .await;
}

#[tokio::test]
async fn workers_are_notified_of_new_jobs() {
    let api = Api::start().await;
    let mut listener = sqlx::postgres::PgListener::connect(&api.db.url())
        .await
        .unwrap();
    listener.listen("hook_ready").await.unwrap();
    api.enqueue(r#"{"url":"https://example.com/"}"#).await;
    let heard = tokio::time::timeout(Duration::from_secs(5), listener.recv()).await;
    assert_eq!(heard.unwrap().unwrap().payload(), "-6667114193848649307");
}
