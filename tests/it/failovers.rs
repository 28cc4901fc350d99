//! The primary is lost, and its replica takes over.

use std::{collections::HashSet, time::Duration};

use hook_testkit::{
    db::TestDb,
    proxy::{Mode, Proxy},
    sink::Sink,
    stack::Stack,
    wait::{pause, wait_for, wait_until},
};
use serde_json::json;
use sqlx::PgPool;
use tokio::{sync::watch, task::JoinSet, time::Instant};

use crate::kit::{LIMIT, amount, received, wait_drained};

const PRODUCERS: usize = 4;

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

/// Producers, until they are told to end.
pub(crate) struct Producers {
    over: watch::Sender<bool>,
    tasks: JoinSet<(HashSet<String>, Duration)>,
}

impl Producers {
    /// Lets them begin; the keys of their jobs begin with `phase`.
    pub(crate) fn begin(phase: &str, stack: &Stack, sink: &Sink) -> Self {
        let over = watch::Sender::new(false);
        let mut tasks = JoinSet::new();
        for n in 0..PRODUCERS {
            let (client, enqueue) = (stack.client().clone(), stack.api_url("/v1/jobs"));
            let (name, url) = (format!("{phase}-{n}"), sink.url("/f"));
            tasks.spawn(produce(name, client, enqueue, over.subscribe(), url));
        }
        Self { over, tasks }
    }

    /// Lets them end; gives the ids that were stored, and the longest time that one took.
    pub(crate) async fn end(self) -> (HashSet<String>, Duration) {
        self.over.send_replace(true);
        let (mut stored, mut longest) = (HashSet::new(), Duration::ZERO);
        for (ids, its_longest) in self.tasks.join_all().await {
            stored.extend(ids);
            longest = longest.max(its_longest);
        }
        (stored, longest)
    }
}

/// Enqueues one job after the other until it is over, each until it is stored; gives the ids, and
/// the longest time that one took.
async fn produce(
    producer: String,
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
    let producers = Producers::begin("p", &stack, &sink);
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
    let (stored, longest) = producers.end().await;
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

/// How many of these jobs the database knows.
async fn known(pool: &PgPool, ids: &HashSet<String>) -> usize {
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let known: i64 =
        sqlx::query_scalar("SELECT count(*) FROM hook.job WHERE job_id = ANY ($1::text[]::uuid[])")
            .bind(ids)
            .fetch_one(pool)
            .await
            .expect("jobs can be counted");
    usize::try_from(known).expect("it is a count")
}

/// What a replica had not got when the primary was lost is lost with it, answered or not; nothing
/// else is, nothing is sent twice, and the services go on by themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_to_an_asynchronous_replica_loses_what_it_had_not_got() {
    let primary = TestDb::durable().await;
    let (name, way) = (Proxy::before(&primary.url()), Proxy::before(&primary.url()));
    let sink = Sink::start(200).await;
    let mut stack = Stack::start(&name.url(&primary.url())).await;
    let replica = primary.asynchronous_replica(&way).await;

    let producers = Producers::begin("before", &stack, &sink);
    sink.wait_requests(100, LIMIT).await;
    let (before, _) = producers.end().await;
    wait_drained(&primary.pool().await).await;
    primary.wait_replicated().await;
    way.set(Mode::Freeze);
    let producers = Producers::begin("unseen", &stack, &sink);
    sink.wait_requests(before.len() + 100, LIMIT).await;
    let (unseen, _) = producers.end().await;
    let promoted = fail_over(&primary, replica, &[&name]).await;
    let moved = Instant::now();
    let producers = Producers::begin("after", &stack, &sink);
    let sent = sink.request_count();
    sink.wait_requests(sent + 1, LIMIT).await;
    let back = moved.elapsed();
    sink.wait_requests(sent + 100, LIMIT).await;
    let (after, _) = producers.end().await;

    let pool = promoted.pool().await;
    let counts = wait_drained(&pool).await;
    let received = received(&sink);
    let delivered =
        |ids: &HashSet<String>| ids.iter().filter(|id| received.contains_key(*id)).count();
    println!(
        "of {} jobs answered while the replica got nothing, {} are unknown afterwards, {} of which \
        were delivered; first delivery {back:?} after the failover",
        unseen.len(),
        unseen.len() - known(&pool, &unseen).await,
        delivered(&unseen),
    );
    assert_eq!(known(&pool, &unseen).await, 0);
    for kept in [&before, &after] {
        assert_eq!(known(&pool, kept).await, kept.len());
        assert_eq!(delivered(kept), kept.len());
    }
    assert_eq!(counts["ended"], 0);
    assert_eq!(
        sink.request_count(),
        received.len(),
        "nothing is sent twice"
    );
    assert!(stack.all_run());
}

/// An old primary that is started again still waits for its synchronous replica: whoever is led to
/// it is told of no success, and sends nothing of what it holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_primary_that_comes_back_accepts_and_sends_nothing() {
    let old = TestDb::durable().await;
    let name = Proxy::before(&old.url());
    let sink = Sink::start(200).await;
    let mut stack = Stack::start(&name.url(&old.url())).await;
    let replica = old.synchronous_replica().await;

    // The replica is away for a while: no commit returns, and the repeat finds what was stored.
    let job = |key: &str| json!({"url": sink.url("/f"), "idempotency_key": key});
    replica.crash_server().await;
    let reply = stack.enqueue(&job("waited")).await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    replica.start_server().await;
    let accepted = async |key: &str| {
        let accepted = async || {
            let reply = stack.enqueue(&job(key)).await;
            if !matches!(reply.status, 200 | 202) {
                return Err(reply.text());
            }
            Ok(reply.id())
        };
        wait_until(LIMIT, accepted).await
    };
    let mut ids = HashSet::from([accepted("waited").await]);

    let new = fail_over(&old, replica, &[&name]).await;
    ids.insert(accepted("moved").await);
    let pool = new.pool().await;
    wait_drained(&pool).await;
    old.start_server().await;
    // What it may still have to do; only who asks for it commits without the replica.
    let mut own = old.connect().await;
    sqlx::raw_sql("SET synchronous_commit = local")
        .execute(&mut own)
        .await
        .expect("a setting");
    sqlx::query("SELECT hook.enqueue($1)")
        .bind(sink.url("/old"))
        .execute(&mut own)
        .await
        .expect("it writes");
    name.lead_to(&old.url());
    name.cut();
    let reply = stack.enqueue(&job("old")).await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    let of_old = old.pool().await;
    let leasing = async || -> bool {
        sqlx::query_scalar(
            "SELECT EXISTS (
                SELECT FROM pg_stat_activity
                WHERE wait_event = 'SyncRep' AND application_name = 'hook-worker'
                    AND query LIKE '-- dequeue%'
            )",
        )
        .fetch_one(&of_old)
        .await
        .expect("sessions can be looked at")
    };
    wait_for(LIMIT, leasing, |leasing| *leasing).await;
    assert_eq!(
        sink.request_count(),
        ids.len(),
        "nothing of the old one is sent"
    );
    name.lead_to(&new.url());
    name.cut();
    ids.insert(accepted("again").await);
    let counts = wait_drained(&pool).await;
    assert_eq!(counts["ended"], 0);
    let received = received(&sink);
    assert!(ids.iter().all(|id| received.contains_key(id)));
    assert_eq!(
        (received.len(), sink.request_count()),
        (ids.len(), ids.len())
    );
    assert!(stack.all_run());
}
