//! What can be typed after `hook bench`, and the way from there to a report.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand};
use hook_common::start;
use hook_localpg::options::Durability;

use crate::{
    deliver::{self, DeliverArgs},
    dequeue::{self, DequeueArgs},
    ingest::{self, IngestArgs},
    isolation::{self, IsolationArgs},
    machine::Machine,
    manage::{self, ManageArgs},
    memory::{self, MemoryArgs},
    path::{self, PathArgs},
    progress::say,
    purge::{self, PurgeArgs},
    replay::{self, ReplayArgs},
    report::{Findings, Report},
    role::{self, Role},
    soak::{self, SoakArgs},
};

/// The arguments of `hook bench`.
#[derive(Args, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A process of a scenario; not for people.
    #[command(hide = true, subcommand)]
    Role(Role),
    #[command(flatten)]
    Scenario(Scenario),
}

#[derive(Debug, Subcommand)]
enum Scenario {
    /// Enqueue over HTTP: one by one, with keys, in batches; beside an endpoint that does nothing.
    Ingest(IngestArgs),
    /// Deliver from a backlog.
    Deliver(DeliverArgs),
    /// Enqueue and deliver at the same time: throughput and latency at several loads, and a floor.
    Path(PathArgs),
    /// Claims from large backlogs of several shapes, beside the naive query.
    Dequeue(DequeueArgs),
    /// Remove finished jobs, alone and beside a worker.
    Purge(PurgeArgs),
    /// Put failed jobs back by the hundred thousand beside healthy targets.
    Replay(ReplayArgs),
    /// The manage routes over millions of jobs and a hundred thousand targets.
    Manage(ManageArgs),
    /// Healthy targets beside sick ones.
    Isolation(IsolationArgs),
    /// The worker's memory and connections with many slow deliveries in flight.
    Memory(MemoryArgs),
    /// Enqueue, deliver and purge for an hour: sizes, times and memory have to stay flat.
    Soak(SoakArgs),
}

/// What every scenario can be told.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// Runs of the whole scenario; the medians are shown.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) runs: usize,
    /// A setting for all services, as NAME=VALUE; may be given several times.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    pub(crate) settings: Vec<(String, String)>,
    /// A setting for Postgres, as NAME=VALUE; may be given several times.
    #[arg(long = "postgres", value_name = "NAME=VALUE", value_parser = setting)]
    pub(crate) postgres: Vec<(String, String)>,
    /// Also show what each statement costs, by an extension of Postgres that costs a little itself.
    #[arg(long)]
    pub(crate) statements: bool,
    /// Keep Postgres in memory and let it wait for nothing: to try a scenario out. Its figures say
    /// nothing about a Postgres that keeps what it is given.
    #[arg(long)]
    pub(crate) volatile: bool,
    /// The program that has every service and role of a scenario as a subcommand.
    #[arg(skip)]
    pub(crate) program: PathBuf,
}

impl Common {
    /// What a crash of the machine may cost Postgres.
    pub(crate) fn durability(&self) -> Durability {
        if self.volatile {
            Durability::Off
        } else {
            Durability::Full
        }
    }
}

/// Runs a scenario and reports; nothing is to be reported of a role. `program` is `hook` itself,
/// which is run once more for each process of the scenario.
///
/// # Errors
/// When something could not be started, broke, or did not stop in good order.
pub fn run(args: BenchArgs, program: PathBuf) -> anyhow::Result<Option<Report>> {
    match args.command {
        Command::Role(role) => role::play(role).map(|()| None),
        Command::Scenario(scenario) => measure(scenario, program).map(Some),
    }
}

fn measure(mut scenario: Scenario, program: PathBuf) -> anyhow::Result<Report> {
    let (name, common) = match &mut scenario {
        Scenario::Ingest(args) => ("ingest", &mut args.common),
        Scenario::Deliver(args) => ("deliver", &mut args.common),
        Scenario::Path(args) => ("path", &mut args.common),
        Scenario::Dequeue(args) => ("dequeue", &mut args.common),
        Scenario::Purge(args) => ("purge", &mut args.common),
        Scenario::Replay(args) => ("replay", &mut args.common),
        Scenario::Manage(args) => ("manage", &mut args.common),
        Scenario::Isolation(args) => ("isolation", &mut args.common),
        Scenario::Memory(args) => ("memory", &mut args.common),
        Scenario::Soak(args) => ("soak", &mut args.common),
    };
    common.program = program;
    let (common, scenario) = (common.clone(), &scenario);
    start::raise_descriptor_limit();
    // One thread: the load shares the cores with what it measures.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime")?;
    let machine = Machine::look(common.durability())?;
    let mut runs = Vec::new();
    for run in 1..=common.runs {
        say(format_args!("{name}, run {run} of {}", common.runs));
        runs.push(runtime.block_on(once(scenario))?);
    }
    let findings = Findings::median(&runs).ok_or_else(|| anyhow!("--runs must be at least 1"))?;
    Ok(Report::new(name, common.runs, machine, findings))
}

async fn once(scenario: &Scenario) -> anyhow::Result<Findings> {
    match scenario {
        Scenario::Ingest(args) => ingest::run(args).await,
        Scenario::Deliver(args) => deliver::run(args).await,
        Scenario::Path(args) => path::run(args).await,
        Scenario::Dequeue(args) => dequeue::run(args).await,
        Scenario::Purge(args) => purge::run(args).await,
        Scenario::Replay(args) => replay::run(args).await,
        Scenario::Manage(args) => manage::run(args).await,
        Scenario::Isolation(args) => isolation::run(args).await,
        Scenario::Memory(args) => memory::run(args).await,
        Scenario::Soak(args) => soak::run(args).await,
    }
}

fn setting(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("must be NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
