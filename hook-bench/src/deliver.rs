//! `hook bench deliver`: a backlog is delivered while nothing is enqueued.
//!
//! The backlog is there before the worker starts. Beside it, in the same call: the same number of
//! bare posts to the same receiver, from one client with 64 connections.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::{
    clock,
    command::Common,
    load::{Form, Jobs, Load, Until},
    measure::{Cost, Meter, Watched},
    progress::say,
    receiver::{Behaviour, Receiver},
    report::{Column, Figure, Findings, Line, Table, column},
    rig::Rig,
    sql::{self, fill::Backlog},
};

/// Longest time for the whole backlog.
const LIMIT: Duration = Duration::from_secs(600);

#[derive(Args, Clone, Debug)]
pub(crate) struct DeliverArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Jobs of the backlog.
    #[arg(long, default_value_t = 200_000, value_name = "N")]
    jobs: u32,
    /// Destinations, each an address of its own.
    #[arg(long, default_value_t = 50, value_name = "N")]
    targets: u16,
    /// Bytes of a job's body.
    #[arg(long, default_value_t = 1024, value_name = "BYTES")]
    body_bytes: usize,
    /// Worker processes.
    #[arg(long, default_value_t = 1, value_name = "N")]
    workers: u16,
}

const COLUMNS: &[Column] = &[
    column("jobs_per_second", "jobs/s", 0),
    column("worker_cpu_us_per_job", "worker CPU µs/job", 0),
    column("postgres_cpu_us_per_job", "postgres", 0),
    column("receiver_cpu_us_per_job", "(receiver)", 0),
    column("load_cpu_us_per_job", "(load)", 0),
    column("wal_bytes_per_job", "WAL B/job", 0),
    column("worker_peak_mb", "worker MB", 0),
    column("repeats", "repeats", 0),
];

pub(crate) async fn run(args: &DeliverArgs) -> anyhow::Result<Findings> {
    let rig = Rig::start(&args.common).await?;
    let mut receiver = rig.receiver(args.targets).await?;
    let bare = bare_posts(args, &rig, &mut receiver).await?;

    say(format_args!("filling in {} jobs", args.jobs));
    let indexes = 0..args.targets;
    let urls: Vec<String> = indexes
        .map(|index| receiver.url(index, Behaviour::Ok))
        .collect();
    let backlog = Backlog {
        first: 0,
        jobs: args.jobs.into(),
        targets: urls.clone(),
        urls,
        body_bytes: args.body_bytes,
        due_in: 0.0,
    };
    sql::fill::fill(&rig.admin, &backlog).await?;
    receiver.reset(args.jobs.into()).await?;

    say("delivering");
    let mut workers = Vec::new();
    for n in 1..=args.workers {
        workers.push(rig.worker(&format!("worker {n}"), &[]).await?);
    }
    let mut watched = vec![rig.postgres()?, Watched::child(receiver.child())];
    watched.extend(workers.iter().map(|worker| Watched::child(&worker.child)));
    let before = receiver.counts().await?.jobs;
    let meter = Meter::start(rig.admin.clone(), watched).await?;
    receiver.wait_for(args.jobs.into(), LIMIT).await?;
    let cost = meter.end().await?;
    let repeats = receiver.counts().await?.repeats;
    let arrivals = receiver.arrivals().await?;
    let first = arrivals.iter().flatten().min().context("no arrival")?;
    let last = arrivals.iter().flatten().max().context("no arrival")?;
    let rate = f64::from(args.jobs) / clock::seconds_between(*first, *last);
    for worker in workers {
        worker.child.stop().await?;
    }
    let completed = sql::completed(&rig.admin).await?;
    ensure!(
        completed == i64::from(args.jobs),
        "of {} delivered jobs {completed} are completed",
        args.jobs
    );
    receiver.stop().await?;
    rig.stop().await?;

    let measured = f64::from(args.jobs) - f64::from(u32::try_from(before).context("a count")?);
    let mut table = Table::new("deliver", COLUMNS);
    table.row("bare posts", bare.figures(None));
    let repeats = f64::from(u32::try_from(repeats).context("a count")?);
    let backlog = Measured {
        rate,
        jobs: measured,
        cost,
    };
    table.row("from a backlog", backlog.figures(Some(repeats)));
    let statements = backlog.cost.statements(measured);
    Ok(Findings {
        tables: [table].into_iter().chain(statements).collect(),
        lines: vec![Line::at_most("repeats", repeats, 0.0)],
    })
}

struct Measured {
    rate: f64,
    jobs: f64,
    cost: Cost,
}

impl Measured {
    fn figures(&self, repeats: Figure) -> Vec<Figure> {
        let cpu = |kind: &str| {
            let watched = self.cost.peak_mb(kind).is_some();
            watched.then(|| self.cost.cpu_of(kind) / self.jobs * 1e6)
        };
        vec![
            Some(self.rate),
            cpu("worker"),
            cpu("postgres"),
            cpu("receiver"),
            cpu("load"),
            Some(self.cost.wal_bytes / self.jobs),
            self.cost.peak_mb("worker"),
            repeats,
        ]
    }
}

async fn bare_posts(
    args: &DeliverArgs,
    rig: &Rig,
    receiver: &mut Receiver,
) -> anyhow::Result<Measured> {
    say("bare posts");
    receiver.reset(args.jobs.into()).await?;
    let watched = vec![Watched::ourselves(), Watched::child(receiver.child())];
    let meter = Meter::start(rig.admin.clone(), watched).await?;
    let load = Load {
        address: receiver.address(),
        path: "/ok",
        form: Form::Single,
        connections: 64,
        rate: None,
        window: None,
        until: Until::Jobs(args.jobs.into()),
    };
    let jobs = Jobs::round_robin(vec!["http://nobody/".to_owned()], args.body_bytes);
    let sent = load.run(jobs).await?;
    Ok(Measured {
        rate: f64::from(args.jobs) / sent.seconds(),
        jobs: f64::from(args.jobs),
        cost: meter.end().await?,
    })
}
