//! Answers that are too much: too long, too many, without end. They cost a bounded amount of
//! memory and time, and nobody else's deliveries.

use std::time::Duration;

use hook_testkit::{
    certs::TestAuthority,
    db::TestDb,
    dns::{Dns, zone::Reply},
    process::{Process, Program},
    sink::{
        Sink,
        answer::{Answer, Framing},
        body::Body,
        odd,
        record::in_flight_peak,
        script::Script,
        tls::Tls,
    },
    stack::Stack,
    wait::wait_for,
};
use serde_json::{Value, json};

use crate::kit::{LIMIT, assert_ended, attempts, enqueue_batch, sample, seeded, wait_drained};

const MIB: u64 = 1024 * 1024;
/// What is read of an answer at most, and what the kernel may have taken beyond that.
const READ_AND_BUFFERED_MAX: u64 = 64 * 1024 + 64 * 1024 + MIB;

/// Delivers ordinary jobs first, so that what a worker needs anyway is not taken for growth.
async fn warm_up(stack: &Stack, db: &TestDb) {
    let sink = Sink::start(Answer::ok().bytes("x".repeat(128 * 1024))).await;
    let mut rng = seeded();
    let url = sink.url("/warm");
    let samples: Vec<_> = (500..1000)
        .map(|n| sample(&mut rng, n, &url, &format!("w{}.test", n % 60)))
        .collect();
    enqueue_batch(stack, &samples).await;
    wait_drained(&db.pool().await).await;
}

/// How much more memory a worker holds at its peak than it held before.
fn growth(worker: &Process, before: u64) -> u64 {
    worker.usage().rss_peak_bytes.saturating_sub(before)
}

fn huge(status: u16, bytes: u64) -> Answer {
    Answer::status(status).body(Body::repeat(vec![b'x'; 16 * 1024], bytes))
}

/// RS-01, NET-05: the answer is read to its limit, kept in part, and said to have been longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rs_01_net_05_of_a_huge_answer_little_is_read_and_less_is_kept() {
    let db = TestDb::new().await;
    let script = Script::by_path([
        ("/rs-01", Script::always(huge(200, 10 * 1024 * MIB))),
        ("/good", Script::always(huge(200, 512 * MIB))),
        ("/bad", Script::always(huge(500, 512 * MIB))),
    ]);
    let sink = Sink::builder(script).send_buffer_bytes(4096).start().await;
    let stack = Stack::builder(&db.url())
        .set("HOOK_RETRY_SCHEDULE", "100ms")
        .start()
        .await;
    warm_up(&stack, &db).await;
    let before = stack.worker().usage().rss_bytes;
    for (path, status, attempt, kind) in [
        ("/rs-01", "completed", 1, None),
        ("/good", "completed", 1, None),
        ("/bad", "failed", 3, Some("http_status")),
    ] {
        let id = stack.enqueue_to(&sink.url(path)).await;
        let job = stack.wait_final(&id, LIMIT).await;
        assert_ended(&job, status, attempt, kind);
        for attempt in attempts(&job) {
            let excerpt = attempt["response_excerpt"].as_str().expect("a text");
            assert_eq!(excerpt.len(), 4096);
            assert_eq!(attempt["response_truncated"], true);
        }
        let requests = sink.requests_for(&id);
        assert_eq!(requests.len(), attempt as usize);
        let closed = wait_for(
            LIMIT,
            async || sink.requests_for(&id),
            |requests| requests.iter().all(|request| request.ended.is_some()),
        );
        for request in closed.await {
            assert!(
                request.bytes_written <= READ_AND_BUFFERED_MAX,
                "{}",
                request.bytes_written
            );
        }
    }
    let growth = growth(stack.worker(), before);
    println!("RS-01, NET-05: the worker grew by {growth} bytes");
    assert!(growth < 2 * MIB, "grew by {growth} bytes");
    // A short answer is not said to have been longer, and a list says where it cut itself.
    sink.set_script(Answer::ok().bytes("y".repeat(300)));
    let id = stack.enqueue_to(&sink.url("/short")).await;
    let job = stack.wait_final(&id, LIMIT).await;
    assert_eq!(attempts(&job)[0]["response_truncated"], false);
    let listed = stack.get("/v1/jobs?limit=1").await.json();
    assert_eq!(
        listed["jobs"][0]["attempts"][0]["response_truncated"], true,
        "{listed}"
    );
}

/// NET-06, RS-13, RS-16, RS-17, RS-18, TL-08: bombs of other kinds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn net_06_rs_16_rs_17_rs_18_tl_08_bombs_do_not_go_off() {
    let db = TestDb::new().await;
    let gzip = Answer::ok()
        .header("content-encoding", "gzip")
        .body(odd::gzip_bomb(10 * 1024 * MIB));
    let script = Script::by_path([
        ("/gzip", Script::always(gzip)),
        ("/extensions", Script::always(odd::chunk_extension_flood())),
        ("/trailers", Script::always(odd::trailer_flood(10_000))),
        ("/headers", Script::always(odd::many_headers(150))),
    ]);
    let sink = Sink::start(script).await;
    let authority = TestAuthority::new();
    let chain = authority.huge_chain_server(&["chain.test"], 1024 * 1024);
    let secure = Sink::builder(200).tls(Tls::Serve(chain)).start().await;
    let dns = Dns::start().await;
    dns.set_others(|_| Some(Reply::loopback()));
    let stack = Stack::builder(&db.url())
        .set("HOOK_RETRY_SCHEDULE", "100ms")
        .set("HOOK_WORKER_SLOTS", 16)
        .set("HOOK_DNS_SERVERS", dns.address())
        .set_for(
            Program::Worker,
            "HOOK_EGRESS_CA_FILE",
            authority.pem_file().display(),
        )
        .start()
        .await;
    warm_up(&stack, &db).await;
    let before = stack.worker().usage().rss_bytes;
    let mut jobs = Vec::new();
    for n in 0..10 {
        let job = json!({"url": sink.url("/gzip"), "target": format!("t{n}")});
        jobs.push((stack.enqueue_id(&job).await, "completed", 1, None));
    }
    for path in ["/extensions", "/trailers"] {
        let id = stack.enqueue_to(&sink.url(path)).await;
        jobs.push((id, "completed", 1, None));
    }
    let id = stack.enqueue_to(&sink.url("/headers")).await;
    jobs.push((id, "failed", 3, Some("invalid_response")));
    for (id, status, attempt, kind) in jobs {
        let job = stack.wait_final(&id, LIMIT).await;
        assert_ended(&job, status, attempt, kind);
        assert_eq!(sink.requests_for(&id).len(), attempt as usize);
        for request in sink.requests_for(&id) {
            assert_eq!(request.header("accept-encoding"), None);
        }
    }
    let grown = growth(stack.worker(), before);
    assert!(grown < 4 * MIB, "grew by {grown} bytes");
    let id = stack.enqueue_to(&secure.url_at("chain.test", "/")).await;
    let job = stack.wait_final(&id, LIMIT).await;
    assert_ended(&job, "failed", 3, Some("tls"));
    let grown = growth(stack.worker(), before);
    println!("bombs: the worker grew by {grown} bytes");
    assert!(grown < 8 * MIB, "TL-08: grew by {grown} bytes");
}

/// Fifty answers without end at full speed at one time: worker memory grows by at most 2 MiB
/// beyond what is read of them, and others are served meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_endless_answers_at_once_cost_little_and_delay_nobody() {
    const AT_ONCE: usize = 50;
    const ROUNDS: usize = 4;
    let db = TestDb::new().await;
    let endless = [
        Answer::ok()
            .body(Body::endless(vec![b'x'; 16 * 1024]))
            .framing(Framing::Nothing),
        Answer::status(500)
            .body(Body::endless("y".repeat(1024)))
            .framing(Framing::Chunked),
        odd::chunk_extension_flood(),
        Answer::ok().endless_interim(102),
        Answer::literal_body(Body::endless("HTTP/1.1 200 OK\r\nx: ")),
    ];
    let script = Script::new(move |request, _| {
        let place = request.connection % endless.len();
        // They begin together, once all of the requests are there.
        endless[place]
            .clone()
            .pause_before_head(Duration::from_millis(700))
    });
    let (flood, quick) = (Sink::start(script).await, Sink::start(200).await);
    let stack = Stack::builder(&db.url())
        .set("HOOK_WORKER_SLOTS", 64)
        .set("HOOK_MAX_ATTEMPTS", 1)
        .start()
        .await;
    warm_up(&stack, &db).await;
    let before = stack.worker().usage().rss_bytes;
    let mut ids = Vec::new();
    for n in 0..AT_ONCE * ROUNDS {
        let job = json!({"url": flood.url("/flood"), "target": format!("f{}.test", n % AT_ONCE)});
        ids.push(stack.enqueue_id(&job).await);
    }
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        let id = stack.enqueue_to(&quick.url("/quick")).await;
        let job = stack.wait_final(&id, LIMIT).await;
        assert_ended(&job, "completed", 1, None);
        slowest = slowest.max(quick.requests_for(&id)[0].head_read.elapsed());
    }
    for id in &ids {
        let job = stack.wait_final(id, LIMIT).await;
        assert!(final_states(&job), "{job}");
    }
    let grown = growth(stack.worker(), before);
    let allowed = 2 * MIB + AT_ONCE as u64 * 64 * 1024;
    let most = in_flight_peak(&flood.requests());
    println!("{most} endless answers at once: the worker grew by {grown} of {allowed} bytes");
    assert!(grown <= allowed, "grew by {grown} bytes");
    assert!(most > AT_ONCE / 2, "only {most} at once");
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
}

/// Whether a job has ended, with attempts that say why.
fn final_states(job: &Value) -> bool {
    let last = attempts(job).last().expect("it was attempted");
    matches!(
        (job["status"].as_str(), last["outcome"].as_str()),
        (Some("completed"), Some("delivered")) | (Some("failed"), Some("retryable" | "permanent"))
    )
}
