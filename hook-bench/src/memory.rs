//! `hook bench memory`: what many slow deliveries in flight cost the worker.
//!
//! Receivers answer after ten seconds, so that every slot fills up; then memory and connections to
//! Postgres are counted. The same receivers have answered at once before: targets that nobody
//! knows yet do not get all slots.

use std::time::Duration;

use anyhow::ensure;
use clap::Args;

use crate::{
    clock,
    command::Common,
    proc,
    progress::say,
    receiver::{Behaviour, Receiver},
    report::{Column, Figure, Findings, Line, Table, column},
    rig::{Rig, Service},
    sql::{self, fill::Backlog},
};

/// How `/live/slow` answers while slots fill up.
const SLOW: Behaviour = Behaviour::Delay(10_000);

/// Longest time for the slots to fill up, and for everything to be delivered.
const FILL_LIMIT: f64 = 8.0;
const DRAIN_LIMIT: Duration = Duration::from_secs(120);

/// Jobs of each target before it turns slow.
const WARM_UP: i64 = 40;

#[derive(Args, Clone, Debug)]
pub(crate) struct MemoryArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Slots of the worker.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "512,1000,5000",
        value_name = "LIST"
    )]
    slots: Vec<u32>,
    /// Connections of the worker to Postgres.
    #[arg(long, default_value_t = 10, value_name = "N")]
    pool: u32,
    /// Destinations, each an address of its own.
    #[arg(long, default_value_t = 50, value_name = "N")]
    targets: u16,
    /// Bytes of a job's body.
    #[arg(long, default_value_t = 1024, value_name = "BYTES")]
    body_bytes: usize,
}

const COLUMNS: &[Column] = &[
    column("in_flight", "in flight", 0),
    column("idle_mb", "worker idle MB", 1),
    column("full_mb", "full MB", 1),
    column("mb_per_1000", "MB per 1,000 more", 1),
    column("connections", "Postgres connections", 0),
];

/// What one number of slots came to.
struct Measured {
    in_flight: f64,
    idle_mb: f64,
    full_mb: f64,
    connections: f64,
}

pub(crate) async fn run(args: &MemoryArgs) -> anyhow::Result<Findings> {
    let mut table = Table::new("memory", COLUMNS);
    let mut lines = Vec::new();
    for slots in &args.slots {
        say(format_args!("{slots} slots"));
        let measured = with_slots(args, *slots).await?;
        let share = measured.in_flight / f64::from(*slots);
        lines.push(Line::at_least(
            format!("in flight ÷ {slots} slots"),
            share,
            0.95,
        ));
        let most = measured.connections;
        lines.push(Line::at_most(
            format!("connections with {slots} slots"),
            most,
            16.0,
        ));
        table.row(format!("{slots} slots"), measured.figures());
    }
    Ok(Findings {
        tables: vec![table],
        lines,
    })
}

async fn with_slots(args: &MemoryArgs, slots: u32) -> anyhow::Result<Measured> {
    let rig = Rig::start(&args.common).await?;
    let mut receiver = rig.receiver(args.targets).await?;
    let worker = rig
        .worker(
            "worker",
            &[
                ("HOOK_WORKER_SLOTS", &slots.to_string()),
                ("HOOK_TARGET_IN_FLIGHT_MAX", &slots.to_string()),
                ("HOOK_DB_POOL_MAX", &args.pool.to_string()),
            ],
        )
        .await?;
    let idle_mb = resident_mb(&worker)?;
    let warm_up = WARM_UP * i64::from(args.targets);
    let jobs = i64::from(slots) * 3 / 2;
    receiver.reset(count(warm_up + jobs)).await?;
    fill(args, &rig, &receiver, (0, warm_up)).await?;
    receiver.wait_for(count(warm_up), DRAIN_LIMIT).await?;

    receiver.switch("slow", SLOW).await?;
    fill(args, &rig, &receiver, (warm_up, jobs)).await?;
    let begun = clock::now();
    let mut counts = receiver.counts().await?;
    while counts.open < u64::from(slots) && clock::seconds_between(begun, clock::now()) < FILL_LIMIT
    {
        clock::pause(Duration::from_millis(50)).await;
        counts = receiver.counts().await?;
    }
    let full_mb = resident_mb(&worker)?;
    let connections = sql::connections(&rig.admin, "hook-worker").await?;

    receiver.switch("slow", Behaviour::Ok).await?;
    receiver
        .wait_for(count(warm_up + jobs), DRAIN_LIMIT)
        .await?;
    worker.child.stop().await?;
    let completed = sql::completed(&rig.admin).await?;
    ensure!(
        completed == warm_up + jobs,
        "only {completed} jobs are completed"
    );
    receiver.stop().await?;
    rig.stop().await?;
    #[expect(clippy::cast_precision_loss, reason = "small counts")]
    Ok(Measured {
        in_flight: counts.open_max as f64,
        idle_mb,
        full_mb,
        connections: connections as f64,
    })
}

async fn fill(
    args: &MemoryArgs,
    rig: &Rig,
    receiver: &Receiver,
    (first, jobs): (i64, i64),
) -> anyhow::Result<()> {
    let urls: Vec<String> = (0..args.targets)
        .map(|index| receiver.live_url(index, "slow"))
        .collect();
    let backlog = Backlog {
        first,
        jobs,
        targets: urls.clone(),
        urls,
        body_bytes: args.body_bytes,
        due_in: 0.0,
    };
    Ok(sql::fill::fill(&rig.admin, &backlog).await?)
}

fn count(jobs: i64) -> u64 {
    jobs.unsigned_abs()
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
fn resident_mb(worker: &Service) -> anyhow::Result<f64> {
    Ok(proc::resident_memory(worker.child.pid())? as f64 / 1e6)
}

impl Measured {
    fn figures(&self) -> Vec<Figure> {
        let grown = self.full_mb - self.idle_mb;
        vec![
            Some(self.in_flight),
            Some(self.idle_mb),
            Some(self.full_mb),
            Some(grown / self.in_flight * 1000.0),
            Some(self.connections),
        ]
    }
}
