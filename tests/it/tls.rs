//! Receivers that speak TLS badly, seen through the whole product.

use std::time::Duration;

use hook_testkit::{
    certs::{TestAuthority, self_signed_server},
    db::TestDb,
    dns::{Dns, zone::Reply},
    process::Program,
    sink::{Sink, tls::Tls},
    stack::Stack,
};
use serde_json::json;

use crate::kit::{LIMIT, assert_ended, attempts};

/// NET-18, TL-02, TL-03, TL-07, TL-09, URL-05.
#[tokio::test]
async fn net_18_tl_02_tl_03_tl_07_tl_09_only_a_proven_receiver_gets_the_request() {
    let db = TestDb::new().await;
    let dns = Dns::start().await;
    dns.set_others(|_| Some(Reply::loopback()));
    let (authority, stranger) = (TestAuthority::new(), TestAuthority::new());
    let name = &["sink.test"][..];
    let good = authority.server_by_name(&["sink.test", "xn--mller-kva.test"]);
    let bad = [
        ("expired", Tls::Serve(authority.expired_server(name)), "tls"),
        (
            "TL-02 wrong name",
            Tls::Serve(authority.server(&["other.test"])),
            "tls",
        ),
        (
            "TL-03 self-signed",
            Tls::Serve(self_signed_server(name)),
            "tls",
        ),
        (
            "unknown authority",
            Tls::Serve(stranger.server(name)),
            "tls",
        ),
        ("too old", Tls::tls10_only(), "tls"),
        (
            "plain HTTP",
            Tls::Say(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
            "tls",
        ),
        ("stalled", Tls::Stall, "timeout"),
        (
            "TL-07 one byte at a time",
            Tls::Drip(authority.server(name), Duration::from_millis(200)),
            "timeout",
        ),
    ];
    let builder = Stack::builder(&db.url())
        .set("HOOK_DNS_SERVERS", dns.address())
        .set("HOOK_CONNECT_TIMEOUT", "1s")
        .set("HOOK_RETRY_SCHEDULE", "100ms")
        .set("HOOK_MAX_ATTEMPTS", 2)
        .set_for(
            Program::Worker,
            "HOOK_EGRESS_CA_FILE",
            authority.pem_file().display(),
        );
    let mut stack = builder.clone().start().await;
    let mut jobs = Vec::new();
    for (what, tls, kind) in bad {
        let sink = Sink::builder(200).tls(tls).start().await;
        let job = json!({"url": sink.url_at("sink.test", "/"), "target": what, "payload": 1});
        jobs.push((what, stack.enqueue_id(&job).await, sink, kind));
    }
    for (what, id, sink, kind) in &jobs {
        let job = stack.wait_final(id, LIMIT).await;
        assert_ended(&job, "failed", 2, Some(kind));
        for attempt in attempts(&job) {
            assert_eq!(attempt["outcome"], "retryable", "{what}");
            assert_eq!(attempt["response_status"], json!(null), "{what}");
            if *kind == "timeout" {
                let took = attempt["duration_ms"].as_u64().expect("a number");
                // The connect part, and a busy machine.
                assert!((1_000..3_000).contains(&took), "{what}: {took} ms");
            }
        }
        assert_eq!(sink.request_count(), 0, "{what}");
        assert_eq!(sink.connection_count(), 2, "{what}");
    }
    let sink = Sink::builder(200).tls(Tls::Serve(good)).start().await;
    for (host, shown) in [
        ("sink.test", "sink.test"),
        ("m\u{fc}ller.test", "xn--mller-kva.test"),
        ("m\u{fc}ller.test.", "xn--mller-kva.test"),
    ] {
        let reply = stack.enqueue(&json!({"url": sink.url_at(host, "/")})).await;
        assert_eq!(
            reply.json()["target"],
            shown,
            "URL-05: one key for all spellings"
        );
        let job = stack.wait_final(&reply.id(), LIMIT).await;
        assert_ended(&job, "completed", 1, None);
        let request = &sink.requests_for(&reply.id())[0];
        assert_eq!(
            request.header("host"),
            Some(&format!("{shown}:{}", sink.port())[..])
        );
        let connection = &sink.connections()[request.connection - 1];
        assert_eq!(connection.server_name.as_deref(), Some(shown), "TL-09");
    }
    // NET-18: the per-deployment way out works, and is said at the start.
    stack.workers[0].terminate(LIMIT).await;
    stack.workers.clear();
    let insecure = stack
        .process(Program::Worker)
        .await
        .set("HOOK_EGRESS_INSECURE_TLS", "true")
        .start();
    insecure.wait_ready(LIMIT).await;
    let (_, _, self_signed, _) = &jobs[2];
    let id = stack
        .enqueue_to(&self_signed.url_at("sink.test", "/"))
        .await;
    let job = stack.wait_final(&id, LIMIT).await;
    assert_ended(&job, "completed", 1, None);
    let warnings = insecure.lines();
    let warned = warnings
        .iter()
        .filter(|line| line.text.contains("HOOK_EGRESS_INSECURE_TLS"));
    assert_eq!(warned.count(), 1);
}
