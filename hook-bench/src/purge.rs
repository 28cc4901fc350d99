//! `hook bench purge`: what it takes to remove finished jobs.
//!
//! Jobs that were delivered two hours ago, with a retention of one hour: once in a bucket of the
//! ring, which the janitor empties at one stroke, and once in the kept bucket, which it empties row
//! by row.

use std::time::Duration;

use anyhow::ensure;
use clap::Args;

use crate::{
    clock,
    command::Common,
    measure::{Cost, Meter, Watched},
    progress::say,
    report::{Column, Figure, Findings, Line, Table, column},
    rig::Rig,
    sql::{
        backlog,
        fill::{self, Backlog, Ended, How},
    },
};

mod beside;

/// The first bucket of the ring, and the kept one.
const RING: i16 = 0;
const KEPT: i16 = -1;

/// When the jobs were delivered, and settings of the janitor by which they are to go.
const DELIVERED_SECONDS_AGO: i32 = 7200;
const JANITOR: [(&str, &str); 2] = [
    ("HOOK_RETENTION_COMPLETED", "1h"),
    ("HOOK_JANITOR_INTERVAL", "500ms"),
];

/// Longest time for all of it.
const LIMIT: f64 = 600.0;

#[derive(Args, Clone, Debug)]
pub(crate) struct PurgeArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Jobs in the bucket that goes at one stroke.
    #[arg(long, default_value_t = 500_000, value_name = "N")]
    jobs: u32,
    /// Jobs in the kept bucket.
    #[arg(long, default_value_t = 50_000, value_name = "N")]
    kept: u32,
    /// Bytes of a job's body.
    #[arg(long, default_value_t = 1024, value_name = "BYTES")]
    body_bytes: usize,
    /// Jobs a second beside the purge; by default half of what the machine delivers.
    #[arg(long, value_name = "JOBS")]
    rate: Option<f64>,
    /// Seconds of the load before the purge begins, and of each look during it.
    #[arg(long, default_value_t = 20.0, value_name = "SECONDS")]
    seconds: f64,
}

const COLUMNS: &[Column] = &[
    column("jobs", "jobs", 0),
    column("seconds", "seconds", 2),
    column("jobs_per_second", "jobs/s", 0),
    column("janitor_cpu_us_per_job", "janitor CPU µs/job", 2),
    column("postgres_cpu_us_per_job", "postgres", 2),
    column("wal_bytes_per_job", "WAL B/job", 1),
];

pub(crate) async fn run(args: &PurgeArgs) -> anyhow::Result<Findings> {
    let ring = bucket(args, RING, args.jobs).await?;
    let kept = bucket(args, KEPT, args.kept).await?;
    let mut table = Table::new("purge", COLUMNS);
    table.row("a bucket of the ring", figures(&ring, args.jobs));
    table.row("the kept bucket", figures(&kept, args.kept));
    let wal = ring.wal_bytes / f64::from(args.jobs);
    let mut lines = vec![Line::at_most("WAL bytes per job of the ring", wal, 20.0)];
    let (beside, more) = beside::run(args).await?;
    lines.extend(more);
    Ok(Findings {
        tables: vec![table, beside],
        lines,
    })
}

fn delivered_in(bucket: i16) -> Ended {
    Ended {
        bucket: Some(bucket),
        how: How::Delivered,
        seconds_ago: DELIVERED_SECONDS_AGO,
    }
}

async fn bucket(args: &PurgeArgs, bucket: i16, jobs: u32) -> anyhow::Result<Cost> {
    say(format_args!("bucket {bucket}: filling in {jobs} jobs"));
    let rig = Rig::start(&args.common).await?;
    let targets: Vec<String> = (0..100).map(|n| format!("target-{n}.example")).collect();
    let backlog = Backlog {
        first: 0,
        jobs: jobs.into(),
        urls: targets
            .iter()
            .map(|name| format!("http://{name}/"))
            .collect(),
        targets,
        body_bytes: args.body_bytes,
        due_in: 0.0,
    };
    fill::fill_ended(&rig.admin, &backlog, delivered_in(bucket)).await?;
    if bucket == RING {
        backlog::close_first_bucket(&rig.admin).await?;
    }
    say(format_args!("bucket {bucket}: purging"));
    let meter = Meter::start(rig.admin.clone(), vec![rig.postgres()?]).await?;
    let janitor = rig.janitor(&JANITOR).await?;
    // Its start is part of the price here.
    let meter = meter.and_new(Watched::child(&janitor.child));
    let begun = clock::now();
    while !backlog::is_empty(&rig.admin).await? {
        let waited = clock::seconds_between(begun, clock::now());
        ensure!(waited < LIMIT, "bucket {bucket} is not empty yet");
        clock::pause(Duration::from_millis(20)).await;
    }
    let cost = meter.end().await?;
    janitor.child.stop().await?;
    rig.stop().await?;
    Ok(cost)
}

fn figures(cost: &Cost, jobs: u32) -> Vec<Figure> {
    let jobs = f64::from(jobs);
    vec![
        Some(jobs),
        Some(cost.seconds),
        Some(jobs / cost.seconds),
        Some(cost.cpu_of("janitor") / jobs * 1e6),
        Some(cost.cpu_of("postgres") / jobs * 1e6),
        Some(cost.wal_bytes / jobs),
    ]
}
