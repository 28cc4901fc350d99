//! `hook bench dequeue`: what a claim of 50 jobs takes, whatever waits.
//!
//! The product's own statements (`hook_common::queue`) against backlogs made in bulk, each on a
//! server of its own. Heads are given as a worker gives them: healthy targets first, one job each,
//! penalised ones last, each from the low-water mark that was remembered for it. Every claim is
//! finished before the next. The naive query stands beside it: all waiting jobs in one order, with
//! those of known bad targets last.

use anyhow::Context as _;
use clap::Args;

use crate::{
    command::Common,
    progress::say,
    report::{Column, Figure, Findings, Line, Table, column},
    rig::Rig,
    sql::{
        backlog::{self, Statistics},
        fill::{self, Backlog},
    },
};

mod claims;

use claims::{Claimer, Claims};

/// Targets of a backlog, unless it is about having more.
const TARGETS: usize = 1000;

/// Of these, so many are bad where there are bad ones, and their share of the backlog.
const BAD_TARGETS: usize = 5;
const BAD_PERCENT: i64 = 95;

/// Targets of the backlog that has many, if it has as many jobs.
const MANY_TARGETS: usize = 100_000;

#[derive(Args, Clone, Debug)]
pub(crate) struct DequeueArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Sizes of the healthy backlogs; the others have the largest.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "100000,1000000",
        value_name = "LIST"
    )]
    jobs: Vec<i64>,
    /// Claims that are timed.
    #[arg(long, default_value_t = 400, value_name = "N")]
    claims: usize,
    /// Bytes of a job's body.
    #[arg(long, default_value_t = 128, value_name = "BYTES")]
    body_bytes: usize,
}

/// What waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Shape {
    /// Evenly spread over 1,000 targets.
    Healthy,
    /// The first 95 % are of five bad targets.
    BadHead,
    /// Evenly spread over 100,000 targets.
    ManyTargets,
    /// Healthy, and as many jobs of the same targets that are due tomorrow.
    DueLater,
    /// Healthy, and Postgres has never looked at the table.
    NeverAnalysed,
}

const COLUMNS: &[Column] = &[
    column("jobs", "jobs waiting", 0),
    column("p50_ms", "p50 ms", 2),
    column("p90_ms", "p90", 2),
    column("p99_ms", "p99", 2),
    column("max_ms", "max", 1),
    column("jobs_per_second", "claimed/s", 0),
    column("buffers_per_job", "buffers/job", 1),
    column("probe_buffers_per_job", "of the probe", 1),
    column("table_scans", "table scans", 0),
    column("naive_p50_ms", "naive p50 ms", 0),
];

pub(crate) async fn run(args: &DequeueArgs) -> anyhow::Result<Findings> {
    let mut sizes = args.jobs.clone();
    sizes.sort_unstable();
    let (smallest, largest) = (sizes.first().copied(), sizes.last().copied());
    let smallest = smallest.context("--jobs is empty")?;
    let largest = largest.context("--jobs is empty")?;
    let mut rows = Vec::new();
    for jobs in sizes {
        rows.push(case(args, Shape::Healthy, jobs).await?);
    }
    for shape in [
        Shape::BadHead,
        Shape::ManyTargets,
        Shape::DueLater,
        Shape::NeverAnalysed,
    ] {
        rows.push(case(args, shape, largest).await?);
    }
    let mut table = Table::new("dequeue", COLUMNS);
    for row in &rows {
        table.row(row.shape.name(), row.figures());
    }
    Ok(Findings {
        lines: lines(&rows, smallest),
        tables: vec![table],
    })
}

/// One backlog, measured.
struct Row {
    shape: Shape,
    jobs: i64,
    claims: Claims,
    /// Milliseconds.
    naive: f64,
}

fn lines(rows: &[Row], smallest: i64) -> Vec<Line> {
    let base = |row: &&Row| row.shape == Shape::Healthy && row.jobs == smallest;
    let Some(base) = rows.iter().find(base) else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    for row in rows {
        let what = format!("{}, {} waiting", row.shape.name(), row.jobs);
        if row.jobs != smallest || row.shape != Shape::Healthy {
            let (p50, p99) = match row.shape {
                Shape::Healthy | Shape::BadHead => (1.5, 2.0),
                Shape::ManyTargets | Shape::DueLater | Shape::NeverAnalysed => (2.0, 2.0),
            };
            let (ours, theirs) = (row.claims.latency, base.claims.latency);
            lines.push(Line::at_most(
                format!("{what}: p50 ÷ base"),
                ours.p50 / theirs.p50,
                p50,
            ));
            lines.push(Line::at_most(
                format!("{what}: p99 ÷ base"),
                ours.p99 / theirs.p99,
                p99,
            ));
        }
        let buffers = row.claims.probe_buffers_per_job;
        lines.push(Line::at_most(
            format!("{what}: buffers of the probe per job"),
            buffers,
            10.0,
        ));
        if row.shape == Shape::BadHead {
            let ratio = row.naive / row.claims.latency.p50;
            lines.push(Line::at_least(
                format!("{what}: naive query ÷ ours"),
                ratio,
                200.0,
            ));
        }
    }
    lines
}

async fn case(args: &DequeueArgs, shape: Shape, jobs: i64) -> anyhow::Result<Row> {
    say(format_args!("{}: filling in {jobs} jobs", shape.name()));
    let rig = Rig::start(&args.common).await?;
    if shape == Shape::NeverAnalysed {
        backlog::set_statistics(&rig.admin, Statistics::None).await?;
    }
    for backlog in shape.backlogs(jobs, args.body_bytes) {
        fill::fill(&rig.admin, &backlog).await?;
    }
    if shape != Shape::NeverAnalysed {
        backlog::set_statistics(&rig.admin, Statistics::Fresh).await?;
    }
    say(format_args!("{}: claiming", shape.name()));
    let bad = shape.bad();
    let mut claimer = Claimer::new(&rig, shape.healthy(jobs), bad.clone());
    let claims = claimer.run(args.claims).await?;
    let naive = claims::naive(&rig, &bad).await?;
    claimer.close().await;
    rig.stop().await?;
    Ok(Row {
        shape,
        jobs,
        claims,
        naive,
    })
}

impl Shape {
    const fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::BadHead => "95 % bad head",
            Self::ManyTargets => "many targets",
            Self::DueLater => "as many due later",
            Self::NeverAnalysed => "never analysed",
        }
    }

    /// What to fill in, for so many jobs that are due.
    fn backlogs(self, jobs: i64, body_bytes: usize) -> Vec<Backlog> {
        let backlog = |first: i64, jobs: i64, targets: Vec<String>, due_in: f64| Backlog {
            first,
            jobs,
            urls: targets
                .iter()
                .map(|name| format!("http://{name}/"))
                .collect(),
            targets,
            body_bytes,
            due_in,
        };
        let healthy = names(TARGETS, "target");
        match self {
            Self::Healthy | Self::NeverAnalysed => vec![backlog(0, jobs, healthy, 0.0)],
            Self::ManyTargets => vec![backlog(0, jobs, self.healthy(jobs), 0.0)],
            Self::BadHead => {
                let bad = jobs * BAD_PERCENT / 100;
                let others = healthy[BAD_TARGETS..].to_vec();
                vec![
                    // Due a minute earlier: at the head of any order by time.
                    backlog(0, bad, names(BAD_TARGETS, "bad"), -60.0),
                    backlog(bad, jobs - bad, others, 0.0),
                ]
            }
            Self::DueLater => vec![
                backlog(0, jobs, healthy.clone(), 0.0),
                backlog(jobs, jobs, healthy, 86_400.0),
            ],
        }
    }

    /// The targets that are served in turn.
    fn healthy(self, jobs: i64) -> Vec<String> {
        match self {
            Self::Healthy | Self::DueLater | Self::NeverAnalysed => names(TARGETS, "target"),
            Self::ManyTargets => {
                let most = usize::try_from(jobs).unwrap_or(MANY_TARGETS);
                names(MANY_TARGETS.min(most), "target")
            }
            Self::BadHead => names(TARGETS, "target")[BAD_TARGETS..].to_vec(),
        }
    }

    /// The targets that are served when nobody else has jobs.
    fn bad(self) -> Vec<String> {
        match self {
            Self::BadHead => names(BAD_TARGETS, "bad"),
            Self::Healthy | Self::ManyTargets | Self::DueLater | Self::NeverAnalysed => Vec::new(),
        }
    }
}

fn names(count: usize, prefix: &str) -> Vec<String> {
    (0..count)
        .map(|n| format!("{prefix}-{n}.example"))
        .collect()
}

impl Row {
    fn figures(&self) -> Vec<Figure> {
        let claims = &self.claims;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52 jobs")]
        let jobs = self.jobs as f64;
        vec![
            Some(jobs),
            Some(claims.latency.p50),
            Some(claims.latency.p90),
            Some(claims.latency.p99),
            Some(claims.latency.max),
            Some(claims.jobs_per_second),
            Some(claims.buffers_per_job),
            Some(claims.probe_buffers_per_job),
            Some(claims.table_scans),
            Some(self.naive),
        ]
    }
}
