//! Many receivers, and receivers that move.

use std::{
    collections::HashSet,
    net::Ipv4Addr,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use hook_testkit::{
    db::TestDb,
    dns::{
        Dns,
        zone::{Reply, Rule},
    },
    process::Program,
    sink::Sink,
    stack::Stack,
    wait::{pause, wait_for},
};
use serde_json::json;

use crate::kit::{LIMIT, amount, assert_ended, attempts, wait_drained};

const SLOTS: usize = 64;
/// Idle connections that a worker keeps for later, by default.
const IDLE_MAX: usize = 128;

/// NET-12: many more hosts than the 512 file descriptors, twice (3,000 hosts in full).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn net_12_many_hosts_fit_into_512_descriptors() {
    let hosts = u16::try_from(amount(1_000, 3_000)).expect("not so many");
    let db = TestDb::new().await;
    let sink = Sink::builder(200).bind([0, 0, 0, 0]).start().await;
    let dns = Dns::start().await;
    dns.set_others(|name| {
        let number: u16 = name.strip_prefix('h')?.split('.').next()?.parse().ok()?;
        let [high, low] = number.to_be_bytes();
        Some(Reply::address(Ipv4Addr::new(127, 1, high, low)).ttl_seconds(60))
    });
    let mut stack = Stack::builder(&db.url())
        .set("HOOK_DNS_SERVERS", dns.address())
        .set("HOOK_WORKER_SLOTS", SLOTS)
        .open_files_max(Program::Worker, 512)
        .start()
        .await;
    let pool = db.pool().await;
    for round in 0..2 {
        for part in (1..=hosts).collect::<Vec<_>>().chunks(1_000) {
            let jobs: Vec<_> = part
                .iter()
                .map(|n| json!({"url": sink.url_at(&format!("h{n}.test"), "/"), "payload": round}))
                .collect();
            let reply = stack.post("/v1/jobs/batch", &json!({"jobs": jobs})).await;
            assert_eq!(reply.status, 202, "{}", reply.text());
        }
        let (mut files, mut connections) = (0, 0);
        let is_done = AtomicBool::new(false);
        let watch = async {
            while !is_done.load(Ordering::Relaxed) {
                files = files.max(stack.worker().usage().open_files);
                let open = sink.connections();
                let open = open.iter().filter(|connection| connection.closed.is_none());
                connections = connections.max(open.count());
                pause(Duration::from_millis(100)).await;
            }
        };
        let drain = async {
            let counts = wait_drained(&pool).await;
            is_done.store(true, Ordering::Relaxed);
            counts
        };
        let (counts, ()) = tokio::join!(drain, watch);
        let completed = i64::from(hosts) * (round + 1);
        assert_eq!((counts["completed"], counts["ended"]), (completed, 0));
        println!("round {round}: at most {connections} connections, {files} files");
        // Those that the worker has closed may still be on the receiver's list.
        assert!(
            connections <= SLOTS + IDLE_MAX + 16,
            "{connections} connections"
        );
        assert!(files < 400, "{files} files of 512");
    }
    assert_eq!(sink.request_count(), 2 * usize::from(hosts));
    let places: HashSet<_> = sink
        .connections()
        .iter()
        .map(|one| one.local.ip())
        .collect();
    assert_eq!(
        places.len(),
        usize::from(hosts),
        "each host has an address of its own"
    );
    assert!(!stack.logs_contain("Too many open files") && !stack.logs_contain("EMFILE"));
    assert!(stack.all_run());
}

/// NET-13: a busy connection does not hold on to an address that the name has left.
#[tokio::test]
async fn net_13_a_name_that_moves_is_followed_on_a_busy_connection() {
    let db = TestDb::new().await;
    let first = Sink::start(200).await;
    let second = Sink::builder(200)
        .bind([127, 0, 0, 2])
        .port(first.port())
        .start()
        .await;
    let dns = Dns::start().await;
    let at = |address: [u8; 4]| Reply::address(Ipv4Addr::from(address)).ttl_seconds(1);
    dns.set("move.test", at([127, 0, 0, 1]));
    let stack = Stack::builder(&db.url())
        .set("HOOK_DNS_SERVERS", dns.address())
        .start()
        .await;
    let mut ids = Vec::new();
    // Steady traffic, from well before the move until well after it.
    let mut has_moved = false;
    while second.request_count() < 20 {
        ids.push(stack.enqueue_to(&first.url_at("move.test", "/")).await);
        assert!(ids.len() < 2_000, "the name was never followed");
        if !has_moved && first.request_count() >= 20 {
            dns.set("move.test", at([127, 0, 0, 2]));
            has_moved = true;
        }
        pause(Duration::from_millis(50)).await;
    }
    let until = first.request_count();
    for _ in 0..20 {
        ids.push(stack.enqueue_to(&first.url_at("move.test", "/")).await);
    }
    for id in &ids {
        let job = stack.wait_final(id, LIMIT).await;
        assert_ended(&job, "completed", 1, None);
    }
    assert_eq!(
        first.request_count(),
        until,
        "all of it goes to the new place"
    );
    assert!(until >= 20, "the connection was busy before");
    assert_eq!(second.request_count() + until, ids.len());
    let last = first.requests().last().map(|request| request.head_read);
    let begun = second.requests()[0].head_read;
    assert!(last.is_some_and(|last| last < begun + Duration::from_secs(1)));
}

/// DEL-11: a name that does not resolve for a while costs attempts and not the job. SD-18: the
/// database stays closed although its network is open.
#[tokio::test]
async fn del_11_sd_18_names_come_back_and_the_database_stays_closed() {
    let db = TestDb::new().await;
    let sink = Sink::start(200).await;
    let dns = Dns::start().await;
    dns.set("database.test", Reply::loopback());
    let stack = Stack::builder(&db.url())
        .set("HOOK_DNS_SERVERS", dns.address())
        .set("HOOK_MAX_ATTEMPTS", 8)
        .set("HOOK_RETRY_SCHEDULE", "500ms,700ms")
        .start()
        .await;
    let port = db
        .url()
        .rsplit(':')
        .next()
        .and_then(|rest| rest.split('/').next().map(str::to_owned));
    let port = port.expect("the database listens on a port");
    for host in ["database.test", "127.0.0.1", "localhost"] {
        let id = stack.enqueue_to(&format!("http://{host}:{port}/")).await;
        let job = stack.wait_final(&id, LIMIT).await;
        assert_ended(&job, "failed", 1, Some("blocked_address"));
    }
    dns.set(
        "flaky.test",
        Rule::OverTime(vec![
            (Duration::ZERO, Reply::server_failure()),
            (Duration::from_secs(1), Reply::no_name()),
            (Duration::from_secs(2), Reply::loopback()),
        ]),
    );
    let id = stack.enqueue_to(&sink.url_at("flaky.test", "/")).await;
    let job = stack.wait_final(&id, LIMIT).await;
    assert_eq!(job["status"], "completed", "{job}");
    let failures = attempts(&job)
        .iter()
        .filter(|attempt| attempt["error_kind"] == "dns");
    let failures = failures.count();
    assert!((2..8).contains(&failures), "{job}");
    assert_eq!(attempts(&job).len(), failures + 1);
    assert_eq!(sink.requests_for(&id).len(), 1);
    wait_for(
        LIMIT,
        async || stack.metrics(Program::Worker).await,
        |metrics| metrics.sum("hook_worker_attempts_total", &[("error_kind", "dns")]) >= 2.0,
    )
    .await;
}
