//! Targets: seen, held back, limited.

use serde_json::{Value, json};

use super::kit::{Answer, Api};

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

async fn patch(api: &Api, target: &str, body: Value) -> Answer {
    let path = format!("/v1/targets/{target}");
    api.send("PATCH", &path, &JSON, body.to_string().as_bytes())
        .await
}

#[tokio::test]
async fn a_target_that_is_not_known() {
    let api = Api::start().await;
    api.get("/v1/targets/nobody.example")
        .await
        .assert_problem(404, "not_found");
    api.get("/v1/targets/a%00b")
        .await
        .assert_problem(404, "not_found");
}

#[tokio::test]
async fn a_target_is_seen_with_its_jobs() {
    let api = Api::start().await;
    let id = api.enqueue(r#"{"url":"https://a.example/"}"#).await;
    api.enqueue(r#"{"url":"https://a.example/"}"#).await;
    api.finish(&id, 3).await;
    let target = api.get("/v1/targets/a.example").await.json;
    assert_eq!(target["target"], "a.example");
    assert_eq!(target["state"], "healthy");
    assert_eq!(
        (&target["waiting"], &target["running"], &target["failed"]),
        (&json!(1), &json!(0), &json!(1))
    );
    for field in [
        "penalty",
        "max_in_flight",
        "rate_per_second",
        "last_error_kind",
        "last_error_at",
        "last_success_at",
        "latency_p50_ms",
        "latency_p95_ms",
    ] {
        assert!(target.get(field).is_some(), "{field}");
    }
}

#[tokio::test]
async fn the_history_of_a_target_is_seen_hour_by_hour() {
    let api = Api::start().await;
    let none = api.get("/v1/targets/a.example/history").await;
    assert_eq!((none.status, none.json), (200, json!({"hours": []})));
    sqlx::query(
        "INSERT INTO hook.target_hour (shard, target_id, hour, delivered, retryable, permanent, duration_ms)
        SELECT 0, hook.target_id('a.example'), '2026-01-01T00:00:00Z'::timestamptz + n * interval '1 hour',
            n, 2, 1, 100 FROM generate_series(0, 5) AS n",
    )
    .execute(&api.pool)
    .await
    .unwrap();
    let path =
        "/v1/targets/a.example/history?from=2026-01-01T01:00:00Z&to=2026-01-01T05:00:00Z&limit=2";
    let answer = api.get(path).await;
    let hour = |hour: &str, delivered: i64, mean: i64| {
        json!({"hour": hour, "attempts": delivered + 3, "delivered": delivered, "retryable": 2,
            "permanent": 1, "mean_duration_ms": mean})
    };
    let expected = [
        hour("2026-01-01T04:00:00.000000Z", 4, 14),
        hour("2026-01-01T03:00:00.000000Z", 3, 16),
    ];
    assert_eq!(answer.json, json!({ "hours": expected }));
    let bad = "/v1/targets/a.example/history?limit=0&from=yesterday&hour=3";
    let refused = api.get(bad).await;
    refused.assert_problem(422, "unknown_field");
    for pointer in ["/hour", "/from", "/limit"] {
        refused.assert_names(pointer);
    }
}

#[tokio::test]
async fn pause_and_resume() {
    let api = Api::start().await;
    let answer = api
        .send("POST", "/v1/targets/a.example/pause", &[], b"")
        .await;
    assert_eq!(
        (answer.status, &answer.json["state"]),
        (200, &json!("paused"))
    );
    let paused: bool =
        sqlx::query_scalar("SELECT paused FROM hook.target WHERE name = 'a.example'")
            .fetch_one(&api.pool)
            .await
            .unwrap();
    assert!(paused);
    let answer = api
        .send("POST", "/v1/targets/a.example/resume", &[], b"")
        .await;
    assert_eq!(answer.json["state"], "healthy");
}

#[tokio::test]
async fn limits_are_set_and_cleared_one_by_one() {
    let api = Api::start().await;
    // No host, but the key of a job.
    patch(&api, "a%2Fb", json!({"penalty": 4}))
        .await
        .assert_problem(422, "url_invalid");
    api.enqueue(r#"{"url":"https://a.example/","target":"a/b"}"#)
        .await;
    let set = patch(
        &api,
        "a%2Fb",
        json!({"max_in_flight": 7, "rate_per_second": 2.5, "penalty": 4}),
    )
    .await;
    assert_eq!(set.status, 200, "{set:?}");
    assert_eq!(set.json["target"], "a/b");
    assert_eq!(set.json["max_in_flight"], 7);
    assert_eq!(set.json["rate_per_second"], 2.5);
    assert_eq!(
        (&set.json["penalty"], &set.json["state"]),
        (&json!(4), &json!("penalised"))
    );
    let kept = patch(&api, "a%2Fb", json!({"penalty": null})).await;
    assert_eq!(kept.json["max_in_flight"], 7);
    assert_eq!(
        (&kept.json["penalty"], &kept.json["penalty_pin"]),
        (&json!(0), &Value::Null)
    );
    let cleared = patch(
        &api,
        "a%2Fb",
        json!({"max_in_flight": null, "rate_per_second": null}),
    )
    .await;
    assert_eq!(cleared.json["max_in_flight"], Value::Null);
    assert_eq!(cleared.json["rate_per_second"], Value::Null);
    for (body, pointer) in [
        (json!({"max_in_flight": 0}), "/max_in_flight"),
        (json!({"max_in_flight": 1.5}), "/max_in_flight"),
        (json!({"rate_per_second": 0}), "/rate_per_second"),
        (json!({"rate_per_second": "x"}), "/rate_per_second"),
        (json!({"penalty": 10}), "/penalty"),
    ] {
        let answer = patch(&api, "a%2Fb", body).await;
        answer.assert_problem(422, "field_invalid");
        answer.assert_names(pointer);
    }
    patch(&api, "x", json!({"paused": true}))
        .await
        .assert_problem(422, "unknown_field");
}

#[tokio::test]
async fn lists_in_each_order() {
    let api = Api::start().await;
    for (host, count) in [("one.example", 1), ("three.example", 3), ("two.example", 2)] {
        for _ in 0..count {
            api.enqueue(&format!(r#"{{"url":"https://{host}/"}}"#))
                .await;
        }
    }
    sqlx::query(
        "UPDATE hook.target SET failures_in_row = 5, penalty = 2, held_until = now() + interval '1 hour',
            changed_at = now() WHERE name = 'one.example'",
    )
    .execute(&api.pool)
    .await
    .unwrap();
    sqlx::query("UPDATE hook.target SET failures_in_row = 1 WHERE name = 'two.example'")
        .execute(&api.pool)
        .await
        .unwrap();
    sqlx::query(
        "INSERT INTO hook.target_total (shard, target_id, delivered, retryable, permanent, duration_ms, ended_at,
            latency_p95_ms)
        SELECT 0, hook.target_id(name), 1, 0, 0, took, now(), took
        FROM (VALUES ('one.example', 10), ('two.example', 900)) AS v (name, took)",
    )
    .execute(&api.pool)
    .await
    .unwrap();
    let names = async |query: &str| {
        let answer = api.get(&format!("/v1/targets?{query}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let targets = answer.json["targets"].as_array().unwrap().clone();
        targets
            .iter()
            .map(|target| {
                target["target"]
                    .as_str()
                    .unwrap()
                    .trim_end_matches(".example")
                    .to_owned()
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(names("").await, ["three", "two", "one"]);
    assert_eq!(names("order=waiting&limit=2").await, ["three", "two"]);
    assert_eq!(names("order=failing").await, ["one", "two"]);
    assert_eq!(names("order=slow").await, ["two", "one"]);
    let held = api.get("/v1/targets/one.example").await.json;
    assert_eq!(held["state"], "held");
    let answer = api.get("/v1/targets?order=best").await;
    answer.assert_problem(422, "field_invalid");
}
