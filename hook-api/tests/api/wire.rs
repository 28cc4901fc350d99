//! What a client can do to a connection (cases AU-24, AU-27 and their kind).

use std::time::Duration;

use hook_testkit::wait::{pause, wait_for};
use tokio::time::Instant;

use super::kit::{Api, Client, URL};

const SOON: Duration = Duration::from_secs(2);

fn post(headers: &str, body: &str) -> String {
    format!(
        "POST /v1/jobs HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n{headers}\r\n{body}"
    )
}

fn job() -> String {
    format!(r#"{{"url":"{URL}"}}"#)
}

/// Sends bytes; expects one problem, then the end of the connection, and nothing stored.
async fn check_refused(raw: &[u8], status: u16) {
    let api = Api::start().await;
    check_refused_by(&api, raw, status).await;
}

async fn check_refused_by(api: &Api, raw: &[u8], status: u16) {
    let mut client = Client::connect(api.address).await;
    client.send(raw).await;
    let answer = client.answer().await;
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json"),
        "{answer:?}"
    );
    assert_eq!(answer.json["status"], status);
    client.closed_within(SOON).await;
    assert_eq!(api.rows().await, 0);
}

#[tokio::test]
async fn au_24_two_different_content_lengths() {
    let body = job();
    let headers = format!("content-length: {}\r\ncontent-length: 5\r\n", body.len());
    check_refused(post(&headers, &body).as_bytes(), 400).await;
}

#[tokio::test]
async fn au_27_a_hundred_and_one_headers() {
    let headers: String = (0..101).map(|n| format!("x-{n}: y\r\n")).collect();
    check_refused(post(&headers, "").as_bytes(), 431).await;
}

#[tokio::test]
async fn au_27_one_header_of_64_kib() {
    let headers = format!("x: {}\r\n", "y".repeat(64 * 1024));
    check_refused(post(&headers, "").as_bytes(), 431).await;
}

#[tokio::test]
async fn a_hundred_headers_pass() {
    let api = Api::start().await;
    let body = job();
    let mut headers: String = (0..97).map(|n| format!("x-{n}: y\r\n")).collect();
    headers.push_str(&format!("content-length: {}\r\n", body.len()));
    let answer = api.raw(post(&headers, &body).as_bytes()).await;
    assert_eq!(answer.status, 202, "{answer:?}");
}

#[tokio::test]
async fn what_is_no_http_is_refused() {
    let api = Api::start().await;
    for raw in [
        "GARBAGE\r\n\r\n",
        "POST /v1/jobs HTTP/1.1\r\nbad header: x\r\n\r\n",
        "POST /v1/jobs HTTP/1.1\r\nhost : a\r\n\r\n",
        "POST /v1/jobs HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
        "POST /v1/jobs HTTP/1.1\r\nhost: a\r\ncontent-length: 1x\r\n\r\n",
        "POST /v1/jobs HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n",
        "POST /v1/jobs HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\n",
    ] {
        check_refused_by(&api, raw.as_bytes(), 400).await;
    }
}

#[tokio::test]
async fn a_length_beside_chunks_cannot_smuggle_a_request() {
    let api = Api::start().await;
    let body = job();
    let chunk = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let second = post(&format!("content-length: {}\r\n", body.len()), &body);
    let first = post(
        "content-length: 3\r\ntransfer-encoding: chunked\r\n",
        &chunk,
    );
    let mut client = Client::connect(api.address).await;
    client.send(format!("{first}{second}").as_bytes()).await;
    let answer = client.answer().await;
    assert!(matches!(answer.status, 202 | 400), "{answer:?}");
    assert!(
        client.try_answer().await.is_none(),
        "the second request was answered"
    );
    assert!(api.rows().await <= 1);
}

#[tokio::test]
async fn a_chunked_body_is_taken() {
    let api = Api::start().await;
    let body = job();
    let (front, back) = body.split_at(10);
    let chunks = format!(
        "{:x}\r\n{front}\r\n{:x}\r\n{back}\r\n0\r\n\r\n",
        front.len(),
        back.len()
    );
    let answer = api
        .raw(post("transfer-encoding: chunked\r\n", &chunks).as_bytes())
        .await;
    assert_eq!(answer.status, 202, "{answer:?}");
}

#[tokio::test]
async fn a_chunked_body_above_the_limit_is_refused_while_it_arrives() {
    let api = Api::with(&[
        ("HOOK_API_BODY_MAX", "16KiB"),
        ("HOOK_JOB_BODY_MAX", "8KiB"),
    ])
    .await;
    let chunk = format!("{:x}\r\n{}\r\n", 8192, "x".repeat(8192));
    let mut client = Client::connect(api.address).await;
    client
        .send(post("transfer-encoding: chunked\r\n", &chunk).as_bytes())
        .await;
    client.send(chunk.repeat(2).as_bytes()).await;
    client.answer().await.assert_problem(413, "body_too_large");
    client.closed_within(SOON).await;
}

#[tokio::test]
async fn a_head_that_does_not_arrive_is_answered_408() {
    let api = Api::with(&[("HOOK_API_HEAD_TIMEOUT", "300ms")]).await;
    let mut client = Client::connect(api.address).await;
    let begun = Instant::now();
    client.send(b"POST /v1/jobs HTTP/1.1\r\nhost: a\r\n").await;
    client.answer().await.assert_problem(408, "request_timeout");
    assert!(begun.elapsed() >= Duration::from_millis(250));
    client.closed_within(SOON).await;
}

#[tokio::test]
async fn a_head_that_dribbles_gets_no_more_time() {
    let api = Api::with(&[("HOOK_API_HEAD_TIMEOUT", "300ms")]).await;
    let mut client = Client::connect(api.address).await;
    let begun = Instant::now();
    client
        .dribble(&[b'x'; 100], Duration::from_millis(20))
        .await;
    client.closed_within(SOON).await;
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn an_idle_connection_is_closed_without_an_answer() {
    let api = Api::with(&[("HOOK_API_HEAD_TIMEOUT", "300ms")]).await;
    let mut fresh = Client::connect(api.address).await;
    let mut used = Client::connect(api.address).await;
    let body = job();
    let request = post(&format!("content-length: {}\r\n", body.len()), &body);
    used.send(request.as_bytes()).await;
    assert_eq!(used.answer().await.status, 202);
    for client in [&mut fresh, &mut used] {
        assert!(client.try_answer().await.is_none());
    }
}

#[tokio::test]
async fn requests_follow_each_other_on_one_connection() {
    let api = Api::with(&[("HOOK_API_HEAD_TIMEOUT", "2s")]).await;
    let mut client = Client::connect(api.address).await;
    let body = job();
    let request = post(&format!("content-length: {}\r\n", body.len()), &body);
    for _ in 0..5 {
        client.send(request.as_bytes()).await;
        assert_eq!(client.answer().await.status, 202);
        pause(Duration::from_millis(20)).await;
    }
    // Two at once are answered in order.
    client.send(request.repeat(2).as_bytes()).await;
    assert_eq!(client.answer().await.status, 202);
    assert_eq!(client.answer().await.status, 202);
    assert_eq!(api.rows().await, 7);
}

#[tokio::test]
async fn a_client_that_waits_for_100_continue_is_answered_early() {
    let api = Api::with(&[
        ("HOOK_API_BODY_MAX", "16KiB"),
        ("HOOK_JOB_BODY_MAX", "8KiB"),
    ])
    .await;
    let mut client = Client::connect(api.address).await;
    client
        .send(post("expect: 100-continue\r\ncontent-length: 20000\r\n", "").as_bytes())
        .await;
    client.answer().await.assert_problem(413, "body_too_large");
    let body = job();
    let head = post(
        &format!("expect: 100-continue\r\ncontent-length: {}\r\n", body.len()),
        "",
    );
    let mut client = Client::connect(api.address).await;
    client.send(head.as_bytes()).await;
    pause(Duration::from_millis(50)).await;
    client.send(body.as_bytes()).await;
    assert_eq!(client.answer().await.status, 202);
}

#[tokio::test]
async fn a_newcomer_takes_the_place_of_the_longest_idle_connection() {
    let api = Api::with(&[("HOOK_API_CONNECTIONS_MAX", "2")]).await;
    let body = job();
    let request = post(&format!("content-length: {}\r\n", body.len()), &body);
    let mut first = Client::connect(api.address).await;
    first.send(request.as_bytes()).await;
    assert_eq!(first.answer().await.status, 202);
    pause(Duration::from_millis(30)).await;
    let mut second = Client::connect(api.address).await;
    second.send(request.as_bytes()).await;
    assert_eq!(second.answer().await.status, 202);
    let mut third = Client::connect(api.address).await;
    third.send(request.as_bytes()).await;
    assert_eq!(third.answer().await.status, 202);
    first.closed_within(SOON).await;
    second.send(request.as_bytes()).await;
    assert_eq!(second.answer().await.status, 202);
}

#[tokio::test]
async fn when_no_connection_is_idle_a_newcomer_is_answered_503() {
    let api = Api::with(&[("HOOK_API_CONNECTIONS_MAX", "1")]).await;
    let mut busy = Client::connect(api.address).await;
    busy.send(b"POST /v1/jobs HTTP/1.1\r\nhost: a\r\n").await;
    // The head has to be seen to have begun before the connection counts as busy.
    wait_for(
        Duration::from_secs(5),
        async || {
            let mut other = Client::connect(api.address).await;
            other
                .send(b"GET /v1/queues HTTP/1.1\r\nhost: a\r\n\r\n")
                .await;
            other.try_answer().await.map(|answer| answer.status)
        },
        |status| *status == Some(503),
    )
    .await;
}

#[tokio::test]
async fn api_06_framework_refusals_are_problem_documents() {
    let api = Api::start().await;
    api.send("DELETE", "/v1/jobs", &[], b"")
        .await
        .assert_problem(405, "method_not_allowed");
    let answer = api.send("PUT", "/v1/jobs/batch", &[], b"").await;
    answer.assert_problem(405, "method_not_allowed");
    assert!(
        answer
            .header("allow")
            .is_some_and(|allow| allow.contains("post")),
        "{answer:?}"
    );
    api.get("/v1/nothing")
        .await
        .assert_problem(404, "not_found");
    api.get("/v1/jobs/%ff")
        .await
        .assert_problem(404, "not_found");
    let answer = api.send("GET", "/v1/jobs", &[], b"{}").await;
    answer.assert_problem(400, "request_invalid");
    let json = [("content-type", "application/json")];
    let answer = api
        .send(
            "POST",
            "/v1/jobs",
            &json,
            b"{\"url\":\"http://a\xff.com/\"}",
        )
        .await;
    answer.assert_problem(400, "json_invalid");
    let answer = api.send("OPTIONS", "*", &[], b"").await;
    assert!(matches!(answer.status, 404 | 405), "{answer:?}");
    assert_eq!(api.rows().await, 0);
}
