//! Postgres is slow, frozen or away: 503 in time, and nothing half done.

use std::time::Duration;

use hook_testkit::{
    db::TestDb,
    proxy::{CutPoint, Mode, Proxy},
    wait::wait_for,
};
use tokio::{task::JoinSet, time::Instant};

use super::kit::{Api, Client, URL};

fn job() -> String {
    format!(r#"{{"url":"{URL}"}}"#)
}

/// An API whose way to Postgres can be disturbed.
pub(crate) async fn behind_proxy(settings: &[(&str, &str)]) -> (Api, Proxy) {
    let db = TestDb::new().await;
    let proxy = Proxy::before(&db.url());
    let url = proxy.url(&db.url());
    (Api::on(db, &url, settings).await, proxy)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_postgres_is_answered_503_within_two_seconds() {
    let (api, proxy) = behind_proxy(&[]).await;
    api.enqueue(&job()).await;
    proxy.set(Mode::Freeze);
    let mut codes = Vec::new();
    for _ in 0..4 {
        let begun = Instant::now();
        let answer = api.post("/v1/jobs", &job()).await;
        assert!(
            begun.elapsed() < Duration::from_millis(2500),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!(answer.header("retry-after").is_some(), "{answer:?}");
        codes.push(answer.json["code"].as_str().unwrap().to_owned());
        let begun = Instant::now();
        let answer = api.get("/v1/jobs").await;
        assert!(
            begun.elapsed() < Duration::from_millis(2500),
            "{:?}",
            begun.elapsed()
        );
        answer.assert_problem(503, "database_unavailable");
    }
    for code in &codes {
        let known = ["outcome_unknown", "database_unavailable"];
        assert!(known.contains(&code.as_str()), "{codes:?}");
    }
    proxy.set(Mode::Pass);
    wait_for(
        Duration::from_secs(15),
        async || api.post("/v1/jobs", &job()).await.status,
        |status| *status == 202,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_refused_unsent_is_never_stored() {
    let (api, proxy) = behind_proxy(&[("HOOK_DB_POOL_MAX", "2")]).await;
    api.enqueue(&job()).await;
    proxy.set(Mode::Freeze);
    let mut tasks = JoinSet::new();
    for n in 0..40 {
        let address = api.address;
        tasks.spawn(async move {
            let body = format!(r#"{{"url":"{URL}","payload":{n}}}"#);
            let head = format!(
                "POST /v1/jobs HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let mut client = Client::connect(address).await;
            client.send(format!("{head}{body}").as_bytes()).await;
            (n, client.answer().await)
        });
    }
    let answers = tasks.join_all().await;
    proxy.set(Mode::Pass);
    wait_for(
        Duration::from_secs(15),
        async || api.post("/v1/jobs", &job()).await.status,
        |status| *status == 202,
    )
    .await;
    hook_testkit::wait::pause(Duration::from_millis(500)).await;
    let stored: Vec<Vec<u8>> = sqlx::query_scalar("SELECT body FROM hook.job")
        .fetch_all(&api.pool)
        .await
        .unwrap();
    for (n, answer) in answers {
        assert_eq!(answer.status, 503, "{answer:?}");
        let copies = stored
            .iter()
            .filter(|body| **body == format!("{n}").into_bytes())
            .count();
        if answer.json["code"] == "database_unavailable" {
            assert_eq!(copies, 0, "{n} was stored although it was refused");
        } else {
            answer.assert_problem(503, "outcome_unknown");
            assert!(copies <= 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_under_an_insert_is_answered_outcome_unknown() {
    let (api, proxy) = behind_proxy(&[]).await;
    // Every connection knows the statement before, so the next piece is its execution.
    for _ in 0..5 {
        api.enqueue(&job()).await;
    }
    proxy.cut_on(CutPoint::After, |bytes| {
        bytes.windows(7).any(|part| part == b"cut-me!")
    });
    let body = format!(r#"{{"url":"{URL}","payload":"cut-me!","idempotency_key":"k"}}"#);
    let answer = api.post("/v1/jobs", &body).await;
    answer.assert_problem(503, "outcome_unknown");
    assert!(answer.header("retry-after").is_some());
    proxy.cut_on_nothing();
    // Repeating it with the same key is safe.
    let again = wait_for(
        Duration::from_secs(15),
        async || api.post("/v1/jobs", &body).await.status,
        |status| matches!(status, 200 | 202),
    )
    .await;
    assert!(matches!(again, 200 | 202));
    let stored: i64 =
        sqlx::query_scalar("SELECT count(*) FROM hook.job WHERE body = '\"cut-me!\"'")
            .fetch_one(&api.pool)
            .await
            .unwrap();
    assert_eq!(stored, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_postgres_is_answered_503_at_once_and_comes_back() {
    let (api, proxy) = behind_proxy(&[]).await;
    api.enqueue(&job()).await;
    proxy.set(Mode::Refuse);
    proxy.cut();
    for _ in 0..5 {
        let begun = Instant::now();
        let answer = api.post("/v1/jobs", &job()).await;
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!(
            begun.elapsed() < Duration::from_millis(2500),
            "{:?}",
            begun.elapsed()
        );
    }
    proxy.set(Mode::Pass);
    wait_for(
        Duration::from_secs(15),
        async || api.post("/v1/jobs", &job()).await.status,
        |status| *status == 202,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_gate_is_answered_503_at_once() {
    let (api, proxy) = behind_proxy(&[("HOOK_API_IN_FLIGHT_MAX", "4")]).await;
    api.enqueue(&job()).await;
    proxy.set(Mode::Freeze);
    let body = job();
    let head = format!(
        "POST /v1/jobs HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    // Each holds its place until it is refused, and comes back at once.
    let mut waiting = JoinSet::new();
    for _ in 0..8 {
        let (address, request) = (api.address, format!("{head}{body}"));
        waiting.spawn(async move {
            loop {
                let mut client = Client::connect(address).await;
                client.send(request.as_bytes()).await;
                if client.answer().await.status == 202 {
                    return;
                }
            }
        });
    }
    wait_for(
        Duration::from_secs(20),
        async || {
            let begun = Instant::now();
            let answer = api.post("/v1/jobs", &job()).await;
            (answer.json["code"].clone(), begun.elapsed())
        },
        |(code, took)| code == "overloaded" && *took < Duration::from_millis(250),
    )
    .await;
    proxy.set(Mode::Pass);
    waiting.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_senders_take_no_places() {
    let api = Api::with(&[("HOOK_API_IN_FLIGHT_MAX", "2")]).await;
    let head = "POST /v1/jobs HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    let mut slow = Vec::new();
    for _ in 0..10 {
        let mut client = Client::connect(api.address).await;
        client.send(head.as_bytes()).await;
        slow.push(client);
    }
    for _ in 0..5 {
        api.enqueue(&job()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_job_that_postgres_refuses_does_not_take_others_with_it() {
    let api = Api::start().await;
    sqlx::query("ALTER TABLE hook.job ADD CHECK (target <> 'poison')")
        .execute(&api.pool)
        .await
        .unwrap();
    let mut tasks = JoinSet::new();
    for n in 0..40 {
        let address = api.address;
        tasks.spawn(async move {
            let target = if n == 17 { "poison" } else { "fine" };
            let body = format!(r#"{{"url":"{URL}","target":"{target}"}}"#);
            let head = format!(
                "POST /v1/jobs HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let mut client = Client::connect(address).await;
            client.send(format!("{head}{body}").as_bytes()).await;
            (n, client.answer().await)
        });
    }
    for (n, answer) in tasks.join_all().await {
        if n == 17 {
            answer.assert_problem(500, "internal");
            let text = String::from_utf8(answer.body).unwrap();
            assert!(
                !text.contains("check") && !text.contains("poison"),
                "{text}"
            );
        } else {
            assert_eq!(answer.status, 202, "{answer:?}");
        }
    }
    assert_eq!(api.rows().await, 39);
}
