//! `hook bench ingest`: enqueues over HTTP while nobody delivers.
//!
//! Single requests are answered after their commit. They stand beside two floors that run in the
//! same call through the same client: an endpoint of the same framework that does nothing, and one
//! that inserts each request's job in a statement of its own.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::{
    command::Common,
    floor::{
        Floor,
        server::{INSERT, NOTHING},
    },
    latency::Latency,
    load::{self, Form, Jobs, Load, Until},
    measure::{Cost, Meter, Watched},
    progress::say,
    report::{Column, Figure, Findings, Line, Table, column},
    rig::Rig,
    sql,
};

#[derive(Args, Clone, Debug)]
pub(crate) struct IngestArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// How long each form lasts.
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    seconds: f64,
    /// Requests in flight.
    #[arg(long, default_value_t = 64, value_name = "N")]
    connections: u64,
    /// Jobs of one batch request.
    #[arg(long, default_value_t = 100, value_name = "JOBS")]
    batch: u64,
    /// Destinations.
    #[arg(long, default_value_t = 1000, value_name = "N")]
    targets: u16,
    /// Bytes of a job's body.
    #[arg(long, default_value_t = 1024, value_name = "BYTES")]
    body_bytes: usize,
}

const COLUMNS: &[Column] = &[
    column("jobs_per_second", "jobs/s", 0),
    column("requests_per_second", "requests/s", 0),
    column("p50_ms", "p50 ms", 2),
    column("p90_ms", "p90", 2),
    column("p99_ms", "p99", 2),
    column("max_ms", "max", 1),
    column("server_cpu_us_per_job", "server CPU µs/job", 0),
    column("postgres_cpu_us_per_job", "postgres", 0),
    column("load_cpu_us_per_job", "(load)", 0),
    column("wal_bytes_per_job", "WAL B/job", 0),
    column("server_peak_mb", "server MB", 0),
];

/// One form of enqueueing, measured.
struct Measured {
    jobs: f64,
    requests: f64,
    seconds: f64,
    latency: Latency,
    cost: Cost,
}

pub(crate) async fn run(args: &IngestArgs) -> anyhow::Result<Findings> {
    let rig = Rig::start(&args.common).await?;
    let receiver = rig.receiver(1).await?;
    let floor = Floor::start(&rig, receiver.address()).await?;
    let api = rig.api(&[]).await?;
    let watched = [
        rig.postgres()?,
        Watched::ourselves(),
        Watched::child(&floor.child),
        Watched::child(&api.child),
    ];
    let stage = Stage {
        args,
        rig: &rig,
        watched: &watched,
    };
    let to_floor = |path| (floor.address, path);
    let nothing = stage
        .form("nothing", to_floor(NOTHING), Form::Single)
        .await?;
    let insert = stage
        .form("insert per request", to_floor(INSERT), Form::Single)
        .await?;
    let before = sql::jobs(&rig.admin).await?;
    let single = stage
        .form("single", (api.public, load::SINGLE), Form::Single)
        .await?;
    let keyed = stage
        .form("keyed", (api.public, load::SINGLE), Form::Keyed)
        .await?;
    let many = Form::Batch(args.batch);
    let batch = stage.form("batch", (api.public, load::BATCH), many).await?;
    let stored = sql::jobs(&rig.admin).await? - before;

    let mut table = Table::new("enqueue", COLUMNS);
    table.row("no-op endpoint", nothing.figures("floor"));
    table.row("insert per request", insert.figures("floor"));
    table.row("single", single.figures("api"));
    table.row("single, with key", keyed.figures("api"));
    table.row(format!("batches of {}", args.batch), batch.figures("api"));
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 jobs")]
    let stored = stored as f64;
    let answered = single.jobs + keyed.jobs + batch.jobs;
    let lines = vec![
        Line::at_least(
            "single ÷ no-op endpoint",
            single.rate() / nothing.rate(),
            0.25,
        ),
        Line::at_least(
            "single ÷ insert per request",
            single.rate() / insert.rate(),
            2.5,
        ),
        Line::at_least("jobs stored ÷ answered", stored / answered, 1.0),
    ];

    api.child.stop().await?;
    floor.child.stop().await?;
    receiver.stop().await?;
    rig.stop().await?;
    let statements = single.cost.statements(single.jobs);
    Ok(Findings {
        tables: [table].into_iter().chain(statements).collect(),
        lines,
    })
}

struct Stage<'a> {
    args: &'a IngestArgs,
    rig: &'a Rig,
    watched: &'a [Watched],
}

impl Stage<'_> {
    async fn form(
        &self,
        name: &str,
        (address, path): (SocketAddr, &'static str),
        form: Form,
    ) -> anyhow::Result<Measured> {
        say(name);
        // Nobody sends these jobs; a name that is not one of this machine is enough.
        let urls = (0..self.args.targets).map(|n| format!("http://target-{n}.example/hook"));
        let jobs = Jobs::round_robin(urls.collect(), self.args.body_bytes);
        let load = Load {
            address,
            path,
            form,
            connections: self.args.connections,
            rate: None,
            window: None,
            until: Until::After(Duration::from_secs_f64(self.args.seconds)),
        };
        let warm_up = Load {
            until: Until::After(Duration::from_secs_f64(self.args.seconds / 10.0)),
            // Its keys are used up by the warm-up.
            form: if form == Form::Keyed {
                Form::Single
            } else {
                form
            },
            ..load
        };
        warm_up.run(jobs.clone()).await?;
        let meter = Meter::start(self.rig.admin.clone(), self.watched.to_vec()).await?;
        let sent = load.run(jobs).await?;
        let cost = meter.end().await?;
        ensure!(sent.refused == 0, "{} enqueues were refused", sent.refused);
        let latencies = sent.jobs.iter().map(|job| job.answered - job.due);
        let jobs = u32::try_from(sent.jobs.len()).context("too many jobs")?;
        let per_request = match form {
            Form::Single | Form::Keyed => 1.0,
            Form::Batch(_) => f64::from(u32::try_from(self.args.batch).context("a huge batch")?),
        };
        Ok(Measured {
            jobs: f64::from(jobs),
            requests: f64::from(jobs) / per_request,
            seconds: sent.seconds(),
            latency: Latency::of(latencies.collect()),
            cost,
        })
    }
}

impl Measured {
    fn rate(&self) -> f64 {
        self.jobs / self.seconds
    }

    fn figures(&self, server: &str) -> Vec<Figure> {
        let cpu = |name: &str| Some(self.cost.cpu_of(name) / self.jobs * 1e6);
        vec![
            Some(self.rate()),
            Some(self.requests / self.seconds),
            Some(self.latency.p50),
            Some(self.latency.p90),
            Some(self.latency.p99),
            Some(self.latency.max),
            cpu(server),
            cpu("postgres"),
            cpu("load"),
            Some(self.cost.wal_bytes / self.jobs),
            self.cost.peak_mb(server),
        ]
    }
}
