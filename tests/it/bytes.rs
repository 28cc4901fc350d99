//! What arrives is what was given, byte for byte, on the first attempt and on the last.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hmac::{Hmac, Mac as _};
use hook_testkit::{
    db::TestDb,
    process::Program,
    sink::{Sink, script::Script},
    stack::Stack,
};
use rand::{Rng as _, RngCore as _, rngs::StdRng};
use serde_json::{Value, json};
use sha2::Sha256;
use standardwebhooks::Webhook;

use crate::kit::{LIMIT, Sample, assert_ended, enqueue_batch, seeded, wait_drained};

const BODIES: usize = 1_000;
/// The limit of one body.
const BODY_MAX: usize = 1024 * 1024;
/// Payloads that a parser would not give back as they were.
const PAYLOADS: [(&str, &str); 12] = [
    ("PAY-02", r#"{"s":"\ud83d"}"#),
    ("PAY-02", r#"{"s":"\ude00\ud83d"}"#),
    ("PAY-02", r#"{"a":"\ud83d","b":"\ude00"}"#),
    ("PAY-02", r#"{"s":"\ud83d\ude00 😀"}"#),
    (
        "PAY-03",
        r#"{"a":50755254975729665,"b":9007199254740993,"c":18446744073709551615}"#,
    ),
    (
        "PAY-03",
        r#"{"d":-9223372036854775808,"e":123456789012345678901234567890}"#,
    ),
    (
        "JS-50",
        r#"{"a":"\u0000","b":"\ud800","c":1e400,"d":123456789012345678901234567890,"d":2}"#,
    ),
    (
        "order and space",
        "{ \"z\" : 1 ,\t\"a\":[ ],\r\n \"m\" : -0.0E+0 }",
    ),
    ("a text", r#""A\/é""#),
    ("a number", "1.0000000000000000000000000000000001"),
    ("null", "null"),
    ("nothing in it", "[]"),
];

fn stack_for(db: &TestDb) -> hook_testkit::stack::builder::StackBuilder {
    Stack::builder(&db.url())
        .set("HOOK_RETRY_SCHEDULE", "100ms")
        .set("HOOK_WORKER_SLOTS", 64)
        .set("HOOK_HOLD_FAILURES", 1_000_000)
}

/// A size from nothing to the limit, every order of magnitude as likely as another.
fn size(rng: &mut StdRng, n: usize) -> usize {
    match n {
        0..3 => n,
        3..6 => BODY_MAX + n - 5,
        _ => (1_usize << rng.random_range(0..20)) + rng.random_range(0..100),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_random_bodies_are_the_same_on_the_first_and_on_the_third_attempt() {
    let mut rng = seeded();
    let db = TestDb::new().await;
    let sink = Sink::start(Script::statuses([503, 503, 200])).await;
    let stack = stack_for(&db).start().await;
    let url = sink.url("/b");
    let samples: Vec<Sample> = (0..BODIES)
        .map(|n| {
            let mut bytes = vec![0; size(&mut rng, n)];
            rng.fill_bytes(&mut bytes);
            let text = BASE64_STANDARD.encode(&bytes);
            let request = format!(
                r#"{{"url":"{url}","target":"t{}.test","headers":{{"content-type":"a/b"}},"body_base64":"{text}"}}"#,
                n % 100
            );
            Sample { bytes, request }
        })
        .collect();
    let mut ids = Vec::new();
    for chunk in samples.chunks(4) {
        ids.extend(enqueue_batch(&stack, chunk).await);
    }
    let counts = wait_drained(&db.pool().await).await;
    assert_eq!((counts["completed"], counts["ended"]), (1_000, 0));
    let mut seen = 0;
    for (id, sample) in ids.iter().zip(&samples) {
        let requests = sink.requests_for(id);
        assert_eq!(requests.len(), 3);
        for (request, attempt) in requests.iter().zip(1..) {
            // Not `assert_eq!`, which would print a mebibyte.
            assert!(request.body == sample.bytes, "job {id} attempt {attempt}");
            assert_eq!(request.attempt(), Some(attempt));
            let lengths: Vec<_> = request.header_values("content-length").collect();
            assert_eq!(lengths, [sample.bytes.len().to_string()]);
            assert_eq!(request.header("transfer-encoding"), None);
        }
        seen += sample.bytes.len();
    }
    println!("{seen} bytes of {BODIES} bodies, three times each");
    assert!(sink.violations().is_empty(), "{:?}", sink.violations());
}

/// PAY-02, PAY-03, PAY-07, PAY-08, JS-50, NET-09, DEL-10: what a parser or a column would change.
#[tokio::test]
async fn pay_02_pay_03_pay_07_pay_08_js_50_bodies_are_opaque() {
    let db = TestDb::new().await;
    let sink = Sink::start(Script::statuses([503, 503, 200])).await;
    let stack = stack_for(&db).start().await;
    let url = sink.url("/p");
    let mut expected: Vec<(String, Vec<u8>, &str, &str)> = Vec::new();
    for (what, payload) in PAYLOADS {
        let reply = stack
            .enqueue_raw(format!(r#"{{"payload": {payload} ,"url":"{url}"}}"#), &[])
            .await;
        assert_eq!(reply.status, 202, "{what}: {}", reply.text());
        expected.push((reply.id(), payload.into(), "application/json", "POST"));
    }
    for depth in [126, 127, 128, 129, 1000, 100_000] {
        let text = "[".repeat(depth) + &"]".repeat(depth);
        let job = json!({"url": url, "body": text});
        let id = stack.enqueue_id(&job).await;
        expected.push((id, text.clone().into(), "application/json", "POST"));
        // In line it counts as nesting of the request, of which 128 are allowed in all.
        let reply = stack
            .enqueue_raw(format!(r#"{{"url":"{url}","payload":{text}}}"#), &[])
            .await;
        if depth <= 127 {
            assert_eq!(reply.status, 202, "PAY-08 {depth}: {}", reply.text());
            expected.push((reply.id(), text.into(), "application/json", "POST"));
        } else {
            assert_eq!(
                (reply.status, &reply.code()[..]),
                (400, "json_invalid"),
                "{depth}"
            );
            assert!(reply.text().contains("128"), "PAY-08: {}", reply.text());
        }
    }
    let utf16: Vec<u8> = [0xff, 0xfe]
        .into_iter()
        .chain("héllo".encode_utf16().flat_map(u16::to_le_bytes))
        .collect();
    let bodies: [(&str, Vec<u8>); 6] = [
        ("text/plain", Vec::new()),
        ("text/plain; charset=utf-8", b"plain text".to_vec()),
        ("application/x-www-form-urlencoded", b"a=1&b=%20".to_vec()),
        ("text/plain", "😀 А".as_bytes().to_vec()),
        ("text/plain; charset=utf-16", utf16),
        ("application/octet-stream", (0..=255).collect()),
    ];
    for (kind, bytes) in bodies {
        for method in ["POST", "PUT", "PATCH", "DELETE", "GET"] {
            let job = json!({
                "url": url,
                "method": method.to_lowercase(),
                "headers": {"Content-Type": kind},
                "body_base64": BASE64_STANDARD.encode(&bytes),
            });
            expected.push((stack.enqueue_id(&job).await, bytes.clone(), kind, method));
        }
    }
    let reply = stack.enqueue(&json!({"url": url, "method": "BREW"})).await;
    assert_eq!(
        (reply.status, reply.pointers()),
        (422, vec!["/method".to_owned()]),
        "PAY-07 says 400 for other methods, the contract 422"
    );
    for (id, bytes, kind, method) in expected {
        let job = stack.wait_final(&id, LIMIT).await;
        assert_ended(&job, "completed", 3, None);
        let requests = sink.requests_for(&id);
        assert_eq!(requests.len(), 3);
        for request in requests {
            assert!(request.body == bytes, "{id}: {:?}", request.body);
            assert_eq!(request.method, method);
            let kinds: Vec<_> = request.header_values("content-type").collect();
            assert_eq!(kinds, [kind], "{id}");
            let lengths: Vec<_> = request.header_values("content-length").collect();
            assert_eq!(lengths, [bytes.len().to_string()], "{id}");
        }
    }
    assert!(sink.violations().is_empty(), "{:?}", sink.violations());
}

/// SG-04, SG-06, SG-07, SG-08: signatures are over the bytes that arrive, fresh on each attempt.
#[tokio::test]
async fn sg_04_sg_06_sg_07_sg_08_receivers_can_verify_what_arrives() {
    let db = TestDb::new().await;
    let sink = Sink::start(Script::statuses([503, 200])).await;
    let stack = stack_for(&db)
        // Less a fifth of jitter, it still is another second.
        .set("HOOK_RETRY_SCHEDULE", "1500ms")
        .set_for(
            Program::Api,
            "HOOK_SECRET_KEY",
            BASE64_STANDARD.encode([7; 32]),
        )
        .set_for(
            Program::Worker,
            "HOOK_SECRET_KEY",
            BASE64_STANDARD.encode([7; 32]),
        )
        .start()
        .await;
    let secret = |byte: u8| format!("whsec_{}", BASE64_STANDARD.encode([byte; 24]));
    for (name, byte) in [("new", 1), ("old", 2)] {
        let path = stack.api_url(&format!("/v1/secrets/{name}"));
        let put = stack
            .client()
            .put(path)
            .json(&json!({"secret": secret(byte)}));
        let reply = stack.send(put).await;
        assert!(matches!(reply.status, 200..=204), "{}", reply.text());
    }
    let mut jobs: Vec<(String, Vec<u8>, usize)> = Vec::new();
    for bytes in [&b""[..], b"a\r\nb", b"\0\xff\xfe", b"{\"n\":1}"] {
        for names in [&["new", "old"][..], &["new"]] {
            let job = json!({
                "url": sink.url("/s"),
                "body_base64": BASE64_STANDARD.encode(bytes),
                "signing": {"secrets": names},
            });
            jobs.push((stack.enqueue_id(&job).await, bytes.to_vec(), names.len()));
        }
    }
    // The reference library takes text only; a body that is none is checked by the formula.
    let verify = |byte: u8, headers: &http::HeaderMap, body: &[u8]| match str::from_utf8(body) {
        Ok(_) => Webhook::new(&secret(byte))
            .expect("a secret")
            .verify(body, headers)
            .is_ok(),
        Err(_) => is_among_signatures(byte, headers, body),
    };
    for (id, bytes, secrets) in jobs {
        let job = stack.wait_final(&id, LIMIT).await;
        assert_ended(&job, "completed", 2, None);
        let requests = sink.requests_for(&id);
        let mut stamps = Vec::new();
        for request in &requests {
            let mut headers = http::HeaderMap::new();
            for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
                let value = request.header(name).expect("a signed request has it");
                headers.insert(name, value.parse().expect("a header value"));
            }
            let signatures = request.header("webhook-signature").unwrap().split(' ');
            assert_eq!(signatures.count(), secrets);
            assert!(verify(1, &headers, &bytes), "SG-04, SG-07, SG-08");
            assert_eq!(verify(2, &headers, &bytes), secrets == 2, "SG-06");
            stamps.push(request.header("webhook-timestamp").unwrap().to_owned());
        }
        assert_ne!(stamps[0], stamps[1], "each attempt is stamped anew");
    }
    let shown = stack.get("/v1/secrets/new").await;
    let text: Value = shown.json();
    assert_eq!(text["last_four"], secret(1)[34..], "SG-10: {text}");
    assert!(!shown.text().contains(&secret(1)[6..20]), "SG-10");
}

/// Whether one of the signatures is the HMAC of `id.timestamp.body` under this secret.
fn is_among_signatures(byte: u8, headers: &http::HeaderMap, body: &[u8]) -> bool {
    let header = |name: &str| headers[name].to_str().expect("a text").to_owned();
    let mut mac = Hmac::<Sha256>::new_from_slice(&[byte; 24]).expect("any length is a key");
    mac.update(format!("{}.{}.", header("webhook-id"), header("webhook-timestamp")).as_bytes());
    mac.update(body);
    let expected = format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()));
    header("webhook-signature")
        .split(' ')
        .any(|signature| signature == expected)
}
