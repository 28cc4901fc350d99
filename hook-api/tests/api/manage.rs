//! Looking at jobs, stopping them and putting them back.

use serde_json::{Value, json};

use super::kit::{Api, URL};

const NOBODY: &str = "01900000-0000-7000-8000-000000000000";

fn job() -> String {
    format!(r#"{{"url":"{URL}"}}"#)
}

#[tokio::test]
async fn a_job_that_is_not_there() {
    let api = Api::start().await;
    for id in [NOBODY, "x", "../../etc", "0", "%00", &"a".repeat(500)] {
        api.get(&format!("/v1/jobs/{id}"))
            .await
            .assert_problem(404, "not_found");
    }
    for action in ["retry", "cancel"] {
        let answer = api
            .send("POST", &format!("/v1/jobs/{NOBODY}/{action}"), &[], b"")
            .await;
        answer.assert_problem(404, "not_found");
    }
}

#[tokio::test]
async fn a_job_with_its_attempt() {
    let api = Api::start().await;
    let id = api.enqueue(&job()).await;
    api.finish(&id, 3).await;
    let job = api.get(&format!("/v1/jobs/{id}")).await.json;
    assert_eq!(job["id"], json!(id));
    assert_eq!(job["status"], "failed");
    assert_eq!(job["error_kind"], "http_status");
    assert_eq!(job["attempt"], 1);
    assert_eq!(job["max_attempts"], 10);
    assert!(job["finished_at"].as_str().unwrap().ends_with('Z'));
    let attempts = job["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0]["attempt"], 1);
    assert_eq!(attempts[0]["outcome"], "permanent");
    assert_eq!(attempts[0]["error_kind"], "http_status");
    assert_eq!(attempts[0]["response_status"], 400);
    assert_eq!(attempts[0]["duration_ms"], 12);
    assert_eq!(attempts[0]["worker"], "w1");
    assert!(job.get("body").is_none());
    let with_body = api.get(&format!("/v1/jobs/{id}?body=true")).await.json;
    assert_eq!(
        (&with_body["body"], &with_body["url"]),
        (&json!(""), &json!(URL))
    );
    api.get(&format!("/v1/jobs/{id}?body=maybe"))
        .await
        .assert_problem(422, "field_invalid");
    api.get(&format!("/v1/jobs/{id}?nope=1"))
        .await
        .assert_problem(422, "unknown_field");
}

#[tokio::test]
async fn bytes_that_are_no_text_are_shown_in_base64() {
    let api = Api::start().await;
    let id = api
        .enqueue(&format!(r#"{{"url":"{URL}","body_base64":"/wA="}}"#))
        .await;
    let job = api.get(&format!("/v1/jobs/{id}?body=true")).await.json;
    assert_eq!(job["body_base64"], "/wA=");
    assert!(job.get("body").is_none());
}

#[tokio::test]
async fn cancel_stops_a_waiting_job_only() {
    let api = Api::start().await;
    let id = api.enqueue(&job()).await;
    let path = format!("/v1/jobs/{id}/cancel");
    let answer = api.send("POST", &path, &[], b"").await;
    assert_eq!(
        (answer.status, &answer.json["status"]),
        (200, &json!("cancelled"))
    );
    api.send("POST", &path, &[], b"")
        .await
        .assert_problem(409, "state_conflict");
}

#[tokio::test]
async fn retry_starts_a_finished_job_over() {
    let api = Api::start().await;
    let id = api.enqueue(&job()).await;
    let path = format!("/v1/jobs/{id}/retry");
    api.send("POST", &path, &[], b"")
        .await
        .assert_problem(409, "state_conflict");
    api.finish(&id, 3).await;
    let json = [("content-type", "application/json")];
    let answer = api.send("POST", &path, &json, b"{}").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json["status"], "available");
    assert_eq!(answer.json["attempt"], 0);
    assert_eq!(
        answer.json["attempts"].as_array().unwrap().len(),
        1,
        "the history is kept"
    );
    assert_eq!(answer.json["finished_at"], Value::Null);
    // A cancelled job, too; and a body that says something is refused.
    api.send("POST", &format!("/v1/jobs/{id}/cancel"), &[], b"")
        .await;
    let answer = api.send("POST", &path, &json, br#"{"force":true}"#).await;
    answer.assert_problem(400, "request_invalid");
    assert_eq!(
        api.send("POST", &path, &[], b"").await.json["status"],
        "available"
    );
}

#[tokio::test]
async fn a_job_whose_time_to_live_is_over_is_not_attempted_again() {
    let api = Api::start().await;
    let past = r#""scheduled_at":"2019-01-01T00:00:00Z","expires_at":"2020-01-01T00:00:00Z""#;
    let id = api.enqueue(&format!(r#"{{"url":"{URL}",{past}}}"#)).await;
    api.finish(&id, 3).await;
    api.send("POST", &format!("/v1/jobs/{id}/retry"), &[], b"")
        .await
        .assert_problem(409, "state_conflict");
    let job = api.get(&format!("/v1/jobs/{id}")).await;
    assert_eq!(job.json["status"], "failed");
}

#[tokio::test]
async fn a_row_without_its_job_does_not_end_the_list() {
    let api = Api::start().await;
    let mut stored = Vec::new();
    for _ in 0..6 {
        stored.push(api.enqueue(&job()).await);
    }
    sqlx::query("DELETE FROM hook.job WHERE job_id = $1::uuid")
        .bind(&stored[4])
        .execute(&api.pool)
        .await
        .unwrap();
    let first = api.get("/v1/jobs?limit=2").await;
    assert_eq!(first.json["jobs"].as_array().unwrap().len(), 1);
    let cursor = first.json["next_cursor"].as_str().expect("there is more");
    let rest = ids(&api, &format!("limit=10&cursor={cursor}")).await;
    let expected: Vec<_> = stored[..4].iter().rev().cloned().collect();
    assert_eq!(rest, expected);
}

async fn ids(api: &Api, query: &str) -> Vec<String> {
    let answer = api.get(&format!("/v1/jobs?{query}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let jobs = answer.json["jobs"].as_array().unwrap();
    jobs.iter()
        .map(|job| job["id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_list_pages_through_everything_newest_first() {
    let api = Api::start().await;
    let mut stored = Vec::new();
    for _ in 0..25 {
        stored.push(api.enqueue(&job()).await);
    }
    api.finish(&stored[3], 2).await;
    api.finish(&stored[4], 3).await;
    stored.reverse();
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let answer = api.get(&format!("/v1/jobs?limit=4{cursor}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        for job in answer.json["jobs"].as_array().unwrap() {
            seen.push(job["id"].as_str().unwrap().to_owned());
        }
        match answer.json["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, stored);
}

#[tokio::test]
async fn a_list_filters() {
    let api = Api::start().await;
    let mut of = Vec::new();
    for n in 0..8 {
        let host = if n % 2 == 0 {
            "even.example"
        } else {
            "odd.example"
        };
        of.push(
            api.enqueue(&format!(r#"{{"url":"https://{host}/"}}"#))
                .await,
        );
    }
    api.finish(&of[0], 2).await;
    api.finish(&of[1], 3).await;
    api.finish(&of[2], 3).await;
    api.send("POST", &format!("/v1/jobs/{}/cancel", of[3]), &[], b"")
        .await;
    let check = async |query: &str, expected: &[usize]| {
        let expected: Vec<String> = expected.iter().map(|n| of[*n].clone()).collect();
        assert_eq!(ids(&api, query).await, expected, "{query}");
    };
    check("status=completed", &[0]).await;
    check("status=failed", &[2, 1]).await;
    check("status=cancelled", &[3]).await;
    check("status=available", &[7, 6, 5, 4]).await;
    check("status=running", &[]).await;
    check("target=odd.example", &[7, 5, 3, 1]).await;
    check("target=even.example&status=failed", &[2]).await;
    check("target=even.example&status=completed", &[0]).await;
    check("target=odd.example&status=available", &[7, 5]).await;
    check("target=nobody.example", &[]).await;
    check("queue=primary&limit=2", &[7, 6]).await;
    check("queue=degraded", &[]).await;
    check("from=2020-01-01T00:00:00Z&limit=1", &[7]).await;
    check("to=2020-01-01T00:00:00Z", &[]).await;
    let created = api.get(&format!("/v1/jobs/{}", of[4])).await.json["created_at"].clone();
    let created = created.as_str().unwrap();
    check(&format!("from={created}"), &[7, 6, 5, 4]).await;
    check(&format!("to={created}"), &[3, 2, 1, 0]).await;
    let failed = api.get("/v1/jobs?status=failed").await.json;
    assert_eq!(failed["jobs"][0]["attempts"][0]["response_status"], 400);
}

#[tokio::test]
async fn a_list_refuses_what_it_does_not_understand() {
    let api = Api::start().await;
    for (query, pointer) in [
        ("limit=0", "/limit"),
        ("limit=501", "/limit"),
        ("limit=x", "/limit"),
        ("status=done", "/status"),
        ("queue=fast", "/queue"),
        ("from=yesterday", "/from"),
        ("cursor=x", "/cursor"),
        ("status=failed&status=completed", "/status"),
        ("target=%00", "/target"),
    ] {
        let answer = api.get(&format!("/v1/jobs?{query}")).await;
        answer.assert_problem(422, "field_invalid");
        answer.assert_names(pointer);
    }
    let answer = api.get("/v1/jobs?limt=5").await;
    answer.assert_problem(422, "unknown_field");
    answer.assert_names("/limt");
}

#[tokio::test]
async fn queues_are_counted() {
    let api = Api::start().await;
    let first = api.enqueue(&job()).await;
    let second = api.enqueue(&job()).await;
    api.enqueue(&job()).await;
    api.enqueue(&format!(r#"{{"url":"{URL}","delay_ms":600000}}"#))
        .await;
    api.finish(&first, 2).await;
    api.finish(&second, 3).await;
    let queues = api.get("/v1/queues").await.json["queues"].clone();
    assert_eq!(queues[0]["queue"], "primary");
    assert_eq!(queues[0]["available"], 2);
    assert_eq!(queues[0]["running"], 0);
    assert_eq!(queues[0]["completed"], 1);
    assert_eq!(queues[0]["failed"], 1);
    assert_eq!(queues[0]["cancelled"], 0);
    assert!(queues[0]["oldest_due_age_ms"].as_i64().unwrap() >= 0);
    assert_eq!(queues[1]["queue"], "degraded");
    assert_eq!(queues[1]["available"], 0);
    assert_eq!(queues[1]["oldest_due_age_ms"], Value::Null);
}
