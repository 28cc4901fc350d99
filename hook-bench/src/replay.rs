//! `hook bench replay`: many failed jobs put back while healthy targets get theirs.
//!
//! First the healthy targets alone, then the same load while the replay is worked off at its rate
//! and the jobs that it puts back are delivered.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::{
    clock,
    command::Common,
    http::{Connection, uri},
    progress::say,
    report::{Column, Figure, Findings, Line, Table, column},
    scene::{Mix, Phase, Scene, Setup},
    sql::fill::{Ended, How},
};

/// The part of what the machine delivers that is put on beside.
const LOAD: f64 = 0.4;

const P99_RATIO_MAX: f64 = 1.5;

/// Longest time after the last job fell due until every job is delivered.
const LATE_MAX: f64 = 60.0;

#[derive(Args, Clone, Debug)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Failed jobs.
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    jobs: u32,
    /// Jobs a second that the replay puts back.
    #[arg(long, default_value_t = 1000, value_name = "JOBS")]
    replay_rate: u32,
    /// Healthy jobs a second beside; by default 40 % of what the machine delivers.
    #[arg(long, value_name = "JOBS")]
    rate: Option<f64>,
    /// Seconds of the load before the replay begins.
    #[arg(long, default_value_t = 20.0, value_name = "SECONDS")]
    seconds: f64,
}

/// The failed jobs are those of targets that have been well again since.
const SETUP: Setup = Setup {
    sick: 20,
    settings: &[],
};

const COLUMNS: &[Column] = &[
    column("jobs_per_second", "jobs/s", 0),
    column("replayed", "replayed", 0),
    column("replayed_per_second", "replayed/s", 0),
    column("p50_ms", "healthy p50 ms", 2),
    column("p99_ms", "p99", 2),
    column("worst_second_p99_ms", "worst second p99", 2),
];

pub(crate) async fn run(args: &ReplayArgs) -> anyhow::Result<Findings> {
    let mut scene = Scene::start(&args.common, SETUP).await?;
    let rate = match args.rate {
        Some(rate) => rate,
        None => LOAD * scene.full(Duration::from_secs(5)).await?,
    };
    say(format_args!("filling in {} failed jobs", args.jobs));
    let failed = Ended {
        bucket: None,
        how: How::Failed,
        seconds_ago: 60,
    };
    scene.fill_ended(args.jobs, failed).await?;
    say(format_args!("{rate:.0} jobs/s, no replay yet"));
    let base = scene
        .phase(Mix::HEALTHY, rate, args.seconds, async |_| Ok(()))
        .await?;
    say("replaying");
    let api = scene.api.public;
    let begun = clock::now();
    let seconds = f64::from(args.jobs) / f64::from(args.replay_rate);
    let mut path = String::new();
    let phase = scene
        .phase(Mix::HEALTHY, rate, seconds.max(2.0), async |_| {
            path = start(api, args).await?;
            Ok(())
        })
        .await?;
    let took = delivered(&mut scene, args, begun).await?;
    let replay = ask(api, &path).await?;
    ensure!(
        replay["state"] == "completed" && replay["done"] == args.jobs,
        "the replay has not come to its end: {replay}"
    );
    let counts = scene.receiver.counts().await?;
    scene.stop().await?;

    let jobs = f64::from(args.jobs);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 jobs")]
    let arrived = counts.strangers as f64;
    let mut table = Table::new("replay", COLUMNS);
    table.row("before", figures(&base, None));
    table.row("replay", figures(&phase, Some((jobs, jobs / took))));
    Ok(Findings {
        tables: vec![table],
        lines: vec![
            Line::at_most(
                "healthy p99 during the replay ÷ before",
                phase.healthy.all.p99 / base.healthy.all.p99,
                P99_RATIO_MAX,
            ),
            Line::at_most("replayed jobs that arrived ÷ jobs", arrived / jobs, 1.0),
        ],
    })
}

/// Asks for the replay, and returns where it can be looked at.
async fn start(api: SocketAddr, args: &ReplayArgs) -> anyhow::Result<String> {
    let wanted = json!({
        "status": "failed",
        "limit": args.jobs,
        "rate_per_second": args.replay_rate,
    });
    let body = serde_json::to_vec(&wanted).context("writing a request")?;
    let mut control = Connection::open(api).await?;
    let answer = control.post(&uri("/v1/jobs/replay")?, body.into()).await?;
    let answer: Value = serde_json::from_slice(&answer.body).context("reading an answer")?;
    let id = answer["id"].as_str();
    let id = id.with_context(|| format!("the replay was refused: {answer}"))?;
    Ok(format!("/v1/replays/{id}"))
}

async fn ask(api: SocketAddr, path: &str) -> anyhow::Result<Value> {
    // A connection of its own: the API closes one that was idle for the length of a replay.
    let answer = Connection::open(api).await?.get(path).await?;
    serde_json::from_slice(&answer.body).context("reading a replay")
}

/// Waits until as many replayed jobs have arrived, and returns the seconds since `begun`. The
/// receiver counts them as strangers: their numbers are those of no load.
async fn delivered(scene: &mut Scene, args: &ReplayArgs, begun: u64) -> anyhow::Result<f64> {
    let ended = clock::now();
    loop {
        let arrived = scene.receiver.counts().await?.strangers;
        if arrived >= u64::from(args.jobs) {
            return Ok(clock::seconds_between(begun, clock::now()));
        }
        let waited = clock::seconds_between(ended, clock::now());
        ensure!(waited < LATE_MAX, "of the replay only {arrived} arrived");
        clock::pause(Duration::from_millis(100)).await;
    }
}

fn figures(phase: &Phase, replayed: Option<(f64, f64)>) -> Vec<Figure> {
    let healthy = &phase.healthy;
    vec![
        Some(healthy.per_second),
        replayed.map(|(jobs, _)| jobs),
        replayed.map(|(_, per_second)| per_second),
        Some(healthy.all.p50),
        Some(healthy.all.p99),
        healthy.worst_second(),
    ]
}
