//! Clients that go away while their request is being served.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use hook_testkit::{
    db::TestDb, raw::RawClient, sink::Sink, stack::Stack, wait::pause, wait::wait_for,
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::json;
use tokio::task::JoinSet;

use crate::kit::{LIMIT, amount, seeded, stored, wait_drained};

const AT_ONCE: usize = 50;

/// A body that tells whose it is and whether it is whole.
fn body(client: usize) -> String {
    format!(
        "{{\"client\":{client},\"text\":\"{}\"}}",
        "x".repeat(client % 700)
    )
}

/// AU-28: clients, 10,000 with `HOOK_TEST_FULL`, hang up 0–20 ms after they have sent their request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn au_28_hang_ups_leave_nothing_half_done() {
    let clients = amount(2_500, 10_000);
    let seed: u64 = seeded().random();
    let db = TestDb::new().await;
    let sink = Sink::start(200).await;
    let stack = Stack::builder(&db.url())
        .set("HOOK_WORKER_SLOTS", 128)
        .start()
        .await;
    let (address, url) = (stack.api_address(), sink.url("/h"));
    let mut tasks = JoinSet::new();
    for lane in 0..AT_ONCE {
        let url = url.clone();
        tasks.spawn(async move {
            let mut rng = StdRng::seed_from_u64(seed ^ lane as u64);
            for client in (lane..clients).step_by(AT_ONCE) {
                // One in five goes the way of batches with keys, which needs a transaction.
                let job = format!("{{\"url\":\"{url}\",\"target\":\"t{}.test\",\"payload\":{}", client % 100, body(client));
                let (path, text) = if client % 5 == 0 {
                    ("/v1/jobs/batch", format!("{{\"jobs\":[{job},\"idempotency_key\":\"k{client}\"}}]}}"))
                } else {
                    ("/v1/jobs", format!("{job}}}"))
                };
                let request = format!(
                    "POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{text}",
                    text.len()
                );
                let mut raw = RawClient::connect(address).await.expect("the API listens");
                raw.send(request).await.expect("the API reads");
                pause(Duration::from_micros(rng.random_range(0..20_000))).await;
                if client % 2 == 0 {
                    raw.reset();
                }
            }
        });
    }
    tasks.join_all().await;
    let mut later = HashSet::new();
    for n in 0..200 {
        let job = json!({"url": sink.url("/later"), "payload": n, "target": format!("l{n}.test")});
        later.insert(stack.enqueue_id(&job).await);
    }
    let pool = db.pool().await;
    let counts = wait_drained(&pool).await;
    let jobs = stored(&pool).await;
    println!("{} of {clients} requests were stored", jobs - 200);
    assert_eq!((counts["completed"], counts["ended"]), (jobs, 0));
    let requests = sink.requests();
    let ids: HashSet<&str> = requests.iter().map(|request| request.id()).collect();
    assert_eq!(
        i64::try_from(ids.len()),
        Ok(jobs),
        "a stored job was not delivered"
    );
    assert!(
        later.iter().all(|id| ids.contains(&id[..])),
        "an accepted job was lost"
    );
    let mut of_client: HashMap<u64, usize> = HashMap::new();
    for request in sink.requests_at("/h") {
        let value: serde_json::Value =
            serde_json::from_slice(&request.body).expect("a job is whole");
        let client = value["client"].as_u64().expect("it tells its client");
        *of_client.entry(client).or_default() += 1;
        assert_eq!(
            request.body,
            body(usize::try_from(client).expect("it is small"))
        );
    }
    assert!(
        of_client.values().all(|count| *count == 1),
        "a request was stored twice"
    );
    wait_for(
        LIMIT,
        async || {
            sqlx::query_scalar::<_, i64>(
                "SELECT count(*) FROM pg_stat_activity
                WHERE datname = current_database() AND state LIKE 'idle in transaction%'",
            )
            .fetch_one(&pool)
            .await
            .expect("Postgres tells")
        },
        |open| *open == 0,
    )
    .await;
}
