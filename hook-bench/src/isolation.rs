//! `hook bench isolation`: healthy targets beside sick ones.
//!
//! Each scenario has a Postgres and processes of its own, and begins with a base run: the same
//! jobs at the same rate while every target is well. Then the sick targets turn sick while the
//! load goes on, and what the healthy ones see is compared with the base, second by second from
//! the first. A healthy job that does not arrive counts with the time it has waited.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};

use crate::{
    command::Common,
    plot::{self, BLUE, Curve, Panel, RED, Scale},
    progress::say,
    report::{Column, Findings, Line, Table, column},
    scene::{Scene, Setup, healthy::Healthy},
};

mod backlog;
mod sickness;
mod starvation;

/// The lines that a scenario has to pass.
const P99_RATIO_MAX: f64 = 1.5;
const THROUGHPUT_RATIO_MIN: f64 = 0.95;
const BURST_RATIO_MAX: f64 = 2.0;

#[derive(Args, Clone, Debug)]
pub(crate) struct IsolationArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// How long each phase lasts.
    #[arg(long, default_value_t = 20.0, value_name = "SECONDS")]
    seconds: f64,
    /// Which scenarios are played.
    #[arg(long, value_delimiter = ',', default_values_t = Scenario::value_variants().to_vec(), value_enum)]
    scenarios: Vec<Scenario>,
    /// Jobs a second; by default 40 % of what the machine delivers.
    #[arg(long, value_name = "JOBS")]
    rate: Option<f64>,
    /// Jobs that wait when a target turns sick.
    #[arg(long, default_value_t = 1_000_000, value_name = "JOBS")]
    backlog: u32,
    /// Jobs that one target enqueues at once.
    #[arg(long, default_value_t = 200_000, value_name = "JOBS")]
    burst: u32,
    /// Where to draw the healthy latency over time, as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// What happens beside the healthy targets.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Scenario {
    /// One host with half of the jobs hangs until the timeout.
    Hang,
    /// The same with 64 slots.
    Hang64,
    /// One host with nine of ten jobs hangs.
    Hang90,
    /// One host answers 200 after four seconds.
    Slow,
    /// One host answers 500 at once.
    Fail,
    /// One host hangs and is well in turn, ten seconds each.
    Flap,
    /// Twenty hosts hang, all from the same moment.
    Hang20,
    /// Two hundred hosts hang, all from the same moment.
    Hang200,
    /// Two hundred hosts that nobody has seen before hang.
    New200,
    /// One host hangs and heals.
    Recovery,
    /// A host with a large backlog turns sick while it is drained.
    Backlog,
    /// A healthy host enqueues very many jobs at once.
    Burst,
    /// Healthy jobs saturate the worker while ten hosts hang.
    Starvation,
}

impl Scenario {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hang => "hang",
            Self::Hang64 => "hang64",
            Self::Hang90 => "hang90",
            Self::Slow => "slow",
            Self::Fail => "fail",
            Self::Flap => "flap",
            Self::Hang20 => "hang20",
            Self::Hang200 => "hang200",
            Self::New200 => "new200",
            Self::Recovery => "recovery",
            Self::Backlog => "backlog",
            Self::Burst => "burst",
            Self::Starvation => "starvation",
        }
    }
}

impl std::fmt::Display for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

const COLUMNS: &[Column] = &[
    column("jobs_per_second", "jobs/s", 0),
    column("base_p50_ms", "base p50 ms", 2),
    column("base_p99_ms", "p99", 2),
    column("p50_ms", "sick p50 ms", 2),
    column("p99_ms", "p99", 2),
    column("first_second_p99_ms", "first second p99", 2),
    column("worst_second_p99_ms", "worst second p99", 2),
    column("throughput_ratio", "healthy ÷ base", 3),
    column("open_max", "most open", 0),
];

/// What a scenario found beside the lines.
pub(crate) struct Played {
    pub(crate) base: Healthy,
    pub(crate) sick: Healthy,
    /// Requests open at the receiver at one time, at most.
    pub(crate) open_max: f64,
    pub(crate) lines: Vec<Line>,
}

pub(crate) async fn run(args: &IsolationArgs) -> anyhow::Result<Findings> {
    ensure!(args.seconds >= 2.0, "--seconds must be at least 2");
    let rate = match args.rate {
        Some(rate) => rate,
        None => 0.4 * calibrate(args).await?,
    };
    say(format_args!("{rate:.0} jobs/s in all"));
    let mut table = Table::new("healthy targets", COLUMNS);
    let mut findings = Findings::default();
    let mut panels = Vec::new();
    for scenario in &args.scenarios {
        say(format_args!("scenario {scenario}"));
        let played = play(*scenario, args, rate)
            .await
            .with_context(|| format!("playing {scenario}"))?;
        table.row(scenario.name(), row(&played, rate));
        findings.lines.extend(played.lines);
        panels.push(panel(scenario.name(), &played.base, &played.sick));
    }
    if let Some(path) = &args.plot {
        plot::write(path, &panels).context("drawing the plot")?;
    }
    findings.tables.push(table);
    Ok(findings)
}

async fn play(scenario: Scenario, args: &IsolationArgs, rate: f64) -> anyhow::Result<Played> {
    match scenario {
        Scenario::Hang
        | Scenario::Hang64
        | Scenario::Hang90
        | Scenario::Slow
        | Scenario::Fail
        | Scenario::Flap
        | Scenario::Hang20
        | Scenario::Hang200
        | Scenario::New200
        | Scenario::Recovery => sickness::play(scenario, args, rate).await,
        Scenario::Backlog => backlog::turns_sick(args, rate).await,
        Scenario::Burst => backlog::burst(args).await,
        Scenario::Starvation => starvation::play(args).await,
    }
}

/// What the machine delivers, jobs a second.
async fn calibrate(args: &IsolationArgs) -> anyhow::Result<f64> {
    say("looking how much the machine delivers");
    let mut scene = Scene::start(&args.common, Setup::default()).await?;
    let rate = scene.full(Duration::from_secs(5)).await?;
    scene.stop().await?;
    Ok(rate)
}

fn row(played: &Played, rate: f64) -> Vec<Option<f64>> {
    let Played {
        base,
        sick,
        open_max,
        ..
    } = played;
    vec![
        Some(rate),
        Some(base.all.p50),
        Some(base.all.p99),
        Some(sick.all.p50),
        Some(sick.all.p99),
        sick.seconds.first().map(|second| second.p99),
        sick.worst_second(),
        Some(sick.per_second / base.per_second).filter(|ratio| ratio.is_finite()),
        Some(*open_max),
    ]
}

/// The healthy p99 of each second of both runs.
fn panel(name: &str, base: &Healthy, sick: &Healthy) -> Panel {
    let curve = |name, colour, run: &Healthy| Curve {
        name,
        colour,
        points: (0_u32..)
            .zip(&run.seconds)
            .map(|(second, latency)| (second.into(), latency.p99))
            .collect(),
    };
    Panel {
        title: format!("{name}: healthy p99 of each second in ms;"),
        scale: Scale::Logarithmic {
            from: 0.1,
            to: 10_000.0,
        },
        unit: "s",
        curves: vec![curve("base", BLUE, base), curve("sick", RED, sick)],
    }
}

/// The lines that most scenarios have: latency, from the first second on, and throughput.
fn usual_lines(name: &str, base: &Healthy, sick: &Healthy) -> Vec<Line> {
    let first = sick
        .seconds
        .first()
        .map_or(f64::INFINITY, |first| first.p99);
    vec![
        Line::at_most(
            format!("{name}: healthy p99 ÷ base"),
            sick.all.p99 / base.all.p99,
            P99_RATIO_MAX,
        ),
        Line::at_most(
            format!("{name}: first second, healthy p99 ÷ worst second of base"),
            first / base.worst_second().unwrap_or(f64::NAN),
            P99_RATIO_MAX,
        ),
        Line::at_least(
            format!("{name}: healthy jobs/s ÷ base"),
            sick.per_second / base.per_second,
            THROUGHPUT_RATIO_MIN,
        ),
    ]
}
