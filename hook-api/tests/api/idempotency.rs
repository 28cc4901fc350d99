//! Repeated requests (cases AU-30, AU-31 and their kind).

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::kit::{Answer, Api, Client, URL};

fn keyed(key: &str, payload: i64) -> String {
    json!({"url": URL, "payload": payload, "idempotency_key": key}).to_string()
}

#[tokio::test]
async fn the_same_request_gets_the_first_answer() {
    let api = Api::start().await;
    let first = api.post("/v1/jobs", &keyed("k1", 1)).await;
    assert_eq!(first.status, 202, "{first:?}");
    let second = api.post("/v1/jobs", &keyed("k1", 1)).await;
    assert_eq!(second.status, 200, "{second:?}");
    let mut expected = first.json.clone();
    expected["duplicate"] = json!(true);
    assert_eq!(second.json, expected);
    // Also as a header, and after the job is gone.
    sqlx::query("DELETE FROM hook.job")
        .execute(&api.pool)
        .await
        .unwrap();
    sqlx::query("DELETE FROM hook.ready")
        .execute(&api.pool)
        .await
        .unwrap();
    let body = json!({"url": URL, "payload": 1}).to_string();
    let headers = [
        ("content-type", "application/json"),
        ("Idempotency-Key", "k1"),
    ];
    let third = api
        .send("POST", "/v1/jobs", &headers, body.as_bytes())
        .await;
    assert_eq!((third.status, &third.json), (200, &expected));
    assert_eq!(api.rows().await, 0);
}

#[tokio::test]
async fn au_30_another_request_with_the_same_key() {
    let api = Api::start().await;
    assert_eq!(api.post("/v1/jobs", &keyed("k1", 1)).await.status, 202);
    let second = api.post("/v1/jobs", &keyed("k1", 2)).await;
    second.assert_problem(409, "idempotency_key_reused");
    second.assert_names("/idempotency_key");
    assert_eq!(api.rows().await, 1);
}

#[tokio::test]
async fn a_header_and_a_field_that_differ_are_refused() {
    let api = Api::start().await;
    let headers = [
        ("content-type", "application/json"),
        ("idempotency-key", "other"),
    ];
    let answer = api
        .send("POST", "/v1/jobs", &headers, keyed("k1", 1).as_bytes())
        .await;
    answer.assert_problem(422, "field_invalid");
    let headers = [
        ("content-type", "application/json"),
        ("idempotency-key", "k1"),
    ];
    let answer = api
        .send("POST", "/v1/jobs", &headers, keyed("k1", 1).as_bytes())
        .await;
    assert_eq!(answer.status, 202);
    let headers = [
        ("content-type", "application/json"),
        ("idempotency-key", "a"),
        ("idempotency-key", "b"),
    ];
    let answer = api.send("POST", "/v1/jobs", &headers, b"{}").await;
    answer.assert_problem(400, "duplicate_header");
}

/// Sends all of these at one time.
async fn at_once(api: &Api, bodies: Vec<String>) -> Vec<Answer> {
    let mut tasks = JoinSet::new();
    for body in bodies {
        let address = api.address;
        tasks.spawn(async move {
            let mut client = Client::connect(address).await;
            let head = format!(
                "POST /v1/jobs HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            client.send(format!("{head}{body}").as_bytes()).await;
            client.answer().await
        });
    }
    tasks.join_all().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn au_31_fifty_at_once() {
    let api = Api::start().await;
    for round in 0..5 {
        let key = format!("k{round}");
        let answers = at_once(&api, vec![keyed(&key, 1); 50]).await;
        let stored = answers.iter().filter(|answer| answer.status == 202).count();
        let repeated = answers.iter().filter(|answer| answer.status == 200).count();
        assert_eq!((stored, repeated), (1, 49), "{answers:?}");
        let mut ids: Vec<&Value> = answers.iter().map(|answer| &answer.json["id"]).collect();
        ids.dedup();
        assert_eq!(ids.len(), 1);
        assert_eq!(api.rows().await, round + 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn different_requests_with_one_key_at_once() {
    let api = Api::start().await;
    for round in 0..5 {
        let key = format!("k{round}");
        let bodies = (0..30).map(|n| keyed(&key, n % 3)).collect();
        let answers = at_once(&api, bodies).await;
        let count = |status: u16| {
            answers
                .iter()
                .filter(|answer| answer.status == status)
                .count()
        };
        assert_eq!(
            (count(202), count(200), count(409)),
            (1, 9, 20),
            "{answers:?}"
        );
        assert_eq!(api.rows().await, round + 1);
    }
}

#[tokio::test]
async fn keys_within_a_batch() {
    let api = Api::start().await;
    let item =
        |key: &str, payload: i64| json!({"url": URL, "payload": payload, "idempotency_key": key});
    let send = async |jobs: Vec<Value>| {
        let body = json!({"jobs": jobs}).to_string();
        api.post("/v1/jobs/batch", &body).await
    };
    let first = send(vec![item("a", 1), item("b", 2), json!({"url": URL})]).await;
    assert_eq!(first.status, 202, "{first:?}");
    assert_eq!(api.rows().await, 3);
    // Known ones are answered as before, new ones are stored.
    let second = send(vec![item("a", 1), item("c", 3), item("c", 3)]).await;
    assert_eq!(second.status, 202, "{second:?}");
    let jobs = &second.json["jobs"];
    assert_eq!(jobs[0]["id"], first.json["jobs"][0]["id"]);
    assert_eq!(jobs[0]["duplicate"], true);
    assert_eq!(jobs[1]["duplicate"], false);
    assert_eq!(
        (&jobs[2]["id"], &jobs[2]["duplicate"]),
        (&jobs[1]["id"], &json!(true))
    );
    assert_eq!(api.rows().await, 4);
    // A key of another request keeps all of the batch out, within it or before it.
    let third = send(vec![item("d", 1), item("b", 9)]).await;
    third.assert_problem(409, "idempotency_key_reused");
    third.assert_names("/jobs/1/idempotency_key");
    let fourth = send(vec![item("e", 1), item("e", 2)]).await;
    fourth.assert_problem(409, "idempotency_key_reused");
    fourth.assert_names("/jobs/1/idempotency_key");
    assert_eq!(api.rows().await, 4);
}

#[tokio::test]
async fn a_key_is_free_again_after_its_time() {
    let api = Api::with(&[("HOOK_IDEMPOTENCY_TTL", "100ms")]).await;
    assert_eq!(api.post("/v1/jobs", &keyed("k", 1)).await.status, 202);
    hook_testkit::wait::pause(std::time::Duration::from_millis(150)).await;
    assert_eq!(api.post("/v1/jobs", &keyed("k", 2)).await.status, 202);
    assert_eq!(api.rows().await, 2);
}
