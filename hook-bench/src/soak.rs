//! `hook bench soak`: enqueue, deliver and purge for long, and look whether anything grows.
//!
//! The load is put on in rounds of some seconds, each followed by the next as soon as its last job
//! has arrived: so the driver remembers one round and not an hour, and a job that is lost or
//! repeated is found at once. Meanwhile everything that has to stay flat is looked at several
//! times a minute. Retention is short, so that purge has as much to do as the rest.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::{
    clock,
    command::Common,
    load::{self, Load, LoadArgs, Until},
    plot::{self, BLUE, Curve, GREEN, Panel, RED, Scale, YELLOW},
    progress::say,
    receiver::Receiver,
    report::{Column, Findings, Line, Table, column},
    rig::{Rig, Service},
    scrape::Scrape,
    sql::backlog,
};

mod trend;
mod watch;

use trend::Trend;
use watch::{COLUMNS, Look, Services, Watch};

/// Seconds of one round of the load.
const ROUND: f64 = 20.0;

/// Longest time until the last job of a round is delivered.
const DRAIN_LIMIT: Duration = Duration::from_secs(120);

/// Longest time after the load, beyond the retention, until every job is purged.
const PURGE_LIMIT: f64 = 300.0;

/// Longest time from the removal of the last job until it is counted.
const COUNT_LIMIT: f64 = 10.0;

/// The part of the run that does not count: caches fill and the first jobs reach their retention.
/// Never longer than ten minutes.
const SETTLE: f64 = 1.0 / 6.0;
const SETTLE_MINUTES_MAX: f64 = 10.0;

/// What has to stay flat.
const FLAT: [&str; 9] = [
    "database_mb",
    "table_mb",
    "index_mb",
    "dead_rows",
    "claim_p99_ms",
    "api_mb",
    "worker_mb",
    "janitor_mb",
    "postgres_mb",
];

#[derive(Args, Clone, Debug)]
pub(crate) struct SoakArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// How long the load lasts.
    #[arg(long, default_value_t = 60.0, value_name = "MINUTES")]
    minutes: f64,
    /// Jobs a second; by default as many as the machine delivers.
    #[arg(long, value_name = "JOBS")]
    rate: Option<f64>,
    /// How long delivered jobs are kept.
    #[arg(long, default_value = "2m", value_name = "DURATION")]
    retention: String,
    /// Seconds between two looks.
    #[arg(long, default_value_t = 20.0, value_name = "SECONDS")]
    every: f64,
    #[command(flatten)]
    load: LoadArgs,
    /// Where to draw sizes, times and memory over time, as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// What the load came to.
#[derive(Clone, Copy, Debug, Default)]
struct Loaded {
    jobs: u64,
    repeats: u64,
}

const TRENDS: &[Column] = &[
    column("mean", "mean", 2),
    column("least", "least", 2),
    column("most", "most", 2),
    column("rise", "rise", 2),
    column("scatter", "scatter", 2),
];

const TOTALS: &[Column] = &[
    column("jobs", "jobs", 0),
    column("delivered", "delivered", 0),
    column("repeats", "repeats", 0),
    column("purged", "purged", 0),
];

pub(crate) async fn run(args: &SoakArgs) -> anyhow::Result<Findings> {
    ensure!(args.every > 0.0, "--every must be above 0");
    let rig = Rig::start(&args.common).await?;
    let mut receiver = rig.receiver(args.load.targets).await?;
    let api = rig.api(&[]).await?;
    let worker = rig.worker("worker", &[]).await?;
    let janitor = rig
        .janitor(&[("HOOK_RETENTION_COMPLETED", &args.retention)])
        .await?;
    let services = Services {
        api: &api,
        worker: &worker,
        janitor: &janitor,
    };
    let mut watch = Watch::begin(&rig, services).await?;
    let (loaded, looks) =
        tokio::try_join!(put_on(args, &api, &mut receiver), look_on(args, &mut watch))?;
    say("waiting until everything is purged");
    let mut totals = Table::new("totals", TOTALS);
    let purged = all_purged(&rig, &janitor, loaded.jobs).await?;
    let delivered = watch::delivered(&Scrape::of(worker.ops).await?);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 jobs")]
    let (jobs, repeats) = (loaded.jobs as f64, loaded.repeats as f64);
    totals.row(
        "jobs",
        [jobs, delivered, repeats, purged].map(Some).to_vec(),
    );

    let mut lines = vec![
        Line::at_most("repeats", repeats, 0.0),
        Line::at_least("jobs delivered ÷ jobs sent", delivered / jobs, 1.0),
        Line::at_least("jobs purged ÷ jobs sent", purged / jobs, 1.0),
    ];
    let (trends, flat) = trends(&looks, settled_from(args));
    lines.extend(flat);
    if let Some(path) = &args.plot {
        plot::write(path, &panels(&looks)).context("drawing the plot")?;
    }
    for service in [api, worker, janitor] {
        service.child.stop().await?;
    }
    receiver.stop().await?;
    rig.stop().await?;
    Ok(Findings {
        tables: vec![over_time(&looks), trends, totals],
        lines,
    })
}

/// Puts the load on, round after round.
async fn put_on(args: &SoakArgs, api: &Service, receiver: &mut Receiver) -> anyhow::Result<Loaded> {
    let begun = clock::now();
    let mut loaded = Loaded::default();
    loop {
        let left = args.minutes * 60.0 - clock::seconds_between(begun, clock::now());
        if left <= 0.0 {
            return Ok(loaded);
        }
        let seconds = left.min(ROUND);
        receiver.reset(load::jobs_max(args.rate, seconds)).await?;
        let until = Until::After(Duration::from_secs_f64(seconds));
        let load = Load {
            window: Some(args.load.window(receiver)),
            ..args.load.load(api.public, args.rate, until)
        };
        let sent = load.run(args.load.jobs(receiver)).await?;
        ensure!(sent.refused == 0, "{} enqueues were refused", sent.refused);
        let sent = sent.jobs.len() as u64;
        receiver.wait_for(sent, DRAIN_LIMIT).await?;
        loaded.jobs += sent;
        loaded.repeats += receiver.counts().await?.repeats;
    }
}

/// Looks at everything as long as the load lasts.
async fn look_on(args: &SoakArgs, watch: &mut Watch<'_>) -> anyhow::Result<Vec<Look>> {
    let mut looks = Vec::new();
    while watch.minutes() < args.minutes {
        clock::pause(Duration::from_secs_f64(args.every)).await;
        let look = watch.look().await?;
        let shown = |key: &str| look.figure(key).unwrap_or(0.0);
        say(format_args!(
            "minute {:.1}: {:.0} jobs/s, {:.0} purged/s, claim p99 {:.1} ms, {:.0} MB, {} {:.0} MB",
            look.minute,
            shown("jobs_per_second"),
            shown("purged_per_second"),
            shown("claim_p99_ms"),
            shown("database_mb"),
            look.table,
            shown("table_mb"),
        ));
        looks.push(look);
    }
    Ok(looks)
}

/// Waits until no job is stored any more, and returns how many were purged. The janitor counts them
/// after the statement that removes them, so the last ones are waited for a little longer.
async fn all_purged(rig: &Rig, janitor: &Service, jobs: u64) -> anyhow::Result<f64> {
    let begun = clock::now();
    let mut emptied = None;
    loop {
        let waited = clock::seconds_between(begun, clock::now());
        ensure!(waited < PURGE_LIMIT, "not everything is purged");
        if emptied.is_none() && backlog::is_empty(&rig.admin).await? {
            emptied = Some(waited);
        }
        if let Some(emptied) = emptied {
            let purged = watch::purged(janitor).await?;
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52 jobs")]
            if purged >= jobs as f64 || waited - emptied > COUNT_LIMIT {
                return Ok(purged);
            }
        }
        clock::pause(Duration::from_millis(100)).await;
    }
}

/// The minute from which on looks count.
fn settled_from(args: &SoakArgs) -> f64 {
    (args.minutes * SETTLE).min(SETTLE_MINUTES_MAX)
}

fn over_time(looks: &[Look]) -> Table {
    let mut table = Table::new("minute", COLUMNS);
    for look in looks {
        table.row(format!("{:.1}", look.minute), look.figures.clone());
    }
    table
}

/// What each series did once things had settled, and the lines to pass.
fn trends(looks: &[Look], from: f64) -> (Table, Vec<Line>) {
    let settled = || looks.iter().filter(|look| look.minute >= from);
    let mean = |key: &str| {
        let values: Vec<f64> = settled().filter_map(|look| look.figure(key)).collect();
        #[expect(clippy::cast_precision_loss, reason = "a few hundred looks")]
        let count = values.len() as f64;
        values.iter().sum::<f64>() / count
    };
    let mut table = Table::new(format!("from minute {from:.1} on"), TRENDS);
    let mut lines = Vec::new();
    for column in COLUMNS {
        let points = settled().filter_map(|look| Some((look.minute, look.figure(column.key)?)));
        let Some(trend) = Trend::of(&points.collect::<Vec<_>>()) else {
            continue;
        };
        let Trend {
            mean,
            least,
            most,
            rise,
            scatter,
        } = trend;
        table.row(
            column.key,
            [mean, least, most, rise, scatter].map(Some).to_vec(),
        );
        if FLAT.contains(&column.key) {
            let what = format!("{}: rise ÷ mean", column.key);
            lines.push(Line::at_most(what, trend.relative_rise(), trend.noise()));
        }
    }
    let janitor = mean("janitor_cpu_percent") + mean("janitor_sessions_cpu_percent");
    let others = [
        "api_cpu_percent",
        "worker_cpu_percent",
        "postgres_cpu_percent",
    ]
    .map(mean);
    let all = others.iter().sum::<f64>() + mean("janitor_cpu_percent");
    lines.push(Line::at_least(
        "purged ÷ delivered",
        mean("purged_per_second") / mean("jobs_per_second"),
        0.9,
    ));
    lines.push(Line::at_most(
        "CPU of the janitor and its sessions ÷ all",
        janitor / all,
        0.1,
    ));
    (table, lines)
}

/// What the plot shows: the keys of the columns, with their names there.
const PANELS: [(&str, &[(&str, &str)]); 5] = [
    (
        "a second:",
        &[
            ("jobs_per_second", "delivered"),
            ("purged_per_second", "purged"),
        ],
    ),
    (
        "MB:",
        &[
            ("database_mb", "database"),
            ("table_mb", "largest table"),
            ("index_mb", "largest index"),
        ],
    ),
    ("rows:", &[("dead_rows", "dead"), ("waiting", "waiting")]),
    ("claim, ms:", &[("claim_p99_ms", "p99")]),
    (
        "resident MB:",
        &[
            ("api_mb", "api"),
            ("worker_mb", "worker"),
            ("janitor_mb", "janitor"),
            ("postgres_mb", "postgres"),
        ],
    ),
];

fn panels(looks: &[Look]) -> Vec<Panel> {
    let curve = |((key, name), colour): (&(&str, &'static str), &'static str)| Curve {
        name,
        colour,
        points: looks
            .iter()
            .filter_map(|look| Some((look.minute, look.figure(key)?)))
            .collect(),
    };
    let colours = [BLUE, RED, GREEN, YELLOW];
    let panel = |(title, curves): (&str, &'static [(&str, &'static str)])| Panel {
        title: title.to_owned(),
        scale: Scale::Linear,
        unit: "min",
        curves: curves.iter().zip(colours).map(curve).collect(),
    };
    PANELS.map(panel).to_vec()
}
