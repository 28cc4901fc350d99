//! Reap: gives back jobs whose worker did not report in time, and ends jobs whose time to live is
//! over.
//!
//! Every janitor does this, whether it leads or not: rows that another one holds are skipped, and
//! jobs of a crashed worker should not wait for a change of leaders. A row that Postgres refuses to
//! end does not keep the others from being ended: it is found by halving and left alone for a while.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use hook_common::{
    db::Fault,
    job::JobId,
    metrics::janitor::{JOBS_EXPIRED_TOTAL, LEASES_REAPED_TOTAL},
    queue::{self, Queue, ReapLeases, Reaped},
};
use tokio::time::Instant;
use tracing::{error, info};

use crate::BUDGET;

/// Rows of one statement.
const BATCH: usize = 500;

/// A lease that Postgres refuses to end is left alone for this long.
const REFUSED_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Leases left alone at most; past this, all are tried again.
const REFUSED_MAX: usize = 1_000;

/// Ends expired leases and expired jobs.
#[derive(Clone, Debug)]
pub struct Reap {
    queue: Queue,
    max_attempts: i16,
    refused: Arc<Mutex<Vec<(JobId, Instant)>>>,
}

/// What one run did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// Jobs that wait again.
    pub returned: i64,
    /// Jobs that ended failed, their last attempt lost.
    pub failed: i64,
    /// Jobs that ended failed because their time to live was over.
    pub expired: i64,
}

impl Reap {
    /// `max_attempts` is for jobs whose producer gave none.
    #[must_use]
    pub fn new(queue: Queue, max_attempts: i16) -> Self {
        Self {
            queue,
            max_attempts,
            refused: Arc::default(),
        }
    }

    /// Reaps in batches until nothing is left or the time for one run is up.
    ///
    /// # Errors
    /// When a statement failed; what the ones before did stays done.
    pub async fn run_once(&self) -> anyhow::Result<Report> {
        let begun = Instant::now();
        let mut report = Report::default();
        loop {
            let batch = self.reap_leases().await;
            let batch = batch.context("reaping expired leases")?;
            report.returned += batch.returned;
            report.failed += batch.failed;
            let reaped = batch.returned + batch.failed;
            LEASES_REAPED_TOTAL.counter(&[]).increment(count(reaped));
            if !is_full(reaped) || begun.elapsed() >= BUDGET {
                break;
            }
        }
        loop {
            let batch = self.queue.reap_expired(BATCH).await;
            let batch = batch.context("ending jobs whose time to live is over")?;
            report.expired += batch.failed;
            JOBS_EXPIRED_TOTAL
                .counter(&[])
                .increment(count(batch.failed));
            if !is_full(batch.failed) || begun.elapsed() >= BUDGET {
                break;
            }
        }
        if report != Report::default() {
            info!(
                returned = report.returned,
                failed = report.failed,
                expired = report.expired,
                "reaped"
            );
        }
        Ok(report)
    }

    /// Gives back the jobs of workers that are dead, without waiting for the end of their leases.
    /// A job that Postgres refuses to give back is left to [`Reap::run_once`].
    ///
    /// # Errors
    /// When a statement failed; what the ones before did stays done.
    pub async fn orphans_once(&self) -> anyhow::Result<Report> {
        let begun = Instant::now();
        let mut report = Report::default();
        let dead = self.queue.dead_workers().await;
        let dead = dead.context("looking for dead workers")?;
        while !dead.is_empty() && begun.elapsed() < BUDGET {
            let except = self.left_alone();
            let orphans = ReapLeases {
                max_attempts: self.max_attempts,
                dead_workers: &dead,
                except: &except,
                ..ReapLeases::default()
            };
            let batch = self.queue.reap_leases(BATCH, &orphans).await;
            let batch = batch.context("giving back the jobs of dead workers")?;
            report.returned += batch.returned;
            report.failed += batch.failed;
            let reaped = batch.returned + batch.failed;
            LEASES_REAPED_TOTAL.counter(&[]).increment(count(reaped));
            if !is_full(reaped) {
                let forgotten = self.queue.forget_workers(&dead).await;
                forgotten.context("forgetting dead workers")?;
                break;
            }
        }
        if report != Report::default() {
            let names: Vec<&str> = dead.iter().map(|worker| worker.name.as_str()).collect();
            info!(
                workers = names.join(","),
                returned = report.returned,
                failed = report.failed,
                "workers are dead; their jobs were given back"
            );
        }
        Ok(report)
    }

    /// Reaps one batch of leases, around those that Postgres refuses to end.
    async fn reap_leases(&self) -> queue::Result<Reaped> {
        let except = self.left_alone();
        let all = ReapLeases {
            max_attempts: self.max_attempts,
            except: &except,
            ..ReapLeases::default()
        };
        match self.queue.reap_leases(BATCH, &all).await {
            Err(error) if !Fault::of(&error).may_pass_later() => {
                let jobs = self.queue.over_leases(BATCH, &except).await?;
                self.reap_halving(jobs).await
            }
            answer => answer,
        }
    }

    /// Reaps these jobs' leases; what is refused alone is noted.
    async fn reap_halving(&self, jobs: Vec<JobId>) -> queue::Result<Reaped> {
        let mut reaped = Reaped::default();
        let mut stack = vec![jobs];
        while let Some(mut jobs) = stack.pop() {
            let these = ReapLeases {
                max_attempts: self.max_attempts,
                only: Some(&jobs),
                ..ReapLeases::default()
            };
            match self.queue.reap_leases(BATCH, &these).await {
                Ok(batch) => {
                    reaped.returned += batch.returned;
                    reaped.failed += batch.failed;
                }
                Err(error) if Fault::of(&error).may_pass_later() => return Err(error),
                Err(_) if jobs.len() > 1 => {
                    let half = jobs.split_off(jobs.len() / 2);
                    stack.extend([half, jobs]);
                }
                Err(error) => {
                    let mut refused = self.refused();
                    for job in jobs {
                        error!(job.id = %job, error = %error, "Postgres refuses to end the lease of this job; it is left alone for a minute");
                        refused.push((job, Instant::now()));
                    }
                }
            }
        }
        Ok(reaped)
    }

    /// The jobs that were refused lately.
    fn left_alone(&self) -> Vec<JobId> {
        let mut refused = self.refused();
        if refused.len() > REFUSED_MAX {
            refused.clear();
        }
        refused.retain(|(_, since)| since.elapsed() < REFUSED_AGAIN_AFTER);
        refused.iter().map(|(job, _)| *job).collect()
    }

    fn refused(&self) -> std::sync::MutexGuard<'_, Vec<(JobId, Instant)>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_full(rows: i64) -> bool {
    usize::try_from(rows).is_ok_and(|rows| rows >= BATCH)
}

fn count(rows: i64) -> u64 {
    u64::try_from(rows).expect("a statement does not change fewer than no rows")
}
