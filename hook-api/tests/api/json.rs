//! Requests that are not what they should be, one exact answer each (cases JS-*).

use std::time::Duration;

use serde_json::{Value, json};

use tokio::time::Instant;

use super::kit::{Api, Client, URL};

/// Whether a text tells where in the request something is.
fn is_located(detail: &str) -> bool {
    detail.contains("line ") && detail.contains("column ")
}

/// What is not JSON, or no object, is answered 400 with its position.
async fn check_invalid(bodies: &[&str]) {
    let api = Api::start().await;
    for body in bodies {
        let answer = api.post("/v1/jobs", body).await;
        answer.assert_problem(400, "json_invalid");
        let detail = answer.json["detail"].as_str().unwrap();
        assert!(is_located(detail), "{body}: {answer:?}");
    }
    assert_eq!(api.rows().await, 0);
}

#[tokio::test]
async fn js_03_trailing_comma() {
    check_invalid(&["[1,]", r#"{"url":"http://x.test/",}"#]).await;
}

#[tokio::test]
async fn js_04_trailing_text() {
    check_invalid(&["{} x", "{}{}"]).await;
}

#[tokio::test]
async fn js_06_single_quotes() {
    check_invalid(&["{'a':1}"]).await;
}

#[tokio::test]
async fn js_09_duplicate_keys() {
    check_invalid(&[r#"{"url":"http://sink.test/","url":"http://x.test/"}"#]).await;
}

#[tokio::test]
async fn js_10_13_14_not_an_object() {
    check_invalid(&["null", "1", "true", "\"x\"", "[]", "", " "]).await;
}

#[tokio::test]
async fn js_16_a_hundred_thousand_brackets() {
    let api = Api::start().await;
    let body = "[".repeat(100_000);
    let begun = Instant::now();
    let answer = api.post("/v1/jobs", &body).await;
    answer.assert_problem(400, "json_invalid");
    assert!(begun.elapsed() < Duration::from_secs(1));
    for depth in [126, 129, 100_000] {
        let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let answer = api
            .post(
                "/v1/jobs",
                &format!(r#"{{"url":"{URL}","payload":{nested}}}"#),
            )
            .await;
        match answer.status {
            202 => assert_eq!(depth, 126),
            _ => {
                answer.assert_problem(400, "json_invalid");
                assert!(answer.json["detail"].as_str().unwrap().contains("128"));
            }
        }
    }
}

#[tokio::test]
async fn js_17_unknown_field() {
    let api = Api::start().await;
    let answer = api
        .post("/v1/jobs", r#"{"url":"https://example.com/","surprise":1}"#)
        .await;
    answer.assert_problem(422, "unknown_field");
    answer.assert_names("/surprise");
    assert_eq!(api.rows().await, 0);
}

/// One field with values that it cannot have.
async fn check_field(name: &str, values: &[Value]) {
    let api = Api::start().await;
    for value in values {
        let mut job = json!({"url": URL, "payload": 1});
        job[name] = value.clone();
        let answer = api.post("/v1/jobs", &job.to_string()).await;
        answer.assert_problem(422, "field_invalid");
        answer.assert_names(&format!("/{name}"));
    }
    assert_eq!(api.rows().await, 0);
}

#[tokio::test]
async fn js_18_20_21_url_of_another_type() {
    check_field("url", &[json!(null), json!([]), json!({}), json!(7)]).await;
}

#[tokio::test]
async fn js_22_23_25_method_that_is_not_offered() {
    let words = ["TRACE", "CONNECT", "", "HEAD", "OPTIONS", "P0ST"];
    check_field("method", &words.map(Value::from)).await;
}

#[tokio::test]
async fn js_27_31_max_attempts() {
    let values = [json!(0), json!("3"), json!(101), json!(1.5), json!(-1)];
    check_field("max_attempts", &values).await;
}

#[tokio::test]
async fn js_33_34_timeout_ms() {
    check_field("timeout_ms", &[json!(0), json!(600_001), json!(60_001)]).await;
}

#[tokio::test]
async fn js_35_37_scheduled_at() {
    let words = ["infinity", "2026-02-30T00:00:00Z", "tomorrow"];
    check_field("scheduled_at", &words.map(Value::from)).await;
}

/// The contract wins over the case: there is no field `queue`, so it is an unknown one.
#[tokio::test]
async fn js_39_sql_in_a_field() {
    let api = Api::start().await;
    let body = json!({"url": URL, "queue": "x'; DROP TABLE hook.job; --"});
    let answer = api.post("/v1/jobs", &body.to_string()).await;
    answer.assert_problem(422, "unknown_field");
    answer.assert_names("/queue");
    let body = json!({"url": URL, "target": "x'; DROP TABLE hook.job; --"});
    assert_eq!(api.post("/v1/jobs", &body.to_string()).await.status, 202);
    assert_eq!(api.rows().await, 1);
}

#[tokio::test]
async fn js_45_46_idempotency_key() {
    let values = [json!("k".repeat(256)), json!("a\nb"), json!("")];
    check_field("idempotency_key", &values).await;
}

#[tokio::test]
async fn js_49_a_number_that_explodes_in_jsonb() {
    let api = Api::start().await;
    let body = format!(r#"{{"url":"{URL}","metadata":{{"n":1e130000}}}}"#);
    let answer = api.post("/v1/jobs", &body).await;
    if answer.status == 202 {
        let id = answer.json["id"].as_str().unwrap();
        let job = api.get(&format!("/v1/jobs/{id}")).await;
        assert!(
            String::from_utf8(job.body)
                .unwrap()
                .contains(r#""metadata":{"n":1e130000}"#)
        );
    } else {
        answer.assert_problem(422, "field_invalid");
    }
}

#[tokio::test]
async fn js_50_a_payload_is_opaque() {
    let api = Api::start().await;
    let payload =
        r#"{"a":"\u0000","b":"\ud800","c":1e400,"d":123456789012345678901234567890,"d":2}"#;
    let id = api
        .enqueue(&format!(r#"{{"url":"{URL}","payload":{payload} }}"#))
        .await;
    let stored: Vec<u8> = sqlx::query_scalar("SELECT body FROM hook.job WHERE job_id = $1::uuid")
        .bind(&id)
        .fetch_one(&api.pool)
        .await
        .unwrap();
    assert_eq!(String::from_utf8(stored).unwrap(), payload);
    let job = api.get(&format!("/v1/jobs/{id}?body=true")).await;
    assert_eq!(job.json["body"], payload);
}

#[tokio::test]
async fn js_52_sizes_at_the_limit() {
    let api = Api::with(&[
        ("HOOK_API_BODY_MAX", "64KiB"),
        ("HOOK_JOB_BODY_MAX", "32KiB"),
    ])
    .await;
    let of_job = |bytes: usize| format!(r#"{{"url":"{URL}","body":"{}"}}"#, "x".repeat(bytes));
    assert_eq!(api.post("/v1/jobs", &of_job(32 * 1024)).await.status, 202);
    let answer = api.post("/v1/jobs", &of_job(32 * 1024 + 1)).await;
    answer.assert_problem(413, "body_too_large");
    let padded = |bytes: usize| {
        let job = format!(r#"{{"url":"{URL}"}}"#);
        format!("{job}{}", " ".repeat(bytes - job.len()))
    };
    assert_eq!(api.post("/v1/jobs", &padded(64 * 1024)).await.status, 202);
    let answer = api.post("/v1/jobs", &padded(64 * 1024 + 1)).await;
    answer.assert_problem(413, "body_too_large");
    assert_eq!(api.rows().await, 2);
}

#[tokio::test]
async fn js_55_a_declared_size_is_not_waited_for_or_allocated() {
    let api = Api::with(&[("HOOK_API_BODY_TIMEOUT", "300ms")]).await;
    // Above the limit: refused at once.
    let head = "POST /v1/jobs HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n";
    let answer = api
        .raw(format!("{head}content-length: 9999999999\r\n\r\n{{").as_bytes())
        .await;
    answer.assert_problem(413, "body_too_large");
    // Below it: the body's deadline.
    let mut client = Client::connect(api.address).await;
    client
        .send(format!("{head}content-length: 1000000\r\n\r\n{{").as_bytes())
        .await;
    let answer = client.answer().await;
    answer.assert_problem(408, "request_timeout");
    client.closed_within(Duration::from_secs(2)).await;
    assert_eq!(api.rows().await, 0);
}

#[tokio::test]
async fn js_56_pay_10_compressed_bodies_are_refused_unread() {
    use std::io::Write as _;
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..128 {
        bomb.write_all(&[b' '; 1024 * 1024]).unwrap();
    }
    let bomb = bomb.finish().unwrap();
    let api = Api::start().await;
    for coding in ["gzip", "br", "zstd", "deflate", "gzip, identity"] {
        let headers = [
            ("content-type", "application/json"),
            ("content-encoding", coding),
        ];
        let answer = api.send("POST", "/v1/jobs", &headers, &bomb).await;
        answer.assert_problem(415, "encoding_unsupported");
    }
    for coding in ["gzip, chunked", "chunked\r\ntransfer-encoding: chunked"] {
        let head = "POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-type: application/json";
        let raw = format!("{head}\r\ntransfer-encoding: {coding}\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n");
        let answer = api.raw(raw.as_bytes()).await;
        answer.assert_problem(415, "encoding_unsupported");
    }
    let headers = [
        ("content-type", "application/json"),
        ("content-encoding", "identity"),
    ];
    let body = format!(r#"{{"url":"{URL}"}}"#);
    let answer = api
        .send("POST", "/v1/jobs", &headers, body.as_bytes())
        .await;
    assert_eq!(answer.status, 202);
    assert_eq!(api.rows().await, 1);
}

#[tokio::test]
async fn js_57_content_types_of_browser_forms() {
    let api = Api::start().await;
    let body = format!(r#"{{"url":"{URL}"}}"#);
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "",
    ] {
        let answer = api
            .send(
                "POST",
                "/v1/jobs",
                &[("content-type", kind)],
                body.as_bytes(),
            )
            .await;
        answer.assert_problem(415, "content_type");
    }
    api.send("POST", "/v1/jobs", &[], body.as_bytes())
        .await
        .assert_problem(415, "content_type");
    for kind in ["application/json; charset=utf-8", "Application/JSON"] {
        let answer = api
            .send(
                "POST",
                "/v1/jobs",
                &[("content-type", kind)],
                body.as_bytes(),
            )
            .await;
        assert_eq!(answer.status, 202, "{answer:?}");
    }
    // One job a line is a content type of the batch alone.
    let lines = [("content-type", "application/x-ndjson")];
    let answer = api.send("POST", "/v1/jobs", &lines, body.as_bytes()).await;
    answer.assert_problem(415, "content_type");
    assert_eq!(api.rows().await, 2);
}

#[tokio::test]
async fn every_error_of_a_request_is_listed_at_once() {
    let api = Api::start().await;
    let body = json!({"url": "ftp://x/", "method": "NO", "max_attempts": 0, "oops": 1, "headers": {"host": "x"}});
    let answer = api.post("/v1/jobs", &body.to_string()).await;
    assert_eq!(answer.status, 422);
    for pointer in ["/url", "/method", "/max_attempts", "/oops", "/headers/host"] {
        answer.assert_names(pointer);
    }
    let first = &answer.json["errors"][0]["code"];
    assert_eq!(&answer.json["code"], first);
}
