//! The primary is lost, and its synchronous replica takes over.

use std::{collections::HashSet, time::Duration};

use hook_testkit::{
    db::TestDb,
    proxy::{Mode, Proxy},
    sink::Sink,
    stack::Stack,
    wait::{pause, wait_for},
};
use serde_json::json;
use tokio::{sync::watch, task::JoinSet, time::Instant};

use crate::kit::{LIMIT, amount, received, wait_drained};

/// Loses the primary and leads its name to the replica, which takes over and is given back.
pub(crate) async fn fail_over(primary: &TestDb, replica: TestDb, names: &[&Proxy]) -> TestDb {
    primary.crash_server().await;
    // Connections that are still open lead nowhere; a moved name refuses them for a while.
    for name in names {
        name.set(Mode::Refuse);
        name.cut();
    }
    replica.promote().await;
    for name in names {
        name.lead_to(&replica.url());
        name.set(Mode::Pass);
    }
    replica
}

/// Enqueues one job after the other until it is over, each until it is stored; gives the ids, and
/// the longest time that one took.
async fn produce(
    producer: usize,
    client: reqwest::Client,
    enqueue: String,
    over: watch::Receiver<bool>,
    url: String,
) -> (HashSet<String>, Duration) {
    let (mut stored, mut longest) = (HashSet::new(), Duration::ZERO);
    while !*over.borrow() {
        let n = stored.len();
        let job = json!({"url": url, "target": format!("t{}.test", n % 20),
            "idempotency_key": format!("{producer}-{n}")});
        let begun = Instant::now();
        loop {
            let reply = client.post(&enqueue).json(&job).send().await;
            let reply = reply.expect("the API is there all the time");
            if reply.status().is_success() {
                let answer: serde_json::Value = reply.json().await.expect("an answer is JSON");
                stored.insert(answer["id"].as_str().expect("an id").to_owned());
                break;
            }
            assert_eq!(reply.status(), 503);
            pause(Duration::from_millis(50)).await;
        }
        longest = longest.max(begun.elapsed());
    }
    (stored, longest)
}

/// Whatever was answered is on the replica. The services find the new primary under the old name by
/// themselves; nothing is lost, and what is sent twice is what ran while the primary died.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_to_a_synchronous_replica_loses_nothing() {
    let mut primary = TestDb::durable().await;
    let proxy = Proxy::before(&primary.url());
    let sink = Sink::start(200).await;
    let slots = 16;
    let stack = Stack::builder(&proxy.url(&primary.url()))
        .set("HOOK_WORKER_SLOTS", slots)
        .start()
        .await;
    let over = watch::Sender::new(false);
    let mut producers = JoinSet::new();
    for n in 0..4 {
        let (client, enqueue) = (stack.client().clone(), stack.api_url("/v1/jobs"));
        producers.spawn(produce(
            n,
            client,
            enqueue,
            over.subscribe(),
            sink.url("/f"),
        ));
    }
    let failovers = amount(1, 20);
    let mut back = Vec::new();
    for _ in 0..failovers {
        let replica = primary.synchronous_replica().await;
        sink.wait_requests(sink.request_count() + 50, LIMIT).await;
        primary = fail_over(&primary, replica, &[&proxy]).await;
        let moved = Instant::now();
        let sent = sink.request_count();
        wait_for(LIMIT, async || sink.request_count(), |count| *count > sent).await;
        back.push(moved.elapsed());
    }
    sink.wait_requests(sink.request_count() + 50, LIMIT).await;
    over.send_replace(true);
    let (mut stored, mut longest) = (HashSet::new(), Duration::ZERO);
    for (ids, its_longest) in producers.join_all().await {
        stored.extend(ids);
        longest = longest.max(its_longest);
    }
    let pool = primary.pool().await;
    let counts = wait_drained(&pool).await;
    let received = received(&sink);
    let duplicates = sink.request_count() - received.len();
    println!(
        "{} jobs, {failovers} failovers, {duplicates} duplicates; first delivery after each {back:?}; \
        longest enqueue {longest:?}",
        stored.len()
    );
    // A job whose answer was lost with the primary may be there without the producer's knowing.
    let lost: Vec<&String> = stored
        .iter()
        .filter(|id| !received.contains_key(*id))
        .collect();
    assert_eq!(lost, Vec::<&String>::new());
    assert_eq!(counts["ended"], 0);
    assert!(duplicates <= failovers * slots, "{duplicates} duplicates");
    assert!(
        back.iter().all(|took| *took < Duration::from_secs(15)),
        "{back:?}"
    );
}
