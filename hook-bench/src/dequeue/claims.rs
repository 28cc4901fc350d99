//! Claims as a worker makes them, timed, and what Postgres touches for one.

use std::{collections::HashMap, time::Duration};

use anyhow::{Context as _, ensure};
use chrono::{DateTime, Utc};
use hook_common::{
    db::Db,
    job::{Outcome, Status, Tier},
    queue::{AttemptRecord, Finish, Finished, Head, LeaseTerm, LeasedJob, Next, Queue},
    target::{Target, TargetId},
};
use serde_json::Value;
use sqlx::PgPool;

use crate::{clock, latency::Latency, rig::Rig, sql::backlog};

/// Jobs of one claim.
const CLAIM: usize = 50;

/// Claims before the first that is timed, and claims that are explained.
const WARM_UP: usize = 10;
const EXPLAINED: usize = 5;

/// Runs of the naive query.
const NAIVE_RUNS: usize = 3;

/// What claims took.
#[derive(Clone, Debug)]
pub(super) struct Claims {
    pub(super) latency: Latency,
    pub(super) jobs_per_second: f64,
    /// Pages that the whole statement touches.
    pub(super) buffers_per_job: f64,
    /// Pages that finding and locking the jobs touches.
    pub(super) probe_buffers_per_job: f64,
    /// Nodes of the plan that read all waiting jobs.
    pub(super) table_scans: f64,
}

/// Makes claims, with the memory that a worker has of its heads.
pub(super) struct Claimer {
    pool: PgPool,
    queue: Queue,
    healthy: Vec<TargetId>,
    bad: Vec<TargetId>,
    next: usize,
    lows: HashMap<TargetId, DateTime<Utc>>,
}

impl Claimer {
    pub(super) fn new(rig: &Rig, healthy: Vec<String>, bad: Vec<String>) -> Self {
        let pool = rig.pool(1);
        let id = |name: String| Target::new(name).expect("a short printable name").id();
        Self {
            queue: Queue::new(Db::around(pool.clone())),
            pool,
            healthy: healthy.into_iter().map(id).collect(),
            bad: bad.into_iter().map(id).collect(),
            next: 0,
            lows: HashMap::new(),
        }
    }

    pub(super) async fn close(self) {
        self.pool.close().await;
    }

    /// Makes and finishes so many claims.
    pub(super) async fn run(&mut self, claims: usize) -> anyhow::Result<Claims> {
        for _ in 0..WARM_UP {
            self.claim().await?;
        }
        let (mut buffers, mut probe, mut scans) = (0, 0, 0);
        for _ in 0..EXPLAINED {
            let heads = self.heads();
            let plan = self.queue.explain_dequeue(&heads, CLAIM, &term()).await?;
            let plan = plan.pointer("/0/Plan").context("EXPLAIN gave no plan")?;
            buffers += touched(plan);
            probe += find(plan, &is_probe).map_or(0, touched);
            scans += count(plan, &reads_all);
        }
        let mut times = Vec::with_capacity(claims);
        for _ in 0..claims {
            times.push(self.claim().await?);
        }
        let total: u64 = times.iter().sum();
        let jobs = u32::try_from(claims * CLAIM).context("too many claims")?;
        let explained = u32::try_from(EXPLAINED * CLAIM).context("a small number")?;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let per_job = |count: u64| count as f64 / f64::from(explained);
        Ok(Claims {
            latency: Latency::of(times),
            jobs_per_second: f64::from(jobs) / clock::seconds_between(0, total),
            buffers_per_job: per_job(buffers),
            probe_buffers_per_job: per_job(probe),
            #[expect(clippy::cast_precision_loss, reason = "a few")]
            table_scans: scans as f64,
        })
    }

    /// Claims and finishes once, and gives the nanoseconds of the claim.
    async fn claim(&mut self) -> anyhow::Result<u64> {
        let heads = self.heads();
        let begun = clock::now();
        let dequeued = self.queue.dequeue(&heads, CLAIM, &term()).await?;
        let took = clock::now() - begun;
        let jobs = dequeued.jobs.len();
        ensure!(jobs == CLAIM, "a claim brought {jobs} jobs of {CLAIM}");
        for job in &dequeued.jobs {
            let low = self.lows.entry(job.lease.target_id).or_insert(job.run_at);
            *low = job.run_at.max(*low);
        }
        let mut finishes: Vec<Finish> = dequeued.jobs.into_iter().map(delivered).collect();
        let finished = self.queue.finish(&mut finishes).await?;
        let recorded = finished.iter().all(|finished| match finished {
            Finished::Recorded => true,
            Finished::LeaseLost => false,
        });
        ensure!(recorded, "a lease was lost");
        Ok(took)
    }

    /// The next healthy heads in turn, one job each; then the bad ones, for what is left.
    fn heads(&mut self) -> Vec<Head> {
        let head = |target_id: TargetId, take: usize| Head {
            target_id,
            tier: Tier::Primary,
            take: i32::try_from(take).expect("a claim is small"),
            low: self.lows.get(&target_id).copied(),
        };
        let in_turn = (0..CLAIM).map(|n| self.healthy[(self.next + n) % self.healthy.len()]);
        let healthy = in_turn.map(|target_id| head(target_id, 1));
        let bad = self.bad.iter().map(|target_id| head(*target_id, CLAIM));
        let heads = healthy.chain(bad).collect();
        self.next = (self.next + CLAIM) % self.healthy.len();
        heads
    }
}

fn term() -> LeaseTerm {
    LeaseTerm {
        lease: Duration::from_secs(600),
        margin: Duration::from_secs(15),
        worker: "bench".to_owned(),
    }
}

fn delivered(job: LeasedJob) -> Finish {
    Finish {
        lease: job.lease,
        record: AttemptRecord {
            outcome: Outcome::Delivered,
            error_kind: None,
            response_status: Some(200),
            response_excerpt: None,
            response_truncated: false,
            duration: Duration::from_millis(1),
        },
        next: Next::End(Status::Completed),
    }
}

/// The median of the naive query over the same backlog, in milliseconds.
pub(super) async fn naive(rig: &Rig, bad: &[String]) -> anyhow::Result<f64> {
    let mut times = Vec::new();
    for _ in 0..NAIVE_RUNS {
        let begun = clock::now();
        backlog::naive(&rig.admin, bad).await?;
        times.push(clock::now() - begun);
    }
    Ok(Latency::of(times).p50)
}

/// Pages that a node and those below it touched, in memory or not.
fn touched(node: &Value) -> u64 {
    let blocks = |name: &str| node[name].as_u64().unwrap_or(0);
    blocks("Shared Hit Blocks") + blocks("Shared Read Blocks")
}

/// The part of the plan that finds and locks the jobs.
fn is_probe(node: &Value) -> bool {
    node["Subplan Name"] == "CTE pick"
}

/// Whether this node reads all waiting jobs.
fn reads_all(node: &Value) -> bool {
    node["Node Type"] == "Seq Scan" && node["Relation Name"] == "ready"
}

fn children(node: &Value) -> impl Iterator<Item = &Value> {
    node["Plans"].as_array().into_iter().flatten()
}

fn find<'a>(node: &'a Value, wanted: &impl Fn(&Value) -> bool) -> Option<&'a Value> {
    if wanted(node) {
        return Some(node);
    }
    children(node).find_map(|child| find(child, wanted))
}

fn count(node: &Value, wanted: &impl Fn(&Value) -> bool) -> usize {
    let below: usize = children(node).map(|child| count(child, wanted)).sum();
    below + usize::from(wanted(node))
}
