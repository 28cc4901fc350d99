//! Every change that people make leaves an entry that says who asked for what.

use serde_json::{Value, json};

use super::kit::{Api, URL};

const JSON: (&str, &str) = ("content-type", "application/json");
const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

async fn entries(api: &Api, query: &str) -> Value {
    let token = ("authorization", "Bearer sesame");
    let answer = api
        .send("GET", &format!("/v1/audit{query}"), &[token], b"")
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json
}

/// A change: method, path, body, and the action and subject of its entry.
type Asked = (&'static str, String, String, &'static str, String);

/// Each change once, of the job `id`, the replay `replay` and of others.
fn changes(id: &str, replay: &str) -> Vec<Asked> {
    let of = |method, path: &str, body: &str, action, subject: &str| -> Asked {
        (
            method,
            path.to_owned(),
            body.to_owned(),
            action,
            subject.to_owned(),
        )
    };
    let (job, target, secret) = (
        format!("/v1/jobs/{id}"),
        "/v1/targets/a.example",
        "/v1/secrets/s",
    );
    let limits = r#"{"max_in_flight":3,"penalty":null}"#;
    let which = r#"{"target":"a.example","limit":3}"#;
    let value = json!({ "secret": SECRET }).to_string();
    vec![
        of("POST", &format!("{job}/cancel"), "", "cancel_job", id),
        of("POST", &format!("{job}/retry"), "", "retry_job", id),
        of("POST", "/v1/jobs/replay", which, "replay_jobs", "a.example"),
        of(
            "POST",
            &format!("/v1/replays/{replay}/cancel"),
            "",
            "cancel_replay",
            replay,
        ),
        of(
            "POST",
            &format!("{target}/pause"),
            "",
            "pause_target",
            "a.example",
        ),
        of(
            "POST",
            &format!("{target}/resume"),
            "",
            "resume_target",
            "a.example",
        ),
        of(
            "POST",
            &format!("{target}/probe"),
            "",
            "probe_target",
            "a.example",
        ),
        of("PATCH", target, limits, "change_target", "a.example"),
        of("PUT", secret, &value, "put_secret", "s"),
        of("DELETE", secret, "", "delete_secret", "s"),
    ]
}

/// Lets a target be down.
async fn hold(api: &Api, target: &str) {
    sqlx::query(
        "INSERT INTO hook.target (shard, target_id, name, hold_interval_ms, held_until)
        VALUES (0, hook.target_id($1), $1, 1000, now() + interval '1 hour')",
    )
    .bind(target)
    .execute(&api.pool)
    .await
    .unwrap();
}

/// What the entry of a change says about it.
fn detail(action: &str, body: &str) -> Value {
    match action {
        "put_secret" => json!({"kind": "hmac"}),
        _ if body.is_empty() => json!({}),
        _ => serde_json::from_str(body).unwrap(),
    }
}

#[tokio::test]
async fn every_change_leaves_an_entry_without_secrets() {
    let settings = [
        ("HOOK_API_TOKENS", "sesame"),
        (
            "HOOK_SECRET_KEY",
            "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
        ),
    ];
    let api = Api::with(&settings).await;
    let sent = [JSON, ("authorization", "Bearer sesame")];
    let job = format!(r#"{{"url":"{URL}"}}"#);
    let answer = api.send("POST", "/v1/jobs", &sent, job.as_bytes()).await;
    hold(&api, "a.example").await;
    let replay = api.send("POST", "/v1/jobs/replay", &sent, b"{}").await;
    assert_eq!(replay.json["requested_by"].as_str().unwrap().len(), 8);
    let changes = changes(
        answer.json["id"].as_str().unwrap(),
        replay.json["id"].as_str().unwrap(),
    );
    for (method, path, body, ..) in &changes {
        let answer = api.send(method, path, &sent, body.as_bytes()).await;
        assert!(answer.status < 300, "{path}: {answer:?}");
    }
    // What is refused for its form is no change; looking is none either.
    let target = "/v1/targets/a.example";
    api.send("PATCH", target, &sent, b"{\"x\":1}").await;
    api.send("GET", target, &sent[1..], b"").await;

    let all = entries(&api, "").await;
    let list = all["entries"].as_array().unwrap();
    assert_eq!(list.len(), 1 + changes.len(), "{all}");
    for (entry, (_, _, body, action, subject)) in list.iter().rev().skip(1).zip(&changes) {
        assert_eq!(
            (&entry["action"], &entry["subject"], &entry["detail"]),
            (&json!(action), &json!(subject), &detail(action, body))
        );
        assert_eq!(entry["token"].as_str().unwrap().len(), 8);
        assert!(entry["remote"].as_str().unwrap().starts_with("127.0.0.1:"));
    }
    let text = all.to_string();
    assert!(
        !text.contains("sesame") && !text.contains(&SECRET[6..]),
        "{text}"
    );

    let first = entries(&api, "?limit=5").await;
    let cursor = first["next_cursor"].as_str().unwrap();
    let rest = entries(&api, &format!("?limit=50&cursor={cursor}")).await;
    assert_eq!(rest["entries"].as_array().unwrap().len(), list.len() - 5);
    assert_eq!(rest["next_cursor"], Value::Null);
}
