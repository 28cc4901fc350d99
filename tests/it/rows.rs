//! Rows that no API has checked: a worker makes the best of each, and serves what waits behind.

use hook_testkit::{db::TestDb, process::Program, sink::Sink, stack::Stack};
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::kit::{LIMIT, assert_ended, enqueue_by_sql, wait_drained};

/// URLs of US-01 to US-44 and DEL-12. Each is refused by `hook.enqueue` or by the worker.
const URLS: [(&str, &str); 35] = [
    ("US-01", ""),
    ("US-03", "//example.com/x"),
    ("US-07", "http://a:b@"),
    ("US-08", "http://."),
    ("US-11", "http://exa mple.com/"),
    ("US-13", "http://example.com/\r\nX: y"),
    ("US-14", "http://exa\tmple.com/"),
    ("US-17", "http://[::1"),
    ("US-18", "http://[127.0.0.1]/"),
    ("US-19", "http://999.1.1.1/"),
    ("US-20", "http://1.2.3.4.5/"),
    ("US-21", "http://08.8.8.8/"),
    ("US-23", "http://xn--/"),
    ("US-24", "http://example.com:65536/"),
    ("US-29", "http://example.com:6667/"),
    ("US-31", "file:///etc/passwd"),
    ("US-32", "gopher://127.0.0.1:6379/_FLUSHALL"),
    ("US-35", "data:text/plain,hi"),
    ("US-36", "javascript:alert(1)"),
    ("US-39", "blob:https://example.com/x"),
    ("US-40", "mailto:a@example.com"),
    ("SD-31", "http://xn--localhost-.test/"),
    ("DEL-12", "http://a\"b.test/"),
    ("DEL-12", "http://sink.test:99999/"),
    ("DEL-12", "ftp://sink.test/"),
    ("DEL-12", "//sink.test/"),
    ("DEL-12", "not a url"),
    ("DEL-12", "http://ex ample.test/"),
    ("DEL-12", "javascript:1"),
    ("of the kind", "http://example.com:22/"),
    ("of the kind", "http://example.com:0/"),
    ("of the kind", "http://a_b%00.test/"),
    ("of the kind", "http://[fe80::1%25eth0]/"),
    ("of the kind", "http://example.com:8o/"),
    ("of the kind", "http://a..test/"),
];

/// Headers of HD-01 to HD-36.
const HEADERS: [(&str, &str, &str); 20] = [
    ("HD-01", "X-A", "1\r\nX-Injected: 1"),
    ("HD-06", "X A", "v"),
    ("HD-07", "X:A", "v"),
    ("HD-10", "Ünï", "v"),
    ("HD-11", "X-A", "é"),
    ("HD-15", "Content-Length", "3"),
    ("HD-17", "Transfer-Encoding", "chunked"),
    ("HD-18", "Host", "internal.svc"),
    ("HD-21", "Proxy-Connection", "close"),
    ("HD-22", "Upgrade", "h2c"),
    ("HD-25", "Expect", "100-continue"),
    ("HD-26", "Proxy-Authorization", "Basic x"),
    ("HD-28", ":authority", "x"),
    ("HD-29", "webhook-id", "msg_x"),
    ("HD-30", "webhook-timestamp", "1"),
    ("HD-34", "Metadata", "true"),
    ("of the kind", "webhook-signature", "v1,x"),
    ("of the kind", "X-aws-ec2-metadata-token", "x"),
    ("of the kind", "", "v"),
    ("of the kind", "Keep-Alive", "timeout=5"),
];

async fn enqueue_with_headers(pool: &PgPool, url: &str, headers: &Value) -> sqlx::Result<String> {
    sqlx::query_scalar("SELECT hook.enqueue($1, headers => $2)")
        .bind(url)
        .bind(headers)
        .fetch_one(pool)
        .await
}

/// DEL-12, US, HD and SD-31 by the API and by SQL, with twenty good jobs behind them.
#[tokio::test]
async fn del_12_us_hd_what_cannot_be_sent_ends_and_holds_up_nobody() {
    let db = TestDb::new().await;
    let pool = db.pool().await;
    let sink = Sink::start(200).await;
    let mut stack = Stack::builder(&db.url()).start().await;
    let pids = stack.pids();
    let mut bad = Vec::new();
    let mut taken = 0;
    for (what, url) in URLS {
        let reply = stack.enqueue(&json!({"url": url})).await;
        assert_eq!(
            (reply.status, reply.pointers()),
            (422, vec!["/url".to_owned()]),
            "{what} {url:?}: DEL-12 says 400, the contract 422; {}",
            reply.text()
        );
        match enqueue_by_sql(&pool, url).await {
            Ok(id) => {
                taken += 1;
                bad.push((what, id));
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("hook.enqueue: url"), "{what}: {text}");
            }
        }
    }
    assert!(taken >= 12, "{taken} were left to the worker");
    let long = "a".repeat(8_193);
    let label = format!("http://{}.test/", "a".repeat(64));
    bad.push((
        "US-42",
        enqueue_by_sql(&pool, &label)
            .await
            .expect("left to the worker"),
    ));
    let error = enqueue_by_sql(&pool, &format!("http://sink.test/{long}")).await;
    assert!(error.unwrap_err().to_string().contains("8 KiB"), "US-44");
    for (what, name, value) in HEADERS {
        let headers = json!({name: value});
        let reply = stack
            .enqueue(&json!({"url": sink.url("/"), "headers": headers}))
            .await;
        assert_eq!(reply.status, 422, "{what}: {}", reply.text());
        assert!(
            matches!(&reply.code()[..], "header_invalid" | "header_reserved"),
            "{what}: {}",
            reply.text()
        );
        let id = enqueue_with_headers(&pool, &sink.url("/"), &headers).await;
        bad.push((what, id.expect("left to the worker")));
    }
    let headers = json!({"X-Long": long});
    let id = enqueue_with_headers(&pool, &sink.url("/"), &headers).await;
    bad.push(("HD-36", id.expect("left to the worker")));
    for value in [
        json!({"X-A": 7}),
        json!({"X-A": null}),
        json!([]),
        json!("x"),
    ] {
        let refused = enqueue_with_headers(&pool, &sink.url("/"), &value).await;
        assert!(
            refused.unwrap_err().to_string().contains("header"),
            "HD-12, HD-13"
        );
    }
    // US-15, HD-04: Postgres keeps NUL out of texts and documents by itself.
    assert!(
        enqueue_by_sql(&pool, "http://example.com/\0")
            .await
            .is_err()
    );
    let nul = json!({"X-A": "a\0b"});
    assert!(
        enqueue_with_headers(&pool, &sink.url("/"), &nul)
            .await
            .is_err()
    );
    let mut good = Vec::new();
    for _ in 0..20 {
        good.push(
            enqueue_by_sql(&pool, &sink.url("/good"))
                .await
                .expect("a good job"),
        );
    }
    for (what, id) in bad {
        let job = stack.wait_final(&id, LIMIT).await;
        assert_eq!(job["status"], "failed", "{what}");
        assert_ended(&job, "failed", 1, Some("invalid_request"));
    }
    for id in good {
        assert_ended(&stack.wait_final(&id, LIMIT).await, "completed", 1, None);
    }
    assert_eq!(sink.request_count(), 20);
    assert_eq!(stack.pids(), pids);
    assert!(stack.all_run());
}

/// RW-01, RW-03, RW-05, API-04: values that no API would store.
#[tokio::test]
async fn rw_01_rw_03_rw_05_api_04_odd_values_do_no_harm() {
    let db = TestDb::new().await;
    let pool = db.pool().await;
    let (sink, canary) = (
        Sink::start(200).await,
        Sink::builder(200).bind([127, 0, 0, 2]).start().await,
    );
    let mut stack = Stack::builder(&db.url())
        .set("HOOK_ALLOW_NETS", "127.0.0.1/32")
        .start()
        .await;
    // RW-01 asks for `invalid_request`; by the contract a target of one's own is no lie but a way
    // to group jobs. What it may not do is to choose the address.
    let with_target = "SELECT hook.enqueue($1, target => 'other.test')";
    let grouped: String = sqlx::query_scalar(with_target)
        .bind(sink.url("/"))
        .fetch_one(&pool)
        .await
        .unwrap();
    let job = stack.wait_final(&grouped, LIMIT).await;
    assert_ended(&job, "completed", 1, None);
    assert_eq!(job["target"], "other.test");
    let lie: String = sqlx::query_scalar("SELECT hook.enqueue($1, target => '127.0.0.1')")
        .bind(canary.url("/"))
        .fetch_one(&pool)
        .await
        .unwrap();
    let job = stack.wait_final(&lie, LIMIT).await;
    assert_ended(&job, "failed", 1, Some("blocked_address"));

    // RW-05: long ago is now. API-04: what no clock can show is refused.
    let when = "SELECT hook.enqueue($1, scheduled_at => $2::text::timestamptz)";
    for (time, runs) in [
        ("-infinity", true),
        ("0001-01-01T00:00:00Z", true),
        ("infinity", false),
        ("294276-12-31", false),
        ("10000-01-01", false),
    ] {
        let id: sqlx::Result<String> = sqlx::query_scalar(when)
            .bind(sink.url("/"))
            .bind(time)
            .fetch_one(&pool)
            .await;
        assert_eq!(id.is_ok(), runs, "{time}: {id:?}");
        if let Ok(id) = id {
            assert_ended(&stack.wait_final(&id, LIMIT).await, "completed", 1, None);
        }
    }
    let id = enqueue_by_sql(&pool, &sink.url("/later")).await.unwrap();
    stack.wait_final(&id, LIMIT).await;
    for (table, column) in [("job", "scheduled_at"), ("finished", "finished_at")] {
        for time in ["infinity", "-infinity", "294276-12-31"] {
            let planted = format!("UPDATE hook.{table} SET {column} = '{time}'");
            let error = sqlx::raw_sql(sqlx::AssertSqlSafe(planted))
                .execute(&pool)
                .await;
            assert!(error.is_err(), "API-04: {table}.{column} took {time}");
        }
    }
    // RW-03: an attempt count beyond all bounds cannot be stored, the highest that can is final.
    stack.workers[0].terminate(LIMIT).await;
    stack.workers.clear();
    let many: String = enqueue_by_sql(&pool, &canary.url("/")).await.unwrap();
    let set = "UPDATE hook.ready SET attempt = $1";
    assert!(
        sqlx::query(set)
            .bind(i32::MAX)
            .execute(&pool)
            .await
            .is_err()
    );
    sqlx::query(set).bind(999_999).execute(&pool).await.unwrap();
    stack.start_worker().await;
    let job = stack.wait_final(&many, LIMIT).await;
    assert_eq!(
        (&job["status"], &job["attempt"]),
        (&json!("failed"), &json!(1_000_000))
    );
    for _ in 0..20 {
        enqueue_by_sql(&pool, &sink.url("/")).await.unwrap();
    }
    wait_drained(&pool).await;
    assert!(stack.all_run());
    assert_eq!(canary.connection_count(), 0);
    for program in [Program::Worker, Program::Janitor] {
        let panics = stack.metrics(program).await;
        assert_eq!(panics.sum("hook_panics_total", &[]), 0.0);
    }
}
