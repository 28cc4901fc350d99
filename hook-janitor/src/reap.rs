//! Reap: gives back jobs whose worker did not report in time, and ends jobs whose time to live is
//! over.
//!
//! Every janitor does this, whether it leads or not: rows that another one holds are skipped, and
//! jobs of a crashed worker should not wait for a change of leaders.

use anyhow::Context as _;
use hook_common::{
    metrics::janitor::{JOBS_EXPIRED_TOTAL, LEASES_REAPED_TOTAL},
    queue::Queue,
};
use tokio::time::Instant;
use tracing::info;

use crate::BUDGET;

/// Rows of one statement.
const BATCH: usize = 500;

/// Ends expired leases and expired jobs.
#[derive(Clone, Debug)]
pub struct Reap {
    queue: Queue,
    max_attempts: i16,
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
            let batch = self.queue.reap_leases(BATCH, self.max_attempts, &[]).await;
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
}

fn is_full(rows: i64) -> bool {
    usize::try_from(rows).is_ok_and(|rows| rows >= BATCH)
}

fn count(rows: i64) -> u64 {
    u64::try_from(rows).expect("a statement does not change fewer than no rows")
}
