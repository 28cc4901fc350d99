//! Processes are killed at random moments: nothing accepted is lost, little is sent twice.

use std::{collections::HashSet, ops::Range, time::Duration};

use hook_testkit::{
    db::TestDb,
    process::{Program, Signal},
    sink::{Sink, answer::Answer},
    stack::Stack,
    wait::pause,
};
use rand::Rng as _;
use serde_json::{Value, json};

use crate::kit::{LIMIT, received, seeded, wait_drained};

const JOBS: usize = 3_000;
const ROUNDS: usize = 8;
const SLOTS: usize = 32;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_processes_lose_nothing_and_keyed_repeats_create_nothing_twice() {
    let mut rng = seeded();
    let db = TestDb::durable().await;
    let sink = Sink::start(Answer::ok().pause_before_head(Duration::from_millis(5))).await;
    let mut stack = Stack::builder(&db.url())
        .set("HOOK_WORKER_SLOTS", SLOTS)
        .set("HOOK_LEASE", "6s")
        .set("HOOK_ATTEMPT_TIMEOUT", "1s")
        .set("HOOK_CONNECT_TIMEOUT", "1s")
        .set("HOOK_MAX_ATTEMPTS", 20)
        .set("HOOK_RETRY_SCHEDULE", "200ms")
        .start()
        .await;
    let mut accepted: HashSet<String> = HashSet::new();
    let mut killed_workers = 0;
    for round in 0..ROUNDS {
        let victim = [Program::Worker, Program::Api, Program::Janitor][round % 3];
        let moment = Duration::from_millis(rng.random_range(20..400));
        let first = round * JOBS / ROUNDS;
        let jobs = first..first + JOBS / ROUNDS;
        let producer = produce(&stack, sink.url("/k"), jobs);
        let killer = async {
            pause(moment).await;
            match victim {
                Program::Worker => stack.workers[0].signal(Signal::Kill),
                Program::Api => stack.api.signal(Signal::Kill),
                Program::Janitor => {
                    stack
                        .janitor
                        .as_ref()
                        .expect("the stack has a janitor")
                        .signal(Signal::Kill);
                }
                Program::Hook => {}
            }
        };
        let (produced, ()) = tokio::join!(producer, killer);
        accepted.extend(produced.accepted);
        killed_workers += usize::from(victim == Program::Worker);
        restart(&mut stack, victim).await;
        // The producer repeats what it has no answer for, with the same keys.
        for body in produced.unanswered {
            let reply = stack.enqueue(&body).await;
            assert!(matches!(reply.status, 200 | 202), "{}", reply.text());
            accepted.insert(reply.id());
        }
    }
    assert_eq!(accepted.len(), JOBS, "a repeated key gives the first job");
    let counts = wait_drained(&db.pool().await).await;
    let stored = i64::try_from(JOBS).expect("it is small");
    assert_eq!((counts["completed"], counts["ended"]), (stored, 0));
    let received = received(&sink);
    assert!(
        accepted.iter().all(|id| received.contains_key(id)),
        "an accepted job was lost"
    );
    assert_eq!(
        received.len(),
        JOBS,
        "nothing was delivered that was not accepted"
    );
    let duplicates: usize = received
        .values()
        .map(|deliveries| deliveries.len() - 1)
        .sum();
    println!("{duplicates} duplicates after {killed_workers} killed workers");
    assert!(
        duplicates <= killed_workers * SLOTS,
        "{duplicates} duplicates"
    );
}

/// What a producer got for its requests.
#[derive(Default)]
struct Produced {
    accepted: Vec<String>,
    unanswered: Vec<Value>,
}

/// Enqueues one keyed job after the other, whatever happens to the API.
async fn produce(stack: &Stack, url: String, jobs: Range<usize>) -> Produced {
    let mut produced = Produced::default();
    for n in jobs {
        let job = json!({
            "url": url,
            "payload": n,
            "target": format!("t{}.test", n % 50),
            "idempotency_key": format!("k{n}"),
        });
        let sent = stack
            .client()
            .post(stack.api_url("/v1/jobs"))
            .json(&job)
            .send();
        match sent.await {
            Ok(answer) if answer.status().is_success() => {
                let answer: Value = answer.json().await.expect("a JSON answer");
                produced
                    .accepted
                    .push(answer["id"].as_str().expect("an id").to_owned());
            }
            Ok(_) | Err(_) => produced.unanswered.push(job),
        }
    }
    produced
}

/// Starts the victim again, as whoever runs it would.
async fn restart(stack: &mut Stack, victim: Program) {
    match victim {
        Program::Worker => {
            stack.workers[0].wait_exit(LIMIT).await;
            stack.workers.clear();
            stack.start_worker().await;
        }
        Program::Api => stack.restart_api().await,
        Program::Janitor => stack.janitor = Some(stack.spawn(Program::Janitor).await),
        Program::Hook => {}
    }
}
