//! Batches: all or nothing, in order.

use serde_json::json;

use super::kit::{Api, URL};

fn jobs(count: usize) -> Vec<serde_json::Value> {
    (0..count)
        .map(|n| json!({"url": format!("https://host{}.example/", n % 7), "payload": n}))
        .collect()
}

#[tokio::test]
async fn a_batch_is_answered_in_order() {
    let api = Api::start().await;
    for count in [1, 99, 101, 1000] {
        let body = json!({"jobs": jobs(count)}).to_string();
        let answer = api.post("/v1/jobs/batch", &body).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        let answers = answer.json["jobs"].as_array().unwrap();
        assert_eq!(answers.len(), count);
        let ids: Vec<&str> = answers
            .iter()
            .map(|job| job["id"].as_str().unwrap())
            .collect();
        assert!(ids.is_sorted());
        for (n, answer) in answers.iter().enumerate() {
            assert_eq!(answer["target"], format!("host{}.example", n % 7));
        }
        let last: Vec<u8> = sqlx::query_scalar("SELECT body FROM hook.job WHERE job_id = $1::uuid")
            .bind(ids[count - 1])
            .fetch_one(&api.pool)
            .await
            .unwrap();
        assert_eq!(last, (count - 1).to_string().into_bytes());
    }
    assert_eq!(api.rows().await, 1 + 99 + 101 + 1000);
}

#[tokio::test]
async fn a_bad_item_keeps_all_out_and_every_one_is_listed() {
    let api = Api::start().await;
    let mut list = jobs(10);
    list[3]["url"] = json!("ftp://x/");
    list[7]["method"] = json!("NO");
    let answer = api
        .post("/v1/jobs/batch", &json!({"jobs": list}).to_string())
        .await;
    answer.assert_problem(422, "scheme_forbidden");
    answer.assert_names("/jobs/3/url");
    answer.assert_names("/jobs/7/method");
    assert_eq!(api.rows().await, 0);
    for bad in [
        json!({"jobs": []}),
        json!({"jobs": jobs(1001)}),
        json!({}),
        json!({"jobs": {}}),
    ] {
        let answer = api.post("/v1/jobs/batch", &bad.to_string()).await;
        assert_eq!(answer.status, 422, "{answer:?}");
    }
    assert_eq!(api.rows().await, 0);
}

#[tokio::test]
async fn one_job_a_line() {
    let api = Api::start().await;
    let lines: String = jobs(150).iter().map(|job| format!("{job}\n")).collect();
    let kind = [("content-type", "application/x-ndjson")];
    let answer = api
        .send("POST", "/v1/jobs/batch", &kind, lines.as_bytes())
        .await;
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!(answer.json["jobs"].as_array().unwrap().len(), 150);
    let bad = format!("{{\"url\":\"{URL}\"}}\n{{\"url\":7}}\n");
    let answer = api
        .send("POST", "/v1/jobs/batch", &kind, bad.as_bytes())
        .await;
    answer.assert_problem(422, "field_invalid");
    answer.assert_names("/jobs/1/url");
    assert_eq!(api.rows().await, 150);
}

#[tokio::test]
async fn a_header_key_does_not_fit_a_batch() {
    let api = Api::start().await;
    let headers = [
        ("content-type", "application/json"),
        ("idempotency-key", "k"),
    ];
    let body = json!({"jobs": jobs(2)}).to_string();
    let answer = api
        .send("POST", "/v1/jobs/batch", &headers, body.as_bytes())
        .await;
    answer.assert_problem(422, "field_invalid");
    assert_eq!(api.rows().await, 0);
}
