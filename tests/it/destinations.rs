//! Sick targets beside healthy ones: who waits, who is pushed back, and how it ends.

use std::{collections::HashMap, net::SocketAddr, time::Duration};

use hook_testkit::{
    db::TestDb,
    process::Program,
    proxy::{CutPoint, Proxy},
    sink::{
        Sink,
        answer::{Answer, End},
        record::{Connection, in_flight_peak},
        script::{Opening, OpeningAct, Script},
    },
    stack::Stack,
    wait::{pause, wait_for},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::Instant};

use crate::kit::{LIMIT, enqueue_many, p95, patch_target, target, wait_drained, wait_state, waits};

/// An address where nothing listens.
async fn closed_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    listener
        .local_addr()
        .expect("a bound socket has an address")
}

/// Jobs to one target.
fn jobs(url: &str, target: &str, count: usize) -> Vec<Value> {
    (0..count)
        .map(|n| json!({"url": format!("{url}/{n}"), "target": target}))
        .collect()
}

async fn penalised(stack: &Stack) -> Option<f64> {
    let metrics = stack.metrics(Program::Worker).await;
    metrics.value("hook_worker_penalised_targets")
}

#[tokio::test]
async fn q_01_a_hanging_target_does_not_delay_a_fast_one() {
    let db = TestDb::new().await;
    let (slow, fast) = (Sink::start(Answer::silence()).await, Sink::start(200).await);
    let mut stack = Stack::builder(&db.url()).start().await;
    stack.workers[0].terminate(LIMIT).await;
    stack.workers.clear();
    enqueue_many(&stack, &jobs(&slow.url(""), "slow.test", 500)).await;
    enqueue_many(&stack, &jobs(&fast.url(""), "fast.test", 200)).await;
    stack.start_worker().await;
    // Two rounds of the attempt timeout and two seconds: naive order would need 310 s.
    fast.wait_requests(200, Duration::from_secs(12)).await;
    // Refresh, attempt timeout and one second.
    wait_for(
        Duration::from_secs(8),
        async || penalised(&stack).await,
        |penalised| *penalised == Some(1.0),
    )
    .await;
    wait_state(&stack, "slow.test", "penalised").await;
    // One attempt in ten seconds at least: the second round follows the first timeout.
    slow.wait_requests(slow.request_count() + 1, Duration::from_secs(10))
        .await;
}

/// Where the case lets four slow jobs of one host run, contract §5 lets a penalised target hold
/// two slots, so here one slow job runs at a time, and half as many fast ones go through the other
/// slot: on a busy machine a round trip may take long.
#[tokio::test]
async fn q_02_a_slow_job_does_not_hold_up_what_was_leased_beside_it() {
    const SLOTS: usize = 4;
    let db = TestDb::new().await;
    let slow = Answer::ok().pause_before_head(Duration::from_millis(2500));
    let sink = Sink::start(Script::by_path([
        ("/slow", Script::always(slow)),
        ("/fast", Script::status(200)),
    ]))
    .await;
    let stack = Stack::builder(&db.url())
        .set("HOOK_WORKER_SLOTS", SLOTS)
        .start()
        .await;
    let pool = db.pool().await;
    let mut enqueued: HashMap<String, Instant> = HashMap::new();
    for round in 1..=2 {
        stack.enqueue_to(&sink.url("/slow")).await;
        let begun = Instant::now();
        let fast = enqueue_many(&stack, &jobs(&sink.url("/fast"), "127.0.0.1", 15)).await;
        enqueued.extend(fast.into_iter().map(|id| (id, begun)));
        wait_for(
            LIMIT,
            async || {
                let leased: Vec<String> = sqlx::query_scalar("SELECT job_id::text FROM hook.lease")
                    .fetch_all(&pool)
                    .await
                    .expect("leases can be read");
                let requests = sink.requests();
                let started = |id: &String| requests.iter().any(|request| request.id() == id);
                let idle = leased.iter().filter(|id| !started(id)).count();
                assert!(idle <= SLOTS, "{idle} jobs are leased and not sent");
                let slow = sink.requests_at("/slow");
                slow.iter()
                    .filter(|request| request.ended.is_some())
                    .count()
            },
            |ended| *ended == round,
        )
        .await;
    }
    wait_drained(&pool).await;
    let longest = waits_of(&sink, "/fast", &enqueued).into_iter().max();
    assert!(longest < Some(Duration::from_secs(2)), "{longest:?}");
}

/// As [`waits`], for the requests of one path.
fn waits_of(sink: &Sink, path: &str, enqueued: &HashMap<String, Instant>) -> Vec<Duration> {
    assert!(!sink.requests_at(path).is_empty());
    waits(sink, enqueued)
}

/// Scaled to a tenth of the time and a fifth of the failing jobs; the hold, which stops them from
/// being tried for nothing, comes as much sooner.
#[tokio::test]
async fn q_03_jobs_that_fail_do_not_come_before_newer_ones() {
    let db = TestDb::new().await;
    let bad = closed_port().await;
    let ok = Sink::start(200).await;
    let stack = Stack::builder(&db.url())
        .set("HOOK_WORKER_SLOTS", 2)
        .set("HOOK_RETRY_SCHEDULE", "200ms,400ms,800ms,1s")
        .set("HOOK_MAX_ATTEMPTS", 25)
        .set("HOOK_HOLD_AFTER", "500ms")
        .start()
        .await;
    enqueue_many(&stack, &jobs(&format!("http://{bad}"), "bad.test", 40)).await;
    let mut enqueued = HashMap::new();
    for _ in 0..120 {
        let begun = Instant::now();
        let id = stack
            .enqueue_id(&json!({"url": ok.url("/x"), "target": "ok.test"}))
            .await;
        enqueued.insert(id, begun);
        pause(Duration::from_millis(50)).await;
    }
    ok.wait_requests(120, LIMIT).await;
    let p95 = p95(waits(&ok, &enqueued));
    assert!(p95 <= Duration::from_secs(1), "{p95:?}");
    let metrics = stack.metrics(Program::Worker).await;
    let of = |labels| metrics.sum("hook_worker_attempts_total", labels);
    let (refused, delivered) = (
        of(&[("error_kind", "connect")]),
        of(&[("outcome", "delivered")]),
    );
    assert!(refused <= delivered, "{refused} of {}", refused + delivered);
    assert!(refused >= 20.0, "they were tried until the target was held");
    let waiting: Vec<i16> =
        sqlx::query_scalar("SELECT DISTINCT tier FROM hook.ready WHERE attempt > 0")
            .fetch_all(&db.pool().await)
            .await
            .expect("waiting jobs can be read");
    assert_eq!(waiting, [2], "retries wait in the degraded queue");
}

/// The walk over failing targets is cut off each time it is asked for.
#[tokio::test]
async fn a_snapshot_that_cannot_be_renewed_stays_in_force_and_its_age_shows() {
    const WALK: &[u8] = b"-- failing_targets";
    let db = TestDb::new().await;
    let sink = Sink::start(500).await;
    let proxy = Proxy::before(&db.url());
    let mut stack = Stack::builder(&db.url())
        .set_for(Program::Worker, "DATABASE_URL", proxy.url(&db.url()))
        .set("HOOK_PENALTY_REFRESH", "300ms")
        .set("HOOK_RETRY_SCHEDULE", "1h")
        .start()
        .await;
    enqueue_many(&stack, &jobs(&sink.url(""), "sick.test", 8)).await;
    sink.wait_requests(8, LIMIT).await;
    // One that has seen nothing itself, so that the snapshot is all that it has.
    stack.workers[0].terminate(LIMIT).await;
    stack.workers.clear();
    sqlx::query("UPDATE hook.target SET penalty = 0")
        .execute(&db.pool().await)
        .await
        .expect("what workers found can be cleared");
    stack.start_worker().await;
    wait_for(
        LIMIT,
        async || penalised(&stack).await,
        |penalised| *penalised == Some(1.0),
    )
    .await;

    let asks = |bytes: &[u8]| bytes.windows(WALK.len()).any(|part| part == WALK);
    proxy.cut_on(CutPoint::Before, asks);
    proxy.cut();
    let age = async || {
        let metrics = stack.metrics(Program::Worker).await;
        metrics
            .value("hook_worker_penalty_snapshot_age_seconds")
            .expect("it is exported")
    };
    wait_for(LIMIT, age, |age| *age > 4.0).await;
    assert_eq!(penalised(&stack).await, Some(1.0), "it stays in force");
    stack.enqueue_to(&sink.url("/healthy")).await;
    sink.wait_requests(9, LIMIT).await;

    proxy.cut_on_nothing();
    wait_for(LIMIT, age, |age| *age < 2.0).await;
    assert_eq!(penalised(&stack).await, Some(1.0));
}

#[tokio::test]
async fn q_05_a_target_that_recovered_leaves_the_list_by_itself() {
    let db = TestDb::new().await;
    let sink = Sink::start(503).await;
    let stack = Stack::builder(&db.url())
        .set("HOOK_PENALTY_REFRESH", "1s")
        .set("HOOK_RETRY_SCHEDULE", "500ms,1s")
        .set("HOOK_MAX_ATTEMPTS", 50)
        .start()
        .await;
    enqueue_many(&stack, &jobs(&sink.url(""), "flap.test", 60)).await;
    wait_for(
        LIMIT,
        async || penalised(&stack).await,
        |penalised| *penalised == Some(1.0),
    )
    .await;
    sink.set_script(200);
    wait_drained(&db.pool().await).await;
    // Twice the refresh with its jitter, and a busy machine.
    wait_for(
        Duration::from_secs(4),
        async || penalised(&stack).await,
        |penalised| *penalised == Some(0.0),
    )
    .await;
    let mut enqueued = HashMap::new();
    for _ in 0..20 {
        let begun = Instant::now();
        let reply = stack
            .enqueue(&json!({"url": sink.url("/new"), "target": "flap.test"}))
            .await;
        enqueued.insert(reply.id(), begun);
        pause(Duration::from_millis(100)).await;
    }
    wait_drained(&db.pool().await).await;
    let p95 = p95(waits(&sink, &enqueued));
    assert!(p95 <= Duration::from_millis(500), "{p95:?}");
    assert_eq!(target(&stack, "flap.test").await["state"], "healthy");
}

#[tokio::test]
async fn q_06_a_host_that_is_down_is_one_bad_target_whatever_the_paths() {
    let db = TestDb::new().await;
    // As a closed port, but seen.
    let reset = Opening::act(OpeningAct::Finish(End::Reset)).after(Duration::from_millis(20));
    let down = Sink::builder(200)
        .openings(move |_| reset.clone())
        .start()
        .await;
    let ok = Sink::start(200).await;
    let stack = Stack::builder(&db.url())
        .set("HOOK_PENALTY_REFRESH", "500ms")
        .set("HOOK_MAX_ATTEMPTS", 50)
        .start()
        .await;
    enqueue_many(&stack, &jobs(&down.url(""), "down.test", 1000)).await;
    let begun = Instant::now();
    enqueue_many(&stack, &jobs(&ok.url(""), "ok.test", 100)).await;
    ok.wait_requests(100, Duration::from_secs(5)).await;
    assert!(begun.elapsed() <= Duration::from_secs(5));
    wait_for(
        LIMIT,
        async || penalised(&stack).await,
        |penalised| *penalised == Some(1.0),
    )
    .await;
    // What ran before it was flagged comes to its end first.
    let flagged = Instant::now() + Duration::from_millis(200);
    let later = |connections: &Vec<Connection>| {
        connections
            .iter()
            .filter(|connection| connection.opened > flagged)
            .count()
    };
    let connections = wait_for(
        LIMIT,
        async || down.connections(),
        |connections| later(connections) >= 40,
    )
    .await;
    let peak = connections
        .iter()
        .filter(|connection| connection.opened > flagged)
        .map(|one| {
            let open_then = |other: &&Connection| {
                other.opened <= one.opened && other.closed.is_none_or(|at| at > one.opened)
            };
            connections.iter().filter(open_then).count()
        })
        .max();
    assert!(peak <= Some(2), "{peak:?} attempts at one time");
    let listed = stack.get("/v1/targets?order=failing&limit=10").await.json();
    let states = listed["targets"].as_array().expect("a list").iter();
    let bad: Vec<_> = states.filter(|target| target["penalty"] != 0).collect();
    assert_eq!(bad.len(), 1, "{listed}");
    assert_eq!(bad[0]["target"], "down.test");
}

/// The documented total is workers × what a target may hold of one: its cap of 4, and idle slots
/// up to three quarters of the 8 while it answers quickly (contract §5). That all retries come due
/// in the same moment, which the jitter prevents, is forced here.
#[tokio::test]
async fn q_12_retries_of_an_outage_spread_out_and_do_not_flood_the_receiver() {
    const JOBS: usize = 400;
    let db = TestDb::new().await;
    let refuse = |_| Opening::act(OpeningAct::Finish(End::Reset));
    let sink = Sink::builder(Answer::ok().pause_before_head(Duration::from_millis(10)))
        .openings(refuse)
        .start()
        .await;
    let stack = Stack::builder(&db.url())
        .workers(3)
        .set("HOOK_RETRY_SCHEDULE", "8s")
        .start()
        .await;
    enqueue_many(&stack, &jobs(&sink.url(""), "down.test", JOBS)).await;
    let pool = db.pool().await;
    let waits: Vec<f64> = wait_for(
        Duration::from_secs(8),
        async || {
            sqlx::query_scalar(
                "SELECT extract(epoch FROM r.run_at - a.started_at)::float8
                 FROM hook.ready AS r JOIN hook.attempt AS a ON a.job_id = r.job_id AND a.attempt = 1
                 WHERE r.attempt = 1",
            )
            .fetch_all(&pool)
            .await
            .expect("due times can be read")
        },
        |waits: &Vec<f64>| waits.len() == JOBS,
    )
    .await;
    let count = f64::from(u32::try_from(JOBS).expect("few"));
    let mean = waits.iter().sum::<f64>() / count;
    let variance = waits.iter().map(|wait| (wait - mean).powi(2)).sum::<f64>() / count;
    assert!(variance.sqrt() > 0.5, "deviation {} s", variance.sqrt());
    for second in 0..20 {
        let bucket = f64::from(second)..f64::from(second + 1);
        let within = waits.iter().filter(|wait| bucket.contains(wait)).count();
        assert!(within * 10 <= JOBS * 4, "{within} in second {second}");
    }
    sink.set_openings(|_| Opening::serve());
    sqlx::query("UPDATE hook.ready SET run_at = now()")
        .execute(&pool)
        .await
        .expect("jobs can be made due");
    let counts = wait_drained(&pool).await;
    assert_eq!(counts["completed"], i64::try_from(JOBS).expect("few"));
    let peak = in_flight_peak(&sink.requests());
    assert!(peak <= 3 * 6, "{peak} at one time");
}

#[tokio::test]
async fn a_limit_of_attempts_holds_for_all_workers_together() {
    const TOTAL: usize = 4;
    let db = TestDb::new().await;
    let sink = Sink::start(Answer::ok().pause_before_head(Duration::from_millis(20))).await;
    let stack = Stack::builder(&db.url()).workers(3).start().await;
    patch_target(&stack, "limited.test", &json!({"max_in_flight": TOTAL})).await;
    // Until every worker has heard of the limit and of the others.
    wait_heard(&stack).await;
    enqueue_many(&stack, &jobs(&sink.url(""), "limited.test", 300)).await;
    let counts = wait_drained(&db.pool().await).await;
    assert_eq!(counts["completed"], 300);
    let peak = in_flight_peak(&sink.requests());
    assert!((2..=TOTAL).contains(&peak), "{peak} at one time");
}

#[tokio::test]
async fn a_rate_holds_for_all_workers_together_and_can_be_lifted_while_jobs_wait() {
    let db = TestDb::new().await;
    let sink = Sink::start(200).await;
    let stack = Stack::builder(&db.url()).workers(2).start().await;
    patch_target(&stack, "slow.test", &json!({"rate_per_second": 20})).await;
    wait_heard(&stack).await;
    enqueue_many(&stack, &jobs(&sink.url(""), "slow.test", 400)).await;
    let begun = Instant::now();
    let requests = sink.wait_requests(60, LIMIT).await;
    // What each worker saved up in a second, and then 20 a second.
    assert!(begun.elapsed() >= Duration::from_millis(1500));
    assert!(requests.len() < 100, "{} requests", requests.len());
    patch_target(&stack, "slow.test", &json!({"rate_per_second": null})).await;
    sink.wait_requests(400, Duration::from_secs(4)).await;
}

/// Waits until every worker has read the targets' settings twice since now, and counts all others.
async fn wait_heard(stack: &Stack) {
    let mut runs = Vec::new();
    for worker in &stack.workers {
        runs.push(shares(stack, worker).await);
    }
    for (worker, before) in stack.workers.iter().zip(runs) {
        wait_for(
            LIMIT,
            async || shares(stack, worker).await,
            |now| *now >= before + 4.0,
        )
        .await;
    }
}

async fn shares(stack: &Stack, worker: &hook_testkit::process::Process) -> f64 {
    let metrics = stack.metrics_of(worker).await;
    metrics.sum(
        "hook_loop_runs_total",
        &[("loop", "target_share"), ("result", "ok")],
    )
}

#[tokio::test]
async fn a_first_try_in_the_degraded_queue_wakes_a_worker_at_once() {
    let db = TestDb::new().await;
    let sink = Sink::start(200).await;
    let stack = Stack::builder(&db.url())
        .set("HOOK_POLL_INTERVAL", "60s")
        .set("HOOK_PENALTY_REFRESH", "100ms")
        .start()
        .await;
    patch_target(&stack, "pinned.test", &json!({"penalty": 2})).await;
    let job = json!({"url": sink.url("/x"), "target": "pinned.test"});
    let mut sent = 0;
    wait_for(
        LIMIT,
        async || {
            sent += 1;
            stack.enqueue(&job).await.json()["queue"].clone()
        },
        |queue| queue == "degraded",
    )
    .await;
    sink.wait_requests(sent, Duration::from_secs(5)).await;
}
