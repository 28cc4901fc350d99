//! Signing secrets: stored sealed, never read back, known at enqueue.

use serde_json::json;

use super::kit::{Api, URL};

const KEY: &str = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

#[tokio::test]
async fn a_secret_is_written_and_never_read_back() {
    let api = Api::with(&[("HOOK_SECRET_KEY", KEY)]).await;
    let body = json!({"secret": SECRET}).to_string();
    let answer = api
        .send("PUT", "/v1/secrets/main", &JSON, body.as_bytes())
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let shown = api.get("/v1/secrets/main").await;
    assert_eq!(shown.json["name"], "main");
    assert_eq!(shown.json["kind"], "hmac");
    assert_eq!(shown.json["last_four"], "LaSw");
    assert!(shown.json["created_at"].is_string());
    assert!(!String::from_utf8(shown.body).unwrap().contains("MfKQ"));
    let sealed: Vec<u8> = sqlx::query_scalar("SELECT sealed FROM hook.secret")
        .fetch_one(&api.pool)
        .await
        .unwrap();
    assert!(!String::from_utf8_lossy(&sealed).contains("MfKQ"));
    assert_eq!(
        api.send("DELETE", "/v1/secrets/main", &[], b"")
            .await
            .status,
        204
    );
    api.get("/v1/secrets/main")
        .await
        .assert_problem(404, "not_found");
    api.send("DELETE", "/v1/secrets/main", &[], b"")
        .await
        .assert_problem(404, "not_found");
}

#[tokio::test]
async fn a_bad_secret_is_refused_without_being_repeated() {
    let api = Api::with(&[("HOOK_SECRET_KEY", KEY)]).await;
    for (secret, code) in [
        ("whsec_c2hvcnQ=", "secret_too_short"),
        ("hunter2hunter2hunter2hunter2", "secret_invalid"),
        ("whsk_AAAA", "secret_invalid"),
    ] {
        let body = json!({"secret": secret}).to_string();
        let answer = api
            .send("PUT", "/v1/secrets/x", &JSON, body.as_bytes())
            .await;
        answer.assert_problem(422, code);
        answer.assert_names("/secret");
        assert!(!String::from_utf8(answer.body).unwrap().contains(secret));
    }
    let answer = api.send("PUT", "/v1/secrets/x", &JSON, b"{}").await;
    answer.assert_problem(422, "field_invalid");
}

#[tokio::test]
async fn without_a_key_no_secret_is_kept() {
    let api = Api::start().await;
    let body = json!({"secret": SECRET}).to_string();
    let answer = api
        .send("PUT", "/v1/secrets/x", &JSON, body.as_bytes())
        .await;
    answer.assert_problem(422, "secret_invalid");
}

#[tokio::test]
async fn a_job_names_secrets_that_are_stored() {
    let api = Api::with(&[("HOOK_SECRET_KEY", KEY)]).await;
    let body = json!({"secret": SECRET}).to_string();
    api.send("PUT", "/v1/secrets/main", &JSON, body.as_bytes())
        .await;
    let signed = |name: &str| json!({"url": URL, "signing": {"secrets": ["main", name]}});
    let answer = api.post("/v1/jobs", &signed("other").to_string()).await;
    answer.assert_problem(422, "secret_unknown");
    answer.assert_names("/signing/secrets/1");
    let batch = json!({"jobs": [{"url": URL}, signed("other")]}).to_string();
    let answer = api.post("/v1/jobs/batch", &batch).await;
    answer.assert_problem(422, "secret_unknown");
    answer.assert_names("/jobs/1/signing/secrets/1");
    assert_eq!(api.rows().await, 0);
    api.send("PUT", "/v1/secrets/other", &JSON, body.as_bytes())
        .await;
    assert_eq!(
        api.post("/v1/jobs", &signed("other").to_string())
            .await
            .status,
        202
    );
}

#[tokio::test]
async fn secret_headers_are_sealed_where_there_is_a_key() {
    let api = Api::with(&[("HOOK_SECRET_KEY", KEY)]).await;
    let body = json!({"url": URL, "headers": {"X-Api-Key": "hunter2", "x-plain": "seen"}});
    let id = api.enqueue(&body.to_string()).await;
    let stored: String = sqlx::query_scalar("SELECT headers::text FROM hook.job")
        .fetch_one(&api.pool)
        .await
        .unwrap();
    assert!(
        stored.contains("seen") && !stored.contains("hunter2"),
        "{stored}"
    );
    let hidden = api.get(&format!("/v1/jobs/{id}")).await.json;
    assert_eq!(
        hidden["headers"],
        json!({"X-Api-Key": "***", "x-plain": "seen"})
    );
    let shown = api.get(&format!("/v1/jobs/{id}?body=true")).await.json;
    assert_eq!(shown["headers"]["X-Api-Key"], "hunter2");
}
