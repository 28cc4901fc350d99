//! Totals per target equal what the receiver saw, whatever is purged and whoever dies.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use hook_testkit::{
    db::TestDb,
    process::{Process, Program, Signal},
    sink::{Sink, script::Script},
    stack::{Stack, metrics::Metrics},
    wait::{pause, wait_for, wait_until},
};
use rand::Rng as _;
use serde_json::json;
use tokio::time::Instant;

use crate::kit::{LIMIT, amount, seeded, wait_drained};

const TARGETS: usize = 20;

/// Attempts by target and outcome.
type Counts = BTreeMap<(String, &'static str), u64>;

/// JAN-03: 70 % are delivered, 20 % end with a 404, 10 % fail until their attempts are used up;
/// everything is purged after a second, and two janitors are killed again and again. The totals are
/// those of the database, so they are exact: nothing is off by a batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jan_03_totals_equal_the_receivers_log_over_purges_and_killed_janitors() {
    let mut rng = seeded();
    let (job_count, kills) = (amount(2_000, 100_000), amount(5, 80));
    let db = TestDb::durable().await;
    let pool = db.pool().await;
    let sink = Sink::start(Script::status_in_path()).await;
    let mut stack = Stack::builder(&db.url())
        .set("HOOK_WORKER_SLOTS", 64)
        .set("HOOK_RETRY_SCHEDULE", "50ms")
        .set("HOOK_PENALTY_REFRESH", "30s")
        .set("HOOK_HOLD_FAILURES", 1_000_000)
        .set("HOOK_JANITOR_INTERVAL", "100ms")
        .set("HOOK_RETENTION_COMPLETED", "1s")
        .set("HOOK_RETENTION_FAILED", "1s")
        .start()
        .await;
    let mut other = stack.spawn(Program::Janitor).await;
    let mut seen = HashMap::new();
    for round in 0..kills {
        let jobs = (round * job_count / kills)..((round + 1) * job_count / kills);
        let jobs: Vec<_> = jobs.map(|n| job(&sink, n)).collect();
        for batch in jobs.chunks(250) {
            let reply = stack
                .post("/v1/jobs/batch", &json!({ "jobs": batch }))
                .await;
            assert_eq!(reply.status, 202, "{}", reply.text());
        }
        let until = Instant::now() + Duration::from_millis(rng.random_range(100..900));
        while Instant::now() < until {
            for janitor in stack.janitor.iter().chain([&other]) {
                never_falls(&mut seen, janitor, &stack.metrics_of(janitor).await);
            }
            pause(Duration::from_millis(50)).await;
        }
        let replaced = stack.process(Program::Janitor).await.start();
        let victim = if round % 2 == 0 {
            &mut other
        } else {
            stack.janitor.as_mut().unwrap()
        };
        victim.signal(Signal::Kill);
        *victim = replaced;
        victim.wait_ready(LIMIT).await;
    }
    wait_drained(&pool).await;
    let left = async || -> i64 {
        let left = sqlx::query_scalar("SELECT count(*) FROM hook.finished");
        left.fetch_one(&pool).await.unwrap()
    };
    wait_for(LIMIT, left, |left| *left == 0).await;

    let expected = log_of(&sink);
    assert_eq!(expected.values().sum::<u64>(), sink.request_count() as u64);
    assert!(sink.request_count() >= job_count);
    wait_until(LIMIT, async || {
        let mut shown = Counts::new();
        for janitor in stack.janitor.iter().chain([&other]) {
            shown.append(&mut counts_of(&stack.metrics_of(janitor).await));
        }
        if shown == expected {
            Ok(())
        } else {
            Err(shown)
        }
    })
    .await;
}

fn job(sink: &Sink, n: usize) -> serde_json::Value {
    let status = match n % 10 {
        0..7 => 200,
        7 | 8 => 404,
        _ => 503,
    };
    let target = format!("t{}.test", n / 10 % TARGETS);
    json!({"url": sink.url(&format!("/{status}/{target}")), "target": target})
}

/// What the receiver answered, by target and by what that means.
fn log_of(sink: &Sink) -> Counts {
    let mut counts = Counts::new();
    for request in sink.requests() {
        let mut parts = request.path.split('/').skip(1);
        let outcome = match parts.next() {
            Some("200") => "delivered",
            Some("404") => "permanent",
            _ => "retryable",
        };
        let target = parts.next().expect("the path names the target").to_owned();
        *counts.entry((target, outcome)).or_default() += 1;
    }
    counts
}

/// What a janitor shows by name; nothing if it does not lead.
fn counts_of(metrics: &Metrics) -> Counts {
    let mut counts = Counts::new();
    for sample in metrics.select("hook_target_outcomes_total", &[]) {
        let outcome = ["delivered", "retryable", "permanent"]
            .into_iter()
            .find(|outcome| sample.labels["outcome"] == *outcome)
            .expect("a known outcome");
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count"
        )]
        let number = sample.value as u64;
        if number > 0 {
            counts.insert((sample.labels["target"].clone(), outcome), number);
        }
    }
    counts
}

/// A counter of one process never goes back.
fn never_falls(
    seen: &mut HashMap<(u32, String, &'static str), u64>,
    janitor: &Process,
    metrics: &Metrics,
) {
    for ((target, outcome), number) in counts_of(metrics) {
        let before = seen
            .entry((janitor.pid(), target.clone(), outcome))
            .or_default();
        assert!(
            number >= *before,
            "{target} {outcome}: {number} after {before}"
        );
        *before = number;
    }
}
