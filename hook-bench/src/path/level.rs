//! One level of the load: what each job's way took, and what all of them cost.

use anyhow::Context as _;

use crate::{
    clock,
    latency::Latency,
    load::Sent,
    measure::Cost,
    report::{Column, Figure, Table, column},
};

/// Throughput and times. An enqueue counts from when it was due to its answer, a delivery from the
/// answer to the arrival at the receiver.
pub(super) const TIMES: &[Column] = &[
    column("jobs_per_second", "jobs/s", 0),
    column("first_jobs_per_second", "first tenth", 0),
    column("last_jobs_per_second", "last tenth", 0),
    column("enqueue_p50_ms", "enqueue p50 ms", 2),
    column("enqueue_p99_ms", "p99", 2),
    column("delivery_p50_ms", "delivery p50 ms", 2),
    column("delivery_p90_ms", "p90", 2),
    column("delivery_p99_ms", "p99", 2),
    column("delivery_max_ms", "max", 1),
];

/// What a job costs; the processes in brackets are not part of the sum.
pub(super) const COSTS: &[Column] = &[
    column("cpu_us_per_job", "CPU µs", 0),
    column("api_cpu_us_per_job", "api", 0),
    column("worker_cpu_us_per_job", "worker", 0),
    column("janitor_cpu_us_per_job", "janitor", 0),
    column("floor_cpu_us_per_job", "floor", 0),
    column("postgres_cpu_us_per_job", "postgres", 0),
    column("receiver_cpu_us_per_job", "(receiver)", 0),
    column("load_cpu_us_per_job", "(load)", 0),
    column("wal_bytes_per_job", "WAL bytes", 0),
    column("api_peak_mb", "api MB", 0),
    column("worker_peak_mb", "worker MB", 0),
];

/// One load, measured.
pub(super) struct Level {
    jobs: f64,
    /// Until the last job was received.
    seconds: f64,
    /// Jobs a second in the first tenth of the time, and in the last in which jobs were enqueued.
    first: f64,
    last: f64,
    pub(super) enqueue: Latency,
    pub(super) delivery: Latency,
    cost: Cost,
}

impl Level {
    /// Puts together when jobs were sent and when they arrived; every one has to have arrived.
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of jobs are far below 2^52"
    )]
    pub(super) fn of(sent: &Sent, arrivals: &[Option<u64>], cost: Cost) -> anyhow::Result<Self> {
        let mut enqueue = Vec::with_capacity(sent.jobs.len());
        let mut delivery = Vec::with_capacity(sent.jobs.len());
        let mut last = sent.ended;
        let tenth = (sent.ended - sent.begun) / 10;
        let (mut in_first, mut in_last) = (0_u32, 0_u32);
        for job in &sent.jobs {
            let index = usize::try_from(job.number).context("a job's number")?;
            let arrived = arrivals.get(index).copied().flatten();
            let arrived = arrived.with_context(|| format!("job {} did not arrive", job.number))?;
            enqueue.push(job.answered - job.due);
            // A job may well be delivered before its producer hears of it.
            delivery.push(arrived.saturating_sub(job.answered));
            last = last.max(arrived);
            in_first += u32::from(arrived < sent.begun + tenth);
            in_last += u32::from((sent.ended - tenth..sent.ended).contains(&arrived));
        }
        let per_second = |jobs: u32| f64::from(jobs) / clock::seconds_between(0, tenth);
        Ok(Self {
            jobs: sent.jobs.len() as f64,
            seconds: clock::seconds_between(sent.begun, last),
            first: per_second(in_first),
            last: per_second(in_last),
            enqueue: Latency::of(enqueue),
            delivery: Latency::of(delivery),
            cost,
        })
    }

    pub(super) fn rate(&self) -> f64 {
        self.jobs / self.seconds
    }

    /// Jobs a second at the end ÷ at the start.
    pub(super) fn kept(&self) -> f64 {
        self.last / self.first
    }

    pub(super) fn cpu_per_job(&self, names: &[&str]) -> f64 {
        let processes = names.iter().map(|name| self.cost.cpu_of(name));
        processes.sum::<f64>() / self.jobs * 1e6
    }

    pub(super) fn wal_per_job(&self) -> f64 {
        self.cost.wal_bytes / self.jobs
    }

    /// What statements cost, where that was counted.
    pub(super) fn statements(&self) -> Option<Table> {
        self.cost.statements(self.jobs)
    }

    /// The row of [`TIMES`].
    pub(super) fn times(&self) -> Vec<Figure> {
        vec![
            Some(self.rate()),
            Some(self.first),
            Some(self.last),
            Some(self.enqueue.p50),
            Some(self.enqueue.p99),
            Some(self.delivery.p50),
            Some(self.delivery.p90),
            Some(self.delivery.p99),
            Some(self.delivery.max),
        ]
    }

    /// The row of [`COSTS`]; `counted` are the processes whose CPU time is the job's.
    pub(super) fn costs(&self, counted: &[&str]) -> Vec<Figure> {
        let of = |kind: &str| {
            let watched = self.cost.peak_mb(kind).is_some();
            watched.then(|| self.cost.cpu_of(kind) / self.jobs * 1e6)
        };
        vec![
            Some(self.cpu_per_job(counted)),
            of("api"),
            of("worker"),
            of("janitor"),
            of("floor"),
            of("postgres"),
            of("receiver"),
            of("load"),
            Some(self.wal_per_job()),
            self.cost.peak_mb("api"),
            self.cost.peak_mb("worker"),
        ]
    }
}
