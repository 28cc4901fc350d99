//! Processes are killed at random moments: nothing accepted is lost, little is sent twice.

use std::{collections::HashMap, time::Duration};

use hook_testkit::{
    db::TestDb,
    process::{Program, Signal},
    sink::{Sink, answer::Answer},
    stack::Stack,
    wait::pause,
};
use rand::Rng as _;
use serde_json::Value;
use tokio::{sync::watch, task::JoinSet, time::Instant};

use crate::kit::{LIMIT, Sample, amount, received, sample, seeded, sha256, wait_drained};

const TARGETS: usize = 500;
const BATCH: usize = 50;
const PRODUCERS: usize = 8;
const KILLS: usize = 12;
const SLOTS: usize = 32;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_processes_lose_nothing_and_keyed_repeats_create_nothing_twice() {
    let mut rng = seeded();
    // Half of them one by one, half in batches of 50.
    let jobs = amount(4_000, 10_000);
    let db = TestDb::durable().await;
    let sink = Sink::start(Answer::ok().pause_before_head(Duration::from_millis(5))).await;
    let mut stack = Stack::builder(&db.url())
        .set("HOOK_WORKER_SLOTS", SLOTS)
        .set("HOOK_LEASE", "9s")
        .set("HOOK_ATTEMPT_TIMEOUT", "4s")
        .set("HOOK_CONNECT_TIMEOUT", "2s")
        .set("HOOK_MAX_ATTEMPTS", 20)
        .set("HOOK_RETRY_SCHEDULE", "200ms")
        .start()
        .await;
    let url = sink.url("/k");
    let samples: Vec<Sample> = (0..jobs)
        .map(|n| sample(&mut rng, n, &url, &format!("t{}.test", n % TARGETS)))
        .collect();
    let (base, bases) = watch::channel(stack.api_url(""));
    let mut producers = JoinSet::new();
    for part in requests(&samples) {
        producers.spawn(produce(stack.client().clone(), bases.clone(), part));
    }
    let mut killed_workers = 0;
    for round in 0..KILLS {
        pause(Duration::from_millis(rng.random_range(20..400))).await;
        let victim = [Program::Worker, Program::Api, Program::Janitor][round % 3];
        killed_workers += usize::from(victim == Program::Worker);
        kill_and_restart(&mut stack, victim).await;
        base.send_replace(stack.api_url(""));
    }
    let parts = producers.join_all().await;
    let answers = parts.iter().map(Vec::len).sum::<usize>();
    let expected: HashMap<String, String> = parts.into_iter().flatten().collect();
    assert_eq!((answers, expected.len()), (jobs, jobs), "one id per key");

    let counts = wait_drained(&db.pool().await).await;
    let stored = i64::try_from(jobs).expect("it is small");
    assert_eq!((counts["completed"], counts["ended"]), (stored, 0));
    let received = received(&sink);
    assert_eq!(received.len(), jobs, "each job arrived and nothing else");
    for (id, digests) in &received {
        let digest = expected.get(id).expect("what arrived was accepted");
        assert!(digests.iter().all(|got| got == digest), "job {id}");
    }
    let duplicates: usize = received.values().map(|digests| digests.len() - 1).sum();
    println!("{duplicates} duplicates after {killed_workers} killed workers");
    assert!(
        duplicates <= killed_workers * SLOTS,
        "{duplicates} duplicates"
    );
}

/// A request with jobs that each have a key, so that it can be repeated.
struct Request {
    path: &'static str,
    body: String,
    digests: Vec<String>,
}

/// The requests of each producer.
fn requests(samples: &[Sample]) -> Vec<Vec<Request>> {
    let keyed = samples.iter().enumerate().map(|(n, sample)| {
        let fields = sample.request.strip_prefix('{').expect("it is an object");
        (
            format!(r#"{{"idempotency_key":"k{n}",{fields}"#),
            sha256(&sample.bytes),
        )
    });
    let (single, batched): (Vec<_>, Vec<_>) = keyed.enumerate().partition(|(n, _)| n % 2 == 0);
    let single = single.into_iter().map(|(_, (body, digest))| Request {
        path: "/v1/jobs",
        body,
        digests: vec![digest],
    });
    let batches = batched.chunks(BATCH).map(|chunk| {
        let jobs: Vec<&str> = chunk.iter().map(|(_, (job, _))| job.as_str()).collect();
        Request {
            path: "/v1/jobs/batch",
            body: format!(r#"{{"jobs":[{}]}}"#, jobs.join(",")),
            digests: chunk
                .iter()
                .map(|(_, (_, digest))| digest.clone())
                .collect(),
        }
    });
    let mut parts: Vec<Vec<Request>> = (0..PRODUCERS).map(|_| Vec::new()).collect();
    for (n, request) in batches.chain(single).enumerate() {
        parts[n % PRODUCERS].push(request);
    }
    parts
}

/// Sends each request until it is answered, as a producer does that may not lose anything; gives
/// the id of each job with the digest of its body.
async fn produce(
    client: reqwest::Client,
    bases: watch::Receiver<String>,
    requests: Vec<Request>,
) -> Vec<(String, String)> {
    let mut stored = Vec::new();
    for request in requests {
        let begun = Instant::now();
        let answer = loop {
            assert!(begun.elapsed() < LIMIT, "the API does not come back");
            let url = format!("{}{}", bases.borrow().as_str(), request.path);
            let sent = client
                .post(url)
                .header("content-type", "application/json")
                .body(request.body.clone());
            if let Some(answer) = accepted(sent).await {
                break answer;
            }
            pause(Duration::from_millis(20)).await;
        };
        let one = std::slice::from_ref(&answer);
        let jobs = answer["jobs"].as_array().map_or(one, Vec::as_slice);
        assert_eq!(jobs.len(), request.digests.len());
        let ids = jobs.iter().map(|job| job["id"].as_str().expect("an id"));
        stored.extend(ids.map(str::to_owned).zip(request.digests));
    }
    stored
}

/// The answer, unless the API died over it or is not able now.
async fn accepted(request: reqwest::RequestBuilder) -> Option<Value> {
    let answer = request.send().await.ok()?;
    let status = answer.status();
    let answer = answer.json().await.ok()?;
    if status == 503 {
        return None;
    }
    assert!(status.is_success(), "{status}: {answer}");
    Some(answer)
}

/// Kills the victim and starts it again, as whoever runs it would.
async fn kill_and_restart(stack: &mut Stack, victim: Program) {
    match victim {
        Program::Worker => {
            stack.workers[0].signal(Signal::Kill);
            stack.workers[0].wait_exit(LIMIT).await;
            stack.workers.clear();
            stack.start_worker().await;
        }
        Program::Api => {
            stack.api.signal(Signal::Kill);
            stack.restart_api().await;
        }
        Program::Janitor => {
            let janitor = stack.janitor.as_ref().expect("the stack has a janitor");
            janitor.signal(Signal::Kill);
            stack.janitor = Some(stack.spawn(Program::Janitor).await);
        }
        Program::Hook => unreachable!("it is not a service"),
    }
}
