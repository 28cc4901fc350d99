//! What statuses, silence and hints to wait lead to, by the stored attempts and by the wire.

use std::{collections::HashSet, time::Duration};

use hook_testkit::{
    db::TestDb,
    dns::{Dns, zone::Reply},
    process::Program,
    sink::{Sink, answer::Answer, script::Script},
    stack::Stack,
    wait::{pause, wait_for},
};
use serde_json::json;

use crate::kit::{LIMIT, assert_ended, attempts, counts, enqueue_many};

const RETRYABLE: [u16; 11] = [408, 425, 429, 500, 501, 502, 503, 504, 511, 520, 529];
const PERMANENT: [u16; 22] = [
    400, 401, 402, 403, 404, 405, 406, 409, 410, 411, 413, 414, 415, 418, 421, 422, 426, 428, 431,
    451, 600, 999,
];
const DELIVERED: [u16; 5] = [200, 201, 204, 226, 299];

/// DEL-03, RS-28 to RS-40: each status on a host of its own; only retryable ones are held against
/// a host.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn del_03_rs_28_rs_29_rs_30_rs_31_rs_34_rs_36_rs_37_rs_40_the_table_of_statuses() {
    let db = TestDb::new().await;
    let sink = Sink::start(Script::status_in_path()).await;
    let dns = Dns::start().await;
    dns.set_others(|_| Some(Reply::loopback()));
    let stack = Stack::builder(&db.url())
        .set("HOOK_DNS_SERVERS", dns.address())
        .set("HOOK_WORKER_SLOTS", 64)
        .set("HOOK_RETRY_SCHEDULE", "2s")
        .set("HOOK_PENALTY_REFRESH", "300ms")
        // On a busy machine any answer may be slow, and slowness is not what is judged here.
        .set("HOOK_SLOW_AFTER", "10s")
        .start()
        .await;
    // As many as it takes for a host to be blamed, if it is to be; all at once, so that the retries of
    // all hosts wait at one time.
    let statuses = RETRYABLE.into_iter().chain(PERMANENT).chain(DELIVERED);
    let statuses: Vec<u16> = statuses.flat_map(|status| [status; 8]).collect();
    let requests: Vec<_> = statuses
        .iter()
        .map(
            |status| json!({"url": sink.url_at(&format!("s{status}.test"), &format!("/{status}"))}),
        )
        .collect();
    let jobs: Vec<_> = std::iter::zip(statuses, enqueue_many(&stack, &requests).await).collect();
    let (blamed, most) = blamed_until_drained(&stack, &db.pool().await).await;
    for name in &blamed {
        let status = name[1..4].parse().expect("a status");
        assert!(RETRYABLE.contains(&status), "{name} is blamed");
    }
    // RS-37: a throttled host is among them; no host is that only says no.
    assert_eq!(
        most,
        Some(RETRYABLE.len()),
        "every host with retries waiting is pushed back"
    );
    for (status, id) in jobs {
        let job = stack.wait_final(&id, LIMIT).await;
        let (end, count, kind) = if DELIVERED.contains(&status) {
            ("completed", 1, None)
        } else if RETRYABLE.contains(&status) {
            ("failed", 3, Some("http_status"))
        } else {
            ("failed", 1, Some("http_status"))
        };
        assert_ended(&job, end, count, kind);
        assert_eq!(sink.requests_for(&id).len(), count as usize, "{status}");
        for attempt in attempts(&job) {
            assert_eq!(attempt["response_status"], status);
        }
    }
}

/// The hosts that were ever said to be bad, and the most that a worker pushed back at one time.
async fn blamed_until_drained(
    stack: &Stack,
    pool: &sqlx::PgPool,
) -> (HashSet<String>, Option<usize>) {
    let (mut blamed, mut most) = (HashSet::new(), None);
    loop {
        let reply = stack
            .get("/v1/targets?order=failing&limit=500")
            .await
            .json();
        for target in reply["targets"].as_array().expect("a list") {
            if target["penalty"] != json!(0) {
                blamed.insert(target["target"].as_str().expect("a name").to_owned());
            }
        }
        let metrics = stack.metrics(Program::Worker).await;
        let now = metrics.value("hook_worker_penalised_targets");
        most = most.max(now.and_then(|now| format!("{now}").parse().ok()));
        let counts = counts(pool).await;
        if counts["waiting"] + counts["running"] == 0 {
            return (blamed, most);
        }
        pause(Duration::from_millis(50)).await;
    }
}

/// DEL-04, DEL-05, DEL-09, DEL-10, and RS-42 to RS-53 by their effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn del_04_del_05_del_09_del_10_hints_silence_and_repeats() {
    let db = TestDb::new().await;
    let hint =
        |status: u16, text: &'static [u8]| Answer::status(status).header("retry-after", text);
    let gone = Sink::start(hint(410, b"1")).await;
    let throttle = Sink::start(Script::sequence([hint(429, b"3"), Answer::ok()])).await;
    let silent = Sink::start(Answer::silence()).await;
    let late = Answer::ok().pause_before_head(Duration::from_secs(2));
    let late = Sink::start(Script::sequence([late, Answer::ok()])).await;
    let stack = Stack::builder(&db.url())
        .set("HOOK_ATTEMPT_TIMEOUT", "1s")
        .set("HOOK_CONNECT_TIMEOUT", "1s")
        .set("HOOK_RETRY_SCHEDULE", "300ms")
        .set("HOOK_RETRY_AFTER_MAX", "4s")
        .set("HOOK_WORKER_SLOTS", 32)
        .start()
        .await;
    let enqueue = async |sink: &Sink, target: &str| {
        let job = json!({"url": sink.url("/"), "target": target, "payload": {"n": 1}});
        stack.enqueue_id(&job).await
    };
    let (gone_id, throttled_id) = (
        enqueue(&gone, "gone").await,
        enqueue(&throttle, "throttle").await,
    );
    let (silent_id, late_id) = (
        enqueue(&silent, "silent").await,
        enqueue(&late, "late").await,
    );
    let mut odd = Vec::new();
    for (what, text) in [
        ("RS-42", &b"0"[..]),
        ("RS-45", b"inf"),
        ("RS-46", b"NaN"),
        ("RS-49", b"Wed, 21 Oct 2015 07:28:00 GMT"),
        ("RS-51", b"Sunday, 06-Nov-94 08:49:37 GMT"),
        ("RS-52", b"Sun Nov  6 08:49:37 1994"),
        ("RS-53", b"\xff\xfe"),
    ] {
        let sink = Sink::start(Script::sequence([hint(503, text), Answer::ok()])).await;
        odd.push((what, enqueue(&sink, what).await, sink));
    }
    let endless = Sink::start(Script::sequence([hint(503, b"99999999999"), Answer::ok()])).await;
    let endless_id = enqueue(&endless, "RS-48").await;

    // DEL-04: it ends at once, and stays where it is.
    let job = stack.wait_final(&gone_id, LIMIT).await;
    assert_ended(&job, "failed", 1, Some("http_status"));
    // DEL-09: a timeout is a timeout at every look.
    let job = wait_for(
        LIMIT,
        async || stack.job(&silent_id).await,
        |job| {
            assert_ne!(job["status"], "completed");
            job["status"] == "failed"
        },
    )
    .await;
    assert_ended(&job, "failed", 3, Some("timeout"));
    for attempt in attempts(&job) {
        assert_eq!(attempt["response_status"], json!(null));
        let took = attempt["duration_ms"].as_u64().expect("a number");
        assert!((1_000..2_500).contains(&took), "DEL-09: {took} ms");
    }
    // DEL-10: the same event, seen to be the same.
    let job = stack.wait_final(&late_id, LIMIT).await;
    assert_ended(&job, "completed", 2, None);
    let requests = late.requests();
    assert_eq!(requests.len(), 2);
    for (request, number) in requests.iter().zip([1, 2]) {
        assert_eq!(request.id(), late_id);
        assert_eq!(request.attempt(), Some(number));
        assert_eq!(&request.body[..], b"{\"n\":1}");
    }
    let gap = |sink: &Sink| {
        let requests = sink.requests();
        assert_eq!(requests.len(), 2);
        requests[1].head_read - requests[0].head_read
    };
    for (what, id, sink) in &odd {
        assert_ended(&stack.wait_final(id, LIMIT).await, "completed", 2, None);
        // The schedule, ± 20 %, and a busy machine.
        let gap = gap(sink);
        assert!(
            (Duration::from_millis(240)..Duration::from_secs(2)).contains(&gap),
            "{what}: {gap:?}"
        );
    }
    // DEL-05: not before the hint, and not long after it.
    assert_ended(
        &stack.wait_final(&throttled_id, LIMIT).await,
        "completed",
        2,
        None,
    );
    let waited = gap(&throttle);
    assert!(
        (Duration::from_secs(3)..Duration::from_secs(6)).contains(&waited),
        "{waited:?}"
    );
    // RS-48: bounded by HOOK_RETRY_AFTER_MAX.
    assert_ended(
        &stack.wait_final(&endless_id, LIMIT).await,
        "completed",
        2,
        None,
    );
    let waited = gap(&endless);
    assert!(
        (Duration::from_secs(4)..Duration::from_secs(8)).contains(&waited),
        "{waited:?}"
    );
    assert_eq!(gone.request_count(), 1);
    assert_eq!(stack.job(&gone_id).await["status"], "failed");
}
