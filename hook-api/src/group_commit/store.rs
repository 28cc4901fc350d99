//! Runs the statements of one group, and finds out what became of each job.

use std::{collections::HashMap, ops::Range, time::Duration};

use hook_common::{
    db::{Db, Fault},
    job::{Due, JobId, QueueName},
    logging::Repeats,
    metrics::api::{
        DUPLICATES_TOTAL, GROUP_COMMIT_DURATION_SECONDS, GROUP_COMMIT_JOBS, JOBS_ENQUEUED_TOTAL,
    },
    queue::{Enqueue, Enqueued, KeyUse, Queue},
};
use metrics::{Counter, Histogram};
use tokio::time::Instant;
use tracing::error;

use super::{
    CommitterParts, STATEMENTS_MAX,
    fate::{Fate, known, repeated, stored},
    fold::{Role, roles},
};
use crate::{kept::Kept, wake::Waker};

/// How often a key that is taken one moment and free the next is looked at again.
const KEY_ROUNDS_MAX: usize = 4;
/// How often a statement that has certainly changed nothing is repeated at once.
const REPEATS_MAX: usize = 2;

/// Runs statements and counts.
#[derive(Debug)]
pub(super) struct Store {
    queue: Queue,
    db: Db,
    connections: Kept,
    waker: Waker,
    key_ttl: Duration,
    failures: Repeats,
    metrics: StoreMetrics,
}

struct StoreMetrics {
    primary: Counter,
    degraded: Counter,
    duplicates: Counter,
    group_jobs: Histogram,
    committed: Histogram,
}

impl std::fmt::Debug for StoreMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoreMetrics")
    }
}

impl Store {
    pub(super) fn new(parts: CommitterParts) -> Self {
        let enqueued = |queue: QueueName| JOBS_ENQUEUED_TOTAL.counter(&[queue.as_str()]);
        // Where connections are few, everybody has to queue for them alike.
        let kept_max = STATEMENTS_MAX.min(parts.pool_max / 3);
        Self {
            queue: parts.queue,
            connections: Kept::new(parts.db.clone(), kept_max),
            db: parts.db,
            waker: parts.waker,
            key_ttl: parts.key_ttl,
            failures: Repeats::default(),
            metrics: StoreMetrics {
                primary: enqueued(QueueName::Primary),
                degraded: enqueued(QueueName::Degraded),
                duplicates: DUPLICATES_TOTAL.counter(&[]),
                group_jobs: GROUP_COMMIT_JOBS.histogram(&[]),
                committed: GROUP_COMMIT_DURATION_SECONDS.histogram(&["ok"]),
            },
        }
    }

    /// Connections between two statements.
    pub(super) fn connections(&self) -> &Kept {
        &self.connections
    }

    /// Stores the jobs of several requests, each of which is a span; a span of several jobs with
    /// keys comes alone and is stored as a whole or not at all.
    pub(super) async fn store(&self, jobs: &[Enqueue], spans: &[Range<usize>]) -> Vec<Fate> {
        let fates = match roles(jobs) {
            None => self.store_distinct(jobs, spans).await,
            Some(roles) => self.store_folded(jobs, spans, &roles).await,
        };
        self.note(jobs, &fates);
        fates
    }

    /// Stores jobs of which some repeat others.
    async fn store_folded(
        &self,
        jobs: &[Enqueue],
        spans: &[Range<usize>],
        roles: &[Role],
    ) -> Vec<Fate> {
        let is_batch = spans.len() == 1;
        if is_batch && roles.contains(&Role::KeyReused) {
            // All or nothing: the others wait for a request without the mistake.
            let fates = roles.iter().map(|role| match role {
                Role::KeyReused => Fate::KeyReused,
                Role::Own | Role::Repeats(_) => Fate::Failed(Fault::Conflict),
            });
            return fates.collect();
        }
        let own: Vec<usize> = (0..jobs.len())
            .filter(|index| roles[*index] == Role::Own)
            .collect();
        let distinct: Vec<Enqueue> = own.iter().map(|index| jobs[*index].clone()).collect();
        let spans: Vec<Range<usize>> = if is_batch {
            std::iter::once(0..distinct.len()).collect()
        } else {
            (0..distinct.len()).map(|index| index..index + 1).collect()
        };
        let stored = self.store_distinct(&distinct, &spans).await;
        let of_own: HashMap<usize, &Fate> = own.into_iter().zip(&stored).collect();
        let mut fates = Vec::with_capacity(jobs.len());
        for (index, role) in roles.iter().enumerate() {
            fates.push(match role {
                Role::Own => of_own[&index].clone(),
                Role::Repeats(first) => repeated(of_own[first], &jobs[*first]),
                // Rare: it has a look of its own at who holds the key by now.
                Role::KeyReused => {
                    let alone = std::slice::from_ref(&jobs[index]);
                    let span = std::slice::from_ref(&(0..1));
                    let fate = self.store_distinct(alone, span).await;
                    fate.into_iter().next().unwrap_or(Fate::KeyReused)
                }
            });
        }
        fates
    }

    /// Stores jobs whose keys differ.
    async fn store_distinct(&self, jobs: &[Enqueue], spans: &[Range<usize>]) -> Vec<Fate> {
        if let [_] = spans
            && jobs.len() > 1
            && jobs.iter().any(|job| job.job.idempotency.is_some())
        {
            return self.store_whole(jobs).await;
        }
        let mut fates = Vec::with_capacity(jobs.len());
        // Spans that are still to be stored, the first of them last.
        let mut todo = vec![spans];
        while let Some(spans) = todo.pop() {
            let (Some(first), Some(last)) = (spans.first(), spans.last()) else {
                continue;
            };
            let part = &jobs[first.start..last.end];
            match self.insert(part).await {
                Ok(enqueued) => fates.extend(self.fates_of(part, enqueued).await),
                // One job that Postgres refuses must not take the others with it.
                Err(fault) if is_about_data(fault) && spans.len() > 1 => {
                    let (front, back) = spans.split_at(spans.len() / 2);
                    todo.push(back);
                    todo.push(front);
                }
                Err(fault) => fates.extend(part.iter().map(|_| Fate::Failed(fault))),
            }
        }
        fates
    }

    /// One statement, repeated while it has certainly changed nothing and may pass.
    async fn insert(&self, jobs: &[Enqueue]) -> Result<Vec<Enqueued>, Fault> {
        let mut repeats = 0;
        loop {
            match self.insert_once(jobs).await {
                Err(fault) if may_repeat(fault) && repeats < REPEATS_MAX => repeats += 1,
                end => return end,
            }
        }
    }

    async fn insert_once(&self, jobs: &[Enqueue]) -> Result<Vec<Enqueued>, Fault> {
        let mut connection = self.connections.take().await?;
        let begun = Instant::now();
        let enqueued = self
            .queue
            .enqueue_on(&mut connection, jobs, self.key_ttl)
            .await;
        let enqueued = enqueued.map_err(|error| self.failed(&error, begun))?;
        self.connections.put(connection);
        self.committed(jobs.len(), begun);
        Ok(enqueued)
    }

    /// As [`Store::insert_once`], all or none; `None` when a key is in use.
    async fn insert_all(&self, jobs: &[Enqueue]) -> Result<Option<Vec<JobId>>, Fault> {
        let mut connection = self.connections.take().await?;
        let begun = Instant::now();
        let stored = self
            .queue
            .enqueue_all_on(&mut connection, jobs, self.key_ttl)
            .await;
        let stored = stored.map_err(|error| self.failed(&error, begun))?;
        self.connections.put(connection);
        self.committed(stored.as_ref().map_or(0, Vec::len), begun);
        Ok(stored)
    }

    /// Finds out by whom taken keys were taken, and stores jobs whose keys have become free.
    async fn fates_of(&self, jobs: &[Enqueue], enqueued: Vec<Enqueued>) -> Vec<Fate> {
        let mut fates: Vec<Option<Fate>> = enqueued.into_iter().map(stored).collect();
        for _ in 0..KEY_ROUNDS_MAX {
            let open: Vec<usize> = (0..jobs.len()).filter(|at| fates[*at].is_none()).collect();
            if open.is_empty() {
                break;
            }
            let uses = match self.key_uses(open.iter().map(|at| &jobs[*at])).await {
                Ok(uses) => uses,
                Err(fault) => {
                    for at in open {
                        fates[at] = Some(Fate::Failed(fault));
                    }
                    break;
                }
            };
            let mut free = Vec::new();
            for at in open {
                fates[at] = known(&jobs[at], &uses);
                if fates[at].is_none() {
                    free.push(at);
                }
            }
            if !free.is_empty() {
                let again: Vec<Enqueue> = free.iter().map(|at| jobs[*at].clone()).collect();
                match self.insert(&again).await {
                    Ok(enqueued) => {
                        for (at, enqueued) in free.into_iter().zip(enqueued) {
                            fates[at] = stored(enqueued);
                        }
                    }
                    Err(fault) => {
                        for at in free {
                            fates[at] = Some(Fate::Failed(fault));
                        }
                    }
                }
            }
        }
        let unclear = || Fate::Failed(Fault::Conflict);
        fates
            .into_iter()
            .map(|fate| fate.unwrap_or_else(unclear))
            .collect()
    }

    /// Stores a batch with keys: what is new, all of it, or nothing.
    async fn store_whole(&self, jobs: &[Enqueue]) -> Vec<Fate> {
        let all_failed = |fault| jobs.iter().map(|_| Fate::Failed(fault)).collect();
        for _ in 0..KEY_ROUNDS_MAX {
            let uses = match self.key_uses(jobs.iter()).await {
                Ok(uses) => uses,
                Err(fault) => return all_failed(fault),
            };
            let fates: Vec<Option<Fate>> = jobs.iter().map(|job| known(job, &uses)).collect();
            let is_reused = |fate: &Option<Fate>| matches!(fate, Some(Fate::KeyReused));
            let new: Vec<Enqueue> = jobs
                .iter()
                .zip(&fates)
                .filter(|(_, fate)| fate.is_none())
                .map(|(job, _)| job.clone())
                .collect();
            let keep = |fate: Option<Fate>| fate.unwrap_or(Fate::Failed(Fault::Conflict));
            if new.is_empty() || fates.iter().any(is_reused) {
                return fates.into_iter().map(keep).collect();
            }
            match self.insert_all(&new).await {
                Ok(Some(ids)) => {
                    let mut ids = ids.into_iter().map(Fate::Stored);
                    let fates = fates.into_iter().map(|fate| fate.or_else(|| ids.next()));
                    return fates.map(keep).collect();
                }
                // A key was taken meanwhile: look again.
                Ok(None) => {}
                Err(fault) => return all_failed(fault),
            }
        }
        all_failed(Fault::Conflict)
    }

    async fn key_uses(
        &self,
        jobs: impl Iterator<Item = &Enqueue>,
    ) -> Result<HashMap<String, KeyUse>, Fault> {
        let keys: Vec<&str> = jobs
            .filter_map(|job| job.job.idempotency.as_ref())
            .map(|used| used.key.as_str())
            .collect();
        let uses = self.queue.key_uses(&keys).await;
        let uses = uses.map_err(|error| self.db.observe(&error))?;
        Ok(uses
            .into_iter()
            .map(|used| (used.key.clone(), used))
            .collect())
    }

    fn committed(&self, jobs: usize, begun: Instant) {
        self.db.seen();
        self.metrics.committed.record(begun.elapsed());
        #[expect(
            clippy::cast_precision_loss,
            reason = "a statement has at most 1000 jobs"
        )]
        self.metrics.group_jobs.record(jobs as f64);
    }

    fn failed(&self, error: &sqlx::Error, begun: Instant) -> Fault {
        let fault = self.db.observe(error);
        GROUP_COMMIT_DURATION_SECONDS
            .histogram(&[fault.as_str()])
            .record(begun.elapsed());
        if !fault.may_pass_later() {
            // The message may quote a value; the code never does.
            let sqlstate = error.as_database_error().and_then(|error| error.code());
            let sqlstate = sqlstate.as_deref().unwrap_or("none");
            if let Some(failures) = self.failures.due() {
                error!(
                    fault = fault.as_str(),
                    sqlstate, failures, "jobs cannot be stored"
                );
            }
        }
        fault
    }

    /// Counts what was stored and wakes the workers for what is due.
    fn note(&self, jobs: &[Enqueue], fates: &[Fate]) {
        let mut due = Vec::new();
        let (mut primary, mut degraded, mut duplicates) = (0, 0, 0);
        for (job, fate) in jobs.iter().zip(fates) {
            match fate {
                Fate::Stored(_) => {
                    match job.tier.queue() {
                        QueueName::Primary => primary += 1,
                        QueueName::Degraded => degraded += 1,
                    }
                    match job.job.due {
                        Due::Now | Due::At(_) => due.push((job.tier.queue(), job.job.target.id())),
                        Due::After(_) => {}
                    }
                }
                Fate::Known(_) => duplicates += 1,
                Fate::KeyReused | Fate::Failed(_) => {}
            }
        }
        self.metrics.primary.increment(primary);
        self.metrics.degraded.increment(degraded);
        self.metrics.duplicates.increment(duplicates);
        self.waker.wake(due);
    }
}

/// Whether the statement may be repeated at once: it has changed nothing, and what was in the way
/// is gone or another connection is free of it.
fn may_repeat(fault: Fault) -> bool {
    match fault {
        Fault::Conflict | Fault::StaleStatement | Fault::Unreachable => true,
        Fault::OutcomeUnknown
        | Fault::NotWritable
        | Fault::Overloaded
        | Fault::Cancelled
        | Fault::Refused
        | Fault::Permanent => false,
    }
}

/// Whether one of the jobs may be what Postgres refuses.
fn is_about_data(fault: Fault) -> bool {
    match fault {
        Fault::Refused => true,
        Fault::Permanent
        | Fault::Unreachable
        | Fault::OutcomeUnknown
        | Fault::NotWritable
        | Fault::Overloaded
        | Fault::Conflict
        | Fault::Cancelled
        | Fault::StaleStatement => false,
    }
}
