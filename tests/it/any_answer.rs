//! Whatever bytes a receiver sends, its job ends in a state of the table, the worker lives, and
//! the next job is served.

use std::collections::HashMap;

use hook_testkit::{
    db::TestDb,
    sink::{
        Sink,
        answer::{Answer, BodyRead, End, Framing, Stage},
        script::Script,
    },
    stack::Stack,
};
use rand::{Rng as _, RngCore as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use serde_json::json;
use std::time::Duration;

use crate::kit::{LIMIT, amount, attempts, seeded};

const ENDS: [End; 5] = [
    End::KeepAlive,
    End::Close,
    End::HalfClose,
    End::Reset,
    End::Hold,
];
/// Pieces that a random answer is put together from.
const PIECES: [&[u8]; 22] = [
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 503 No\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n",
    b"HTTP/2 200\r\n",
    b"HTTP/1.1 999 \xff\xfe\r\n",
    b"HTTP/1.1 204\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 18446744073709551616\r\n",
    b"Content-Length: -1\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Retry-After: 1\r\n",
    b"Connection: close\r\n",
    b"X: \x00\r\n",
    b": nameless\r\n",
    b"\r\n",
    b"\r\n\r\n",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"hello",
    b"\x00",
    b"\xff\xfe\x80",
];

/// An answer that depends on nothing but its number and the seed of the run.
fn answer(seed: u64, number: u64) -> Answer {
    let mut rng = StdRng::seed_from_u64(seed ^ number);
    let mut bytes = Vec::new();
    match rng.random_range(0..4) {
        0 => {
            bytes.resize(rng.random_range(0..600), 0);
            rng.fill_bytes(&mut bytes);
        }
        1 => {
            bytes.extend(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello");
            for _ in 0..rng.random_range(1..6) {
                let place = rng.random_range(0..bytes.len());
                bytes[place] = rng.random();
            }
        }
        _ => {
            // Half of them begin well, so that what follows is looked at.
            if rng.random() {
                bytes.extend(PIECES[rng.random_range(0..2)]);
            }
            for _ in 0..rng.random_range(0..14) {
                bytes.extend(*PIECES.choose(&mut rng).expect("there are some"));
            }
        }
    }
    let end = *ENDS.choose(&mut rng).expect("there are some");
    let mut answer = if rng.random_bool(0.7) {
        Answer::literal(bytes)
    } else {
        Answer::status(rng.random_range(100..1000))
            .reason(bytes.clone())
            .bytes(bytes)
            .framing(Framing::Declared(rng.random_range(0..700)))
    };
    answer = answer.then(end);
    if rng.random_bool(0.2) {
        answer = answer.body_read(BodyRead::Never);
    }
    if rng.random_bool(0.2) {
        answer = answer.end_at(Stage::MidHead(rng.random_range(0..40)), end);
    }
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_receiver_sends_the_job_ends_and_the_next_one_is_served() {
    let jobs = amount(600, 5_000);
    let seed = seeded().random();
    let db = TestDb::new().await;
    let script = Script::new(move |request, _| {
        let number = request
            .path
            .rsplit('/')
            .next()
            .and_then(|text| text.parse().ok());
        answer(seed, number.expect("each job has a number"))
    });
    let (sink, good) = (Sink::start(script).await, Sink::start(200).await);
    let mut stack = Stack::builder(&db.url())
        .set("HOOK_WORKER_SLOTS", 64)
        .set("HOOK_TARGET_IN_FLIGHT_MAX", 64)
        .set("HOOK_ATTEMPT_TIMEOUT", "400ms")
        .set("HOOK_CONNECT_TIMEOUT", "400ms")
        .set("HOOK_RESPONSE_BODY_TIMEOUT", "100ms")
        .set("HOOK_MAX_ATTEMPTS", 2)
        .set("HOOK_RETRY_SCHEDULE", "50ms")
        .set("HOOK_RETRY_AFTER_MAX", "100ms")
        .set("HOOK_HOLD_FAILURES", 1_000_000)
        .start()
        .await;
    let pids = stack.pids();
    let mut ids = HashMap::new();
    for number in 0..jobs {
        // Many targets, so that what some of them send costs the others nothing.
        let job =
            json!({"url": sink.url(&format!("/{number}")), "target": format!("t{}", number % 200)});
        ids.insert(stack.enqueue_id(&job).await, number);
        if number % 50 == 0 {
            let id = stack.enqueue_to(&good.url("/")).await;
            assert_eq!(stack.wait_final(&id, LIMIT).await["status"], "completed");
        }
    }
    let mut ends: HashMap<String, usize> = HashMap::new();
    for (id, number) in &ids {
        let job = stack.wait_final(id, LIMIT).await;
        for attempt in attempts(&job) {
            let kind = attempt["error_kind"].as_str();
            let status = attempt["response_status"].as_u64();
            let outcome = attempt["outcome"].as_str().expect("an outcome");
            let expected = match (status, kind) {
                (Some(200..=299), None) => "delivered",
                (Some(101), Some("invalid_response")) => "permanent",
                (Some(300..=399), Some("redirect")) => "permanent",
                (Some(408 | 425 | 429 | 500..=599), Some("http_status")) => "retryable",
                (Some(400..=999), Some("http_status")) => "permanent",
                (None, Some("timeout" | "reset" | "connect" | "invalid_response")) => "retryable",
                _ => panic!("answer {number} of seed {seed}: {attempt}"),
            };
            assert_eq!(
                outcome, expected,
                "answer {number} of seed {seed}: {attempt}"
            );
            let end = format!("{outcome} {}", kind.unwrap_or("-"));
            *ends.entry(end).or_default() += 1;
        }
    }
    println!("{ends:?}");
    assert!(ends.len() > 4, "the answers were all alike: {ends:?}");
    assert_eq!(stack.pids(), pids);
    assert!(stack.all_run());
    let id = stack.enqueue_to(&good.url("/")).await;
    assert_eq!(
        stack.wait_final(&id, Duration::from_secs(20)).await["status"],
        "completed"
    );
}
