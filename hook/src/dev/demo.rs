//! `hook dev --demo`: healthy targets beside one that hangs, live.
//!
//! A small load goes through the API to a receiver of the demo's own: half of it to healthy
//! targets, half to one host that is well, hangs, and is well again, in turn. Each second a line
//! says what the healthy targets see and how the other one is treated. The load is bounded: jobs
//! of the hanging host are given up after a minute.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use hook_common::{config::command_line::Vars, lifecycle::Stop};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet, time::Instant};
use tracing::warn;

use crate::{api::Api, exit::Failure, output::Output};

/// The host that turns sick.
const SICK: &str = "sick.demo";

/// Healthy targets.
const HEALTHY: u64 = 10;

/// Jobs for each kind of target in one batch, and how often one is sent: 200 jobs a second.
const BATCH: u64 = 10;
const BATCH_EVERY: Duration = Duration::from_millis(100);

/// A job of the sick host that waits for longer is given up, so that no backlog grows for ever.
const TTL_MS: u64 = 60_000;

/// A turn: well for a while, then hanging, then well again.
const TURN: Duration = Duration::from_secs(90);
const HANGS_FROM: Duration = Duration::from_secs(10);
const HANGS_UNTIL: Duration = Duration::from_secs(60);

/// Lines between two heads of the table.
const HEAD_EVERY: u64 = 20;

const HEAD: &str = "\
                | healthy targets              | sick.demo
   time  it is  |  jobs/s   p50 ms   p99 ms    |  state      level  running  waiting";

/// What the receiver and the table share.
#[derive(Clone)]
struct Shared {
    begun: Instant,
    state: Arc<Mutex<Seen>>,
    stop: Stop,
}

#[derive(Default)]
struct Seen {
    sent: HashMap<u64, Instant>,
    took: Vec<Duration>,
}

/// One line of the table.
#[derive(Debug, Serialize)]
struct Line {
    seconds: u64,
    sick_is: &'static str,
    healthy_jobs_per_second: usize,
    healthy_p50_ms: f64,
    healthy_p99_ms: f64,
    state: String,
    penalty: u64,
    running: u64,
    waiting: u64,
}

/// Plays until told to stop.
pub(super) async fn play(
    vars: &Vars,
    api: SocketAddr,
    output: Output,
    stop: Stop,
) -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.context("opening a port for the demo's receiver")?;
    let receiver = listener.local_addr().context("asking for the address")?;
    let mut vars = vars.clone();
    vars.set("HOOK_API_URL", format!("http://{api}"));
    let api = Arc::new(Api::from_vars(&vars)?);
    let shared = Shared {
        begun: Instant::now(),
        state: Arc::default(),
        stop: stop.clone(),
    };
    let router = Router::new()
        .route("/well", post(well))
        .route("/sick", post(sick))
        .with_state(shared.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            warn!(%error, "the demo's receiver ended");
        }
    });
    tasks.spawn(produce(shared.clone(), Arc::clone(&api), receiver));
    let mut shown = 0;
    while !stop.is_draining() {
        stop.pause(Duration::from_secs(1)).await;
        let line = shared.line(&api).await;
        if shown % HEAD_EVERY == 0 {
            output.show(HEAD, &Value::Null);
        }
        output.show(&line.text(), &line);
        shown += 1;
    }
    tasks.shutdown().await;
    Ok(())
}

/// Enqueues until told to stop.
async fn produce(shared: Shared, api: Arc<Api>, receiver: SocketAddr) {
    let mut next = 0;
    while !shared.stop.is_draining() {
        let due = Instant::now() + BATCH_EVERY;
        let jobs = batch(next, receiver);
        {
            let now = Instant::now();
            let mut seen = shared.lock();
            seen.sent
                .retain(|_, sent| sent.elapsed().as_millis() < u128::from(TTL_MS));
            seen.sent.extend((next..next + BATCH).map(|n| (n, now)));
        }
        next += BATCH;
        if let Err(error) = ask(&api, move |api| api.post("/v1/jobs/batch", &jobs)).await {
            warn!(%error, "a batch of the demo was not taken");
        }
        shared
            .stop
            .pause(due.saturating_duration_since(Instant::now()))
            .await;
    }
}

/// As many jobs for the healthy targets as for the sick one.
fn batch(first: u64, receiver: SocketAddr) -> Value {
    let numbers = first..first + BATCH;
    let well = numbers.clone().map(|n| {
        json!({
            "url": format!("http://{receiver}/well"),
            "target": format!("well-{}.demo", n % HEALTHY),
            "payload": {"n": n},
        })
    });
    let sick = numbers.map(|n| {
        json!({
            "url": format!("http://{receiver}/sick"),
            "target": SICK,
            "payload": {"n": n},
            "ttl_ms": TTL_MS,
            "timeout_ms": 5000,
        })
    });
    json!({"jobs": well.chain(sick).collect::<Vec<_>>()})
}

/// Asks the API on a thread that may wait.
async fn ask<T: Send + 'static>(
    api: &Arc<Api>,
    question: impl FnOnce(&Api) -> Result<T, crate::api::Fault> + Send + 'static,
) -> anyhow::Result<T> {
    let api = Arc::clone(api);
    let mut asking = JoinSet::new();
    asking.spawn_blocking(move || question(&api));
    let answer = asking.join_next().await.context("a question was asked")?;
    let answer = answer.context("asking the API")?;
    answer.map_err(|fault| match fault {
        crate::api::Fault::Refused(refusal) => anyhow::anyhow!("{}", refusal.code()),
        crate::api::Fault::Silent(error) => error,
    })
}

async fn well(State(shared): State<Shared>, Json(body): Json<Value>) -> StatusCode {
    let now = Instant::now();
    let mut seen = shared.lock();
    let sent = body["n"].as_u64().and_then(|n| seen.sent.remove(&n));
    seen.took.extend(sent.map(|sent| now - sent));
    StatusCode::OK
}

async fn sick(State(shared): State<Shared>) -> StatusCode {
    if shared.hangs() {
        shared.stop.pause(Duration::from_secs(60)).await;
    }
    StatusCode::OK
}

impl Shared {
    /// Whether the sick host hangs at this moment.
    fn hangs(&self) -> bool {
        let seconds = self.begun.elapsed().as_secs() % TURN.as_secs();
        (HANGS_FROM.as_secs()..HANGS_UNTIL.as_secs()).contains(&seconds)
    }

    async fn line(&self, api: &Arc<Api>) -> Line {
        let mut took = std::mem::take(&mut self.lock().took);
        took.sort_unstable();
        let at = |percent: usize| {
            let index = (took.len() * percent).div_ceil(100).saturating_sub(1);
            took.get(index)
                .map_or(0.0, |took| took.as_secs_f64() * 1000.0)
        };
        let target = ask(api, |api| api.get(&format!("/v1/targets/{SICK}"))).await;
        let target = target.unwrap_or(Value::Null);
        let number = |name: &str| target[name].as_u64().unwrap_or(0);
        Line {
            seconds: self.begun.elapsed().as_secs(),
            sick_is: if self.hangs() { "sick" } else { "well" },
            healthy_jobs_per_second: took.len(),
            healthy_p50_ms: at(50),
            healthy_p99_ms: at(99),
            state: target["state"].as_str().unwrap_or("-").to_owned(),
            penalty: number("penalty"),
            running: number("running"),
            waiting: number("waiting"),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn text(&self) -> String {
        format!(
            "{:>5} s   {:<5} | {:>7} {:>8.1} {:>8.1}    |  {:<10} {:>5} {:>8} {:>8}",
            self.seconds,
            self.sick_is,
            self.healthy_jobs_per_second,
            self.healthy_p50_ms,
            self.healthy_p99_ms,
            self.state,
            self.penalty,
            self.running,
            self.waiting
        )
    }
}
