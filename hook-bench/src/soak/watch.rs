//! One look at everything that has to stay flat.
//!
//! Sizes and memory are of that moment; rates, CPU and the duration of claims are of the time
//! since the look before.

use std::{collections::HashMap, time::Duration};

use crate::{
    clock,
    measure::{Meter, Watched},
    proc,
    report::{Column, Figure, column},
    rig::{Rig, Service},
    scrape::{Buckets, Scrape},
    sql::size,
};

/// What a look sees, in the order of [`Look::figures`].
pub(super) const COLUMNS: &[Column] = &[
    column("jobs_per_second", "jobs/s", 0),
    column("purged_per_second", "purged/s", 0),
    column("database_mb", "database MB", 1),
    column("table_mb", "largest table MB", 1),
    column("index_mb", "index MB", 1),
    column("dead_rows", "dead rows", 0),
    column("waiting", "waiting", 0),
    column("claim_p99_ms", "claim p99 ms", 2),
    column("api_cpu_percent", "api CPU %", 1),
    column("worker_cpu_percent", "worker", 1),
    column("janitor_cpu_percent", "janitor", 2),
    column("postgres_cpu_percent", "postgres", 1),
    column("janitor_sessions_cpu_percent", "(of it janitor's)", 1),
    column("api_mb", "api MB", 1),
    column("worker_mb", "worker", 1),
    column("janitor_mb", "janitor", 1),
    column("postgres_mb", "postgres", 1),
];

/// Looks again and again.
pub(super) struct Watch<'a> {
    rig: &'a Rig,
    services: Services<'a>,
    begun: u64,
    meter: Meter,
    /// What was counted until the last look.
    before: Counted,
}

/// The product's processes.
#[derive(Clone, Copy)]
pub(super) struct Services<'a> {
    pub(super) api: &'a Service,
    pub(super) worker: &'a Service,
    pub(super) janitor: &'a Service,
}

/// What only rises.
struct Counted {
    delivered: f64,
    purged: f64,
    claims: Buckets,
    /// CPU time of each process of Postgres that serves the janitor.
    sessions: HashMap<i32, Duration>,
}

/// One look.
pub(super) struct Look {
    /// Since the first.
    pub(super) minute: f64,
    /// Which table is the largest.
    pub(super) table: String,
    pub(super) figures: Vec<Figure>,
}

impl<'a> Watch<'a> {
    pub(super) async fn begin(rig: &'a Rig, services: Services<'a>) -> anyhow::Result<Self> {
        Ok(Self {
            meter: meter(rig, services).await?,
            before: Counted::now(rig, services).await?,
            begun: clock::now(),
            rig,
            services,
        })
    }

    pub(super) fn minutes(&self) -> f64 {
        clock::seconds_between(self.begun, clock::now()) / 60.0
    }

    pub(super) async fn look(&mut self) -> anyhow::Result<Look> {
        let next = meter(self.rig, self.services).await?;
        let cost = std::mem::replace(&mut self.meter, next).end().await?;
        let counted = Counted::now(self.rig, self.services).await?;
        let before = std::mem::replace(&mut self.before, counted);
        let after = &self.before;
        let size = size::measure(&self.rig.admin).await?;
        let per_second = |counted: f64| Some(counted / cost.seconds);
        let percent = |cpu_seconds: f64| Some(cpu_seconds / cost.seconds * 100.0);
        let resident = |service: &Service| proc::resident_memory(service.child.pid());
        let postgres = proc::resident_memory_of_family(self.rig.postgres()?.pid)?;
        let claims = after.claims.quantile_since(&before.claims, 0.99);
        let figures = vec![
            per_second(after.delivered - before.delivered),
            per_second(after.purged - before.purged),
            Some(mb(size.database_bytes)),
            Some(mb(size.table_bytes)),
            Some(mb(size.index_bytes)),
            Some(number(size.dead_rows)),
            Some(number(size.waiting)),
            claims.map(|seconds| seconds * 1e3),
            percent(cost.cpu_of("api")),
            percent(cost.cpu_of("worker")),
            percent(cost.cpu_of("janitor")),
            percent(cost.cpu_of("postgres")),
            percent(after.sessions_since(&before).as_secs_f64()),
            Some(mb(resident(self.services.api)?.cast_signed())),
            Some(mb(resident(self.services.worker)?.cast_signed())),
            Some(mb(resident(self.services.janitor)?.cast_signed())),
            Some(mb(postgres.cast_signed())),
        ];
        Ok(Look {
            minute: self.minutes(),
            table: size.table,
            figures,
        })
    }
}

impl Look {
    /// The figure of this column.
    pub(super) fn figure(&self, key: &str) -> Figure {
        let index = COLUMNS.iter().position(|column| column.key == key);
        self.figures[index.expect("a column of this table")]
    }
}

impl Counted {
    async fn now(rig: &Rig, services: Services<'_>) -> anyhow::Result<Self> {
        let mut sessions = HashMap::new();
        for pid in size::sessions(&rig.admin, "hook-janitor").await? {
            // A session may end while we look.
            if let Ok(cpu) = proc::cpu(pid.unsigned_abs()) {
                sessions.insert(pid, cpu);
            }
        }
        let worker = Scrape::of(services.worker.ops).await?;
        Ok(Self {
            delivered: delivered(&worker),
            purged: purged(services.janitor).await?,
            claims: worker.claims(),
            sessions,
        })
    }

    fn sessions_since(&self, before: &Self) -> Duration {
        let spent = self.sessions.iter().map(|(pid, cpu)| {
            let earlier = before.sessions.get(pid).copied().unwrap_or_default();
            cpu.saturating_sub(earlier)
        });
        spent.sum()
    }
}

/// Attempts of this worker that delivered a job.
pub(super) fn delivered(worker: &Scrape) -> f64 {
    worker.sum("hook_worker_attempts_total", "outcome=\"delivered\"")
}

/// Jobs that this janitor has removed.
pub(super) async fn purged(janitor: &Service) -> anyhow::Result<f64> {
    let scrape = Scrape::of(janitor.ops).await?;
    Ok(scrape.sum("hook_janitor_jobs_purged_total", ""))
}

async fn meter(rig: &Rig, services: Services<'_>) -> anyhow::Result<Meter> {
    let Services {
        api,
        worker,
        janitor,
    } = services;
    let mut watched = vec![rig.postgres()?];
    watched.extend([api, worker, janitor].map(|service| Watched::child(&service.child)));
    Meter::start(rig.admin.clone(), watched).await
}

fn mb(bytes: i64) -> f64 {
    number(bytes) / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn number(count: i64) -> f64 {
    count as f64
}
