//! Secrets of producers are found nowhere but where they are meant to be.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hook_testkit::{
    db::TestDb,
    dns::{Dns, zone::Reply},
    process::{Listener, Program},
    proxy::ClosedPort,
    sink::{
        Sink,
        answer::{Answer, End},
        script::Script,
        tls::Tls,
    },
    stack::Stack,
};
use serde_json::{Value, json};
#[expect(
    clippy::disallowed_types,
    reason = "a dump asks for tables by names that only the catalogue knows"
)]
use sqlx::AssertSqlSafe;
use sqlx::PgPool;

use crate::kit::{LIMIT, assert_ended};

const USER_INFO: &str = "s3cr3t";
const BASIC: &str = "aG9va3VzZXI6czNjcjN0";
const PATH: &str = "SECRETTOKEN123";
const QUERY: &str = "SECRETSIG456";
const HEADER: &str = "SECRETHDR789";
const BODY: &str = "SECRETBODY000";
const SIGNING: [u8; 24] = [0x5a; 24];

/// Every row of every table of the schema as text, by table.
async fn dump(pool: &PgPool) -> Vec<(String, String)> {
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT quote_ident(c.relname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = 'hook' AND c.relkind = 'r' ORDER BY 1",
    )
    .fetch_all(pool)
    .await
    .expect("tables can be listed");
    let mut dump = Vec::new();
    for table in tables {
        // The name comes from the catalogue and is quoted; a table cannot be a parameter.
        let rows: Vec<String> = sqlx::query_scalar(AssertSqlSafe(format!(
            "SELECT r::text FROM hook.{table} AS r"
        )))
        .fetch_all(pool)
        .await
        .expect("a table can be read");
        dump.push((table, rows.join("\n")));
    }
    dump
}

/// Bytes as `bytea` shows them in a dump.
fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// URL-02, URL-03, US-47, HD-42, SG-10, SG-12: every kind of failure, at the most talkative level.
#[tokio::test]
async fn url_02_url_03_us_47_hd_42_sg_10_sg_12_nothing_leaks() {
    let db = TestDb::new().await;
    let dns = Dns::start().await;
    dns.set("sink.test", Reply::loopback());
    dns.set("blocked.test", Reply::parse(&["10.0.0.1"]));
    let key = BASE64_STANDARD.encode([7; 32]);
    let stack = Stack::builder(&db.url())
        .set("HOOK_LOG", "trace")
        .set("HOOK_DNS_SERVERS", dns.address())
        .set("HOOK_ATTEMPT_TIMEOUT", "1s")
        .set("HOOK_CONNECT_TIMEOUT", "1s")
        .set("HOOK_MAX_ATTEMPTS", 2)
        .set("HOOK_RETRY_SCHEDULE", "100ms")
        .set_for(Program::Api, "HOOK_SECRET_KEY", &key)
        .set_for(Program::Worker, "HOOK_SECRET_KEY", &key)
        .start()
        .await;
    let secret = format!("whsec_{}", BASE64_STANDARD.encode(SIGNING));
    let put = stack
        .client()
        .put(stack.api_url("/v1/secrets/orders"))
        .json(&json!({"secret": secret}));
    let put = stack.send(put).await;
    assert!(put.status < 300, "{}", put.text());
    let refused = stack
        .client()
        .put(stack.api_url("/v1/secrets/orders"))
        .json(&json!({"secret": format!("{}!", &secret)}));
    let refused = stack.send(refused).await;
    assert_eq!(refused.status, 422);

    let statuses = Sink::start(Script::status_in_path()).await;
    let silent = Sink::start(Answer::silence()).await;
    let odd = Sink::start(Answer::literal("SSH-2.0-x\r\n")).await;
    let cut =
        Sink::start(Answer::ok().end_at(hook_testkit::sink::answer::Stage::BodyRead, End::Reset))
            .await;
    let bad_tls = Sink::builder(200).tls(Tls::tls10_only()).start().await;
    let closed = ClosedPort::new();
    let path = format!("/services/T000/B000/{PATH}?sig={QUERY}");
    let urls = [
        (
            statuses.url_at("hookuser:s3cr3t@sink.test", &format!("/500{path}")),
            "http_status",
        ),
        (
            statuses.url_at("sink.test", &format!("/404{path}")),
            "http_status",
        ),
        (
            statuses.url_at("sink.test", &format!("/302{path}")),
            "redirect",
        ),
        (silent.url_at("sink.test", &path), "timeout"),
        (odd.url_at("sink.test", &path), "invalid_response"),
        (cut.url_at("sink.test", &path), "reset"),
        (bad_tls.url_at("sink.test", &path), "tls"),
        (
            format!("http://sink.test:{}{path}", closed.address().port()),
            "connect",
        ),
        (statuses.url_at("nowhere.test", &path), "dns"),
        (statuses.url_at("blocked.test", &path), "blocked_address"),
    ];
    let mut jobs = Vec::new();
    for (n, (url, kind)) in urls.iter().enumerate() {
        let mut job = json!({
            "url": url,
            "payload": BODY,
            "target": format!("t{n}"),
            "signing": {"secrets": ["orders"]},
            "headers": {"X-Api-Key": HEADER, "Cookie": format!("a={HEADER}")},
        });
        if n > 0 {
            job["headers"]["Authorization"] = json!(format!("Bearer {HEADER}"));
        }
        jobs.push((stack.enqueue_id(&job).await, *kind));
    }
    // What is refused is repeated to nobody either.
    for job in [
        json!({"url": format!("http://sink.test:22{path}"), "payload": BODY}),
        json!({"url": statuses.url("/"), "headers": {"X-Api-Key": format!("{HEADER}\n")}}),
        json!({"url": statuses.url("/"), "headers": {"Host": HEADER}, "body": BODY}),
    ] {
        let reply = stack.enqueue(&job).await;
        assert_eq!(reply.status, 422);
        for marker in [PATH, QUERY, HEADER, BODY] {
            assert!(!reply.text().contains(marker), "{}", reply.text());
        }
    }
    for (id, kind) in &jobs {
        let job = stack.wait_final(id, LIMIT).await;
        let attempt = job["attempt"]
            .as_u64()
            .and_then(|n| u32::try_from(n).ok())
            .expect("a number");
        assert_ended(&job, "failed", attempt, Some(kind));
        assert_eq!(
            attempt == 2,
            !matches!(job["attempts"][0]["outcome"].as_str(), Some("permanent"))
        );
        let text = job.to_string();
        for marker in [USER_INFO, BASIC, PATH, QUERY, HEADER, BODY] {
            assert!(!text.contains(marker), "{marker} in {text}");
        }
        let whole = stack.get(&format!("/v1/jobs/{id}?body=true")).await.text();
        for marker in [PATH, QUERY, HEADER, BODY] {
            assert!(whole.contains(marker), "whoever asks is shown {marker}");
        }
        assert!(
            !whole.contains(USER_INFO),
            "user info is not kept in the URL"
        );
    }
    // URL-02: what was sent is what was meant.
    let sent = &statuses.requests_for(&jobs[0].0)[0];
    assert_eq!(
        sent.header("authorization"),
        Some(&format!("Basic {BASIC}")[..])
    );
    assert_eq!(
        sent.header("host"),
        Some(&format!("sink.test:{}", statuses.port())[..])
    );
    assert_eq!(sent.header("x-api-key"), Some(HEADER));
    assert!(sent.path.starts_with("/500/services/"));
    assert!(sent.header("webhook-signature").is_some());

    let signing = secret["whsec_".len()..].to_owned();
    let markers = [USER_INFO, BASIC, PATH, QUERY, HEADER, BODY, &signing, &key];
    assert!(
        stack.logs_contain("attempt finished"),
        "the logs are talkative"
    );
    for line in stack.logs() {
        for marker in markers {
            assert!(
                !line.text.contains(marker),
                "{marker} in a log: {}",
                line.text
            );
        }
    }
    for process in stack.processes() {
        let ops = process.address(Listener::Ops, LIMIT).await;
        for path in ["metrics", "readyz", "livez"] {
            let reply = stack
                .send(stack.client().get(format!("http://{ops}/{path}")))
                .await;
            for marker in markers {
                assert!(!reply.text().contains(marker), "{marker} in {path}");
            }
        }
    }
    // At rest: headers and secrets are sealed; URL and body lie where they are meant to be.
    for (table, text) in dump(&db.pool().await).await {
        for marker in [USER_INFO, BASIC, HEADER, &signing, &key] {
            assert!(!text.contains(marker), "{marker} in hook.{table}");
            assert!(!text.contains(&hex(marker)), "{marker} in hook.{table}");
        }
        if !table.starts_with("job_") {
            for marker in [PATH, QUERY, BODY] {
                assert!(!text.contains(marker), "{marker} in hook.{table}");
                assert!(!text.contains(&hex(marker)), "{marker} in hook.{table}");
            }
        }
    }
    let listed = stack.get("/v1/secrets/orders").await;
    let shown: Value = listed.json();
    assert_eq!(
        (&shown["name"], &shown["last_four"]),
        (&json!("orders"), &json!("Wlpa"))
    );
    assert!(!listed.text().contains(&signing[..12]), "SG-10");
    stack.get("/v1/jobs?limit=500").await.json()["jobs"]
        .as_array()
        .expect("a list")
        .iter()
        .for_each(|job| assert!(!job.to_string().contains(HEADER)));
}

/// A change of keys: what was sealed before is opened by the old key, and only while it is given.
#[tokio::test]
async fn sealed_headers_survive_a_change_of_keys() {
    let db = TestDb::new().await;
    let sink = Sink::start(200).await;
    let (old, new) = (
        BASE64_STANDARD.encode([1; 32]),
        BASE64_STANDARD.encode([2; 32]),
    );
    let mut stack = Stack::builder(&db.url())
        .set("HOOK_RETRY_SCHEDULE", "100ms")
        .set_for(Program::Api, "HOOK_SECRET_KEY", &old)
        .set_for(Program::Worker, "HOOK_SECRET_KEY", &new)
        .start()
        .await;
    let job =
        json!({"url": sink.url("/"), "headers": {"Authorization": "Bearer x"}, "target": "a.test"});
    let id = stack.enqueue_id(&job).await;
    let ended = stack.wait_final(&id, LIMIT).await;
    assert_ended(&ended, "failed", 3, Some("internal"));
    assert_eq!(
        sink.request_count(),
        0,
        "nothing goes out without its header"
    );
    stack.workers[0].terminate(LIMIT).await;
    stack.workers.clear();
    let worker = stack
        .process(Program::Worker)
        .await
        .set("HOOK_SECRET_KEY", &new)
        .set("HOOK_SECRET_KEYS_OLD", &old)
        .start();
    worker.wait_ready(Duration::from_secs(60)).await;
    let reply = stack
        .post(&format!("/v1/jobs/{id}/retry"), &json!({}))
        .await;
    assert!(reply.status < 300, "{}", reply.text());
    let ended = stack.wait_final(&id, LIMIT).await;
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(sink.requests()[0].header("authorization"), Some("Bearer x"));
}
