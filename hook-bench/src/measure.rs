//! What a run costs: time, CPU by process, WAL, memory.
//!
//! Postgres counts as its first process with all the children it ever had, so that a backend that
//! ended during the run is not forgotten.

use std::time::Duration;

use sqlx::PgPool;

use crate::{
    child::Child,
    clock, proc,
    report::{Column, Table, column},
    sql::{
        self,
        statements::{self, Statement},
    },
};

/// A process that is watched.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) name: String,
    pub(crate) pid: u32,
    pub(crate) children: Children,
}

/// Whether the CPU time of a process's children is its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Children {
    Count,
    Ignore,
}

impl Watched {
    pub(crate) fn child(child: &Child) -> Self {
        Self {
            name: child.name().to_owned(),
            pid: child.pid(),
            children: Children::Ignore,
        }
    }

    /// The driver itself, which is where the load comes from.
    pub(crate) fn ourselves() -> Self {
        Self {
            name: "load".to_owned(),
            pid: std::process::id(),
            children: Children::Ignore,
        }
    }
}

/// A measurement under way.
#[derive(Debug)]
pub(crate) struct Meter {
    admin: PgPool,
    watched: Vec<Watched>,
    /// Whether statements are counted.
    counted: bool,
    begun: Sample,
}

#[derive(Debug)]
struct Sample {
    at: u64,
    cpu: Vec<Duration>,
    wal_bytes: i64,
}

/// What happened between the start and the end of a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    pub(crate) wal_bytes: f64,
    pub(crate) processes: Vec<ProcessCost>,
    /// The dearest statements, where they are counted.
    pub(crate) statements: Vec<Statement>,
}

/// One process's part.
#[derive(Clone, Debug)]
pub(crate) struct ProcessCost {
    pub(crate) name: String,
    pub(crate) cpu_seconds: f64,
    /// Since the process began.
    pub(crate) peak_bytes: u64,
}

impl Meter {
    pub(crate) async fn start(admin: PgPool, watched: Vec<Watched>) -> anyhow::Result<Self> {
        let counted = statements::are_counted(&admin).await?;
        if counted {
            statements::reset(&admin).await?;
        }
        let begun = Sample::take(&admin, &watched).await?;
        Ok(Self {
            admin,
            watched,
            counted,
            begun,
        })
    }

    /// Watches one more process, which has just begun.
    pub(crate) fn and_new(mut self, watched: Watched) -> Self {
        self.watched.push(watched);
        self.begun.cpu.push(Duration::ZERO);
        self
    }

    pub(crate) async fn end(self) -> anyhow::Result<Cost> {
        let ended = Sample::take(&self.admin, &self.watched).await?;
        let statements = if self.counted {
            statements::dearest(&self.admin).await?
        } else {
            Vec::new()
        };
        let cpu = ended.cpu.iter().zip(&self.begun.cpu);
        let mut processes = Vec::new();
        for (watched, (after, before)) in self.watched.into_iter().zip(cpu) {
            processes.push(ProcessCost {
                cpu_seconds: after.saturating_sub(*before).as_secs_f64(),
                peak_bytes: proc::peak_memory(watched.pid)?,
                name: watched.name,
            });
        }
        let wal_bytes = ended.wal_bytes - self.begun.wal_bytes;
        Ok(Cost {
            seconds: clock::seconds_between(self.begun.at, ended.at),
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
            wal_bytes: wal_bytes as f64,
            processes,
            statements,
        })
    }
}

impl Sample {
    async fn take(admin: &PgPool, watched: &[Watched]) -> anyhow::Result<Self> {
        let wal_bytes = sql::wal_bytes(admin).await?;
        let cpu = watched.iter().map(|watched| match watched.children {
            Children::Count => proc::cpu_of_family(watched.pid),
            Children::Ignore => proc::cpu(watched.pid),
        });
        Ok(Self {
            at: clock::now(),
            cpu: cpu.collect::<anyhow::Result<_>>()?,
            wal_bytes,
        })
    }
}

const STATEMENTS: &[Column] = &[
    column("calls", "calls", 0),
    column("rows_per_call", "rows/call", 1),
    column("plans_per_call", "plans/call", 2),
    column("plan_ms_per_call", "plan ms/call", 3),
    column("exec_ms_per_call", "exec ms/call", 3),
    column("us_per_job", "µs/job", 1),
    column("buffers_per_job", "buffers/job", 1),
    column("wal_bytes_per_job", "WAL B/job", 0),
];

impl Cost {
    /// What the dearest statements cost for each of so many jobs; `None` if none were counted.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub(crate) fn statements(&self, jobs: f64) -> Option<Table> {
        let mut table = Table::new("statements", STATEMENTS);
        for statement in &self.statements {
            let calls = statement.calls as f64;
            let figures = [
                calls,
                statement.rows as f64 / calls,
                statement.plans as f64 / calls,
                statement.plan_ms / calls,
                statement.exec_ms / calls,
                (statement.plan_ms + statement.exec_ms) / jobs * 1e3,
                statement.buffers as f64 / jobs,
                statement.wal_bytes as f64 / jobs,
            ];
            table.row(statement.name.as_str(), figures.map(Some).to_vec());
        }
        (!self.statements.is_empty()).then_some(table)
    }

    /// CPU seconds of all processes of this kind: `worker` is `worker`, `worker 2` …
    pub(crate) fn cpu_of(&self, kind: &str) -> f64 {
        self.of(kind).map(|process| process.cpu_seconds).sum()
    }

    /// The most memory of any process of this kind, in MB; `None` if none was watched.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
    pub(crate) fn peak_mb(&self, kind: &str) -> Option<f64> {
        let peak = self.of(kind).map(|process| process.peak_bytes).max();
        peak.map(|bytes| bytes as f64 / 1e6)
    }

    fn of(&self, kind: &str) -> impl Iterator<Item = &ProcessCost> {
        let all = self.processes.iter();
        all.filter(move |process| process.name.split(' ').next() == Some(kind))
    }
}
