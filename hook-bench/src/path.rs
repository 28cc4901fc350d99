//! `hook bench path`: jobs enqueued one by one over HTTP and delivered at the same time.
//!
//! First as fast as it goes, with a bound on the jobs under way, so that the figure is what is
//! sustained; then at a share of that, and at fixed rates; then the floor, on a server of its own,
//! with the same load, the same receiver and the same bound.

use std::{net::SocketAddr, str::FromStr, time::Duration};

use anyhow::ensure;
use clap::Args;

use crate::{
    clock,
    command::Common,
    floor::Floor,
    load::{self, Load, LoadArgs, RATE_MAX, Sent, Until},
    measure::{Meter, Watched},
    progress::say,
    receiver::Receiver,
    report::{Column, Findings, Line, Table, column},
    rig::Rig,
    sql,
};

mod level;

use level::{COSTS, Level, TIMES};

/// Longest time from the last enqueue until everything is delivered.
const DRAIN_LIMIT: Duration = Duration::from_secs(120);

/// Name of the full load beside an open transaction.
const PINNED: &str = "full, pinned";

/// Jobs before the first measurement: connections, plans and caches.
const WARM_UP: u64 = 3000;

#[derive(Args, Clone, Debug)]
pub(crate) struct PathArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// How long each load lasts.
    #[arg(long, default_value_t = 20.0, value_name = "SECONDS")]
    seconds: f64,
    /// Loads besides the full one: jobs a second, or a share of the full one.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "20%,400",
        value_name = "LIST"
    )]
    rates: Vec<Rate>,
    #[command(flatten)]
    load: LoadArgs,
    /// Repeat the full load while a transaction stays open elsewhere, for so many seconds.
    #[arg(long, value_name = "SECONDS")]
    pinned: Option<f64>,
    /// Worker processes.
    #[arg(long, default_value_t = 1, value_name = "N")]
    workers: u16,
}

/// A load below the full one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rate {
    PerSecond(f64),
    Percent(f64),
}

impl FromStr for Rate {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, of) = match text.strip_suffix('%') {
            Some(number) => (number, Self::Percent as fn(f64) -> Self),
            None => (text, Self::PerSecond as fn(f64) -> Self),
        };
        let number: f64 = number.parse().map_err(|_| "must be jobs a second or N%")?;
        if number > 0.0 && number <= RATE_MAX {
            Ok(of(number))
        } else {
            Err("must be above 0 and below 60000")
        }
    }
}

const IDLE_COLUMNS: &[Column] = &[column("cpu_percent", "% of a core", 2)];

pub(crate) async fn run(args: &PathArgs) -> anyhow::Result<Findings> {
    let ours = product(args).await?;
    let floor = floor(args).await?;
    let mut times = Table::new("load", TIMES);
    let mut costs = Table::new("per job", COSTS);
    let full = [("full".to_owned(), &ours.full)];
    let others = ours
        .others
        .iter()
        .map(|(name, level)| (name.clone(), level));
    for (name, level) in full.into_iter().chain(others) {
        times.row(name.clone(), level.times());
        costs.row(name, level.costs(&PRODUCT));
    }
    times.row("floor, full", floor.times());
    costs.row("floor, full", floor.costs(&FLOOR));
    let mut idle = Table::new("idle", IDLE_COLUMNS);
    for (name, percent) in &ours.idle {
        idle.row(name, vec![Some(*percent)]);
    }
    Ok(Findings {
        lines: lines(&ours, &floor, args),
        tables: [times, costs, idle]
            .into_iter()
            .chain(ours.full.statements())
            .collect(),
    })
}

/// The processes whose cost counts; receiver and load are the same on both sides.
const PRODUCT: [&str; 4] = ["api", "worker", "janitor", "postgres"];
const FLOOR: [&str; 2] = ["floor", "postgres"];

struct Ours {
    full: Level,
    others: Vec<(String, Level)>,
    idle: Vec<(String, f64)>,
}

fn lines(ours: &Ours, floor: &Level, args: &PathArgs) -> Vec<Line> {
    let full = &ours.full;
    #[expect(clippy::cast_precision_loss, reason = "a body is small")]
    let wal_limit = args.load.body_bytes as f64 + 1000.0;
    let mut lines = vec![
        Line::at_least("jobs/s ÷ floor", full.rate() / floor.rate(), 0.5),
        Line::at_most(
            "CPU per job ÷ floor",
            full.cpu_per_job(&PRODUCT) / floor.cpu_per_job(&FLOOR),
            2.0,
        ),
        Line::at_most("WAL bytes per job", full.wal_per_job(), wal_limit),
    ];
    for (name, level) in &ours.others {
        if name.as_str() == "400/s" {
            lines.push(Line::at_most("p50 ms at 400/s", level.delivery.p50, 2.0));
            lines.push(Line::at_most("p99 ms at 400/s", level.delivery.p99, 10.0));
        } else if name.as_str() == PINNED {
            lines.push(Line::at_least("pinned, end ÷ start", level.kept(), 0.75));
        } else if name.starts_with("20 %") {
            lines.push(Line::at_most("p99 ms at 20 %", level.delivery.p99, 25.0));
        }
    }
    let idle: f64 = ours.idle.iter().map(|(_, percent)| percent).sum();
    lines.push(Line::at_most("idle, % of a core", idle, 2.0));
    lines
}

/// Measures the product at every load.
async fn product(args: &PathArgs) -> anyhow::Result<Ours> {
    let rig = Rig::start(&args.common).await?;
    let mut receiver = rig.receiver(args.load.targets).await?;
    let api = rig.api(&[]).await?;
    let mut workers = Vec::new();
    for n in 1..=args.workers {
        let name = if n == 1 {
            "worker".to_owned()
        } else {
            format!("worker {n}")
        };
        workers.push(rig.worker(&name, &[]).await?);
    }
    let janitor = rig.janitor(&[]).await?;
    let mut watched = vec![rig.postgres()?, Watched::ourselves()];
    let services = workers.iter().chain([&api, &janitor]);
    watched.extend(services.map(|service| Watched::child(&service.child)));
    watched.push(Watched::child(receiver.child()));

    let measured = measure(args, &rig, &watched, &mut receiver, api.public).await?;

    api.child.stop().await?;
    for worker in workers {
        worker.child.stop().await?;
    }
    janitor.child.stop().await?;
    receiver.stop().await?;
    rig.stop().await?;
    Ok(measured)
}

async fn measure(
    args: &PathArgs,
    rig: &Rig,
    watched: &[Watched],
    receiver: &mut Receiver,
    api: SocketAddr,
) -> anyhow::Result<Ours> {
    let mut stage = Stage {
        args,
        rig,
        watched,
        receiver,
        target: api,
    };
    stage.warm_up().await?;
    let idle = stage.idle().await?;
    say("full load");
    let full = stage.level(None, args.seconds).await?;
    let mut others = Vec::new();
    for rate in &args.rates {
        let (name, rate) = match *rate {
            Rate::PerSecond(rate) => (format!("{rate}/s"), rate),
            Rate::Percent(percent) => (
                format!("{percent} % of full"),
                full.rate() * percent / 100.0,
            ),
        };
        say(format_args!("{rate:.0} jobs/s"));
        others.push((name, stage.level(Some(rate), args.seconds).await?));
    }
    if let Some(seconds) = args.pinned {
        say("full load beside an open transaction");
        let pin = sql::pin(&rig.admin).await?;
        others.push((PINNED.to_owned(), stage.level(None, seconds).await?));
        drop(pin);
    }
    Ok(Ours { full, others, idle })
}

/// Measures the floor at full load.
async fn floor(args: &PathArgs) -> anyhow::Result<Level> {
    say("the floor, full load");
    let rig = Rig::start(&args.common).await?;
    let mut receiver = rig.receiver(1).await?;
    let floor = Floor::start(&rig, receiver.address()).await?;
    let watched = [
        rig.postgres()?,
        Watched::ourselves(),
        Watched::child(&floor.child),
        Watched::child(receiver.child()),
    ];
    let mut stage = Stage {
        args,
        rig: &rig,
        watched: &watched,
        receiver: &mut receiver,
        target: floor.address,
    };
    stage.warm_up().await?;
    let level = stage.level(None, args.seconds).await?;
    floor.child.stop().await?;
    receiver.stop().await?;
    rig.stop().await?;
    Ok(level)
}

/// What a level is measured with.
struct Stage<'a> {
    args: &'a PathArgs,
    rig: &'a Rig,
    watched: &'a [Watched],
    receiver: &'a mut Receiver,
    /// Who takes the jobs.
    target: SocketAddr,
}

impl Stage<'_> {
    async fn warm_up(&mut self) -> anyhow::Result<()> {
        self.receiver.reset(WARM_UP).await?;
        let sent = self.load(None, Until::Jobs(WARM_UP)).await?;
        self.receiver
            .wait_for(sent.jobs.len() as u64, DRAIN_LIMIT)
            .await
    }

    /// Watches what everything costs while there is nothing to do.
    async fn idle(&mut self) -> anyhow::Result<Vec<(String, f64)>> {
        say("idle");
        // What the load before has left to tidy up is not idling.
        clock::pause(Duration::from_secs(2)).await;
        let meter = Meter::start(self.rig.admin.clone(), self.watched.to_vec()).await?;
        clock::pause(Duration::from_secs_f64(self.args.seconds / 2.0)).await;
        let cost = meter.end().await?;
        let processes = cost.processes.iter();
        let ours = processes.filter(|process| PRODUCT.contains(&process.name.as_str()));
        let percent = |cpu: f64| cpu / cost.seconds * 100.0;
        Ok(ours
            .map(|process| (process.name.clone(), percent(process.cpu_seconds)))
            .collect())
    }

    /// Measures one load until its last job is delivered.
    async fn level(&mut self, rate: Option<f64>, seconds: f64) -> anyhow::Result<Level> {
        self.receiver.reset(load::jobs_max(rate, seconds)).await?;
        let meter = Meter::start(self.rig.admin.clone(), self.watched.to_vec()).await?;
        let time = Duration::from_secs_f64(seconds);
        let sent = self.load(rate, Until::After(time)).await?;
        self.receiver
            .wait_for(sent.jobs.len() as u64, DRAIN_LIMIT)
            .await?;
        let cost = meter.end().await?;
        ensure!(sent.refused == 0, "{} enqueues were refused", sent.refused);
        let arrivals = self.receiver.arrivals().await?;
        Level::of(&sent, &arrivals, cost)
    }

    async fn load(&self, rate: Option<f64>, until: Until) -> anyhow::Result<Sent> {
        let args = &self.args.load;
        let load = Load {
            window: rate.is_none().then(|| args.window(self.receiver)),
            ..args.load(self.target, rate, until)
        };
        load.run(args.jobs(self.receiver)).await
    }
}
