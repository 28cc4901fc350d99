//! Tally: counts what attempts came to into hours and totals per target, and forgets old hours, old
//! entries of the audit and old replays.
//!
//! Only the leader counts; should two do so for a moment, each attempt is still counted once.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use hook_common::{metrics::janitor::HISTORY_ROWS_PURGED_TOTAL, queue::Queue};
use tokio::time::Instant;

use crate::{BUDGET, leader::Leadership};

/// Tallies of one statement; each holds as many attempts as a worker ended at one stroke.
const BATCH: i64 = 1000;

/// Hours, entries of the audit, or replays that one statement removes.
const PURGED_MAX: i64 = 1000;

/// Counts tallies.
#[derive(Debug)]
pub struct Tally {
    queue: Queue,
    leadership: Arc<Leadership>,
    retention: Duration,
}

/// What one run did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// Tallies that were counted.
    pub counted: i64,
    /// Hours that were removed.
    pub purged: i64,
    /// Entries of the audit that were removed.
    pub entries: u64,
    /// Replays that were removed.
    pub replays: u64,
}

impl Tally {
    /// Keeps hours, the audit and replays for `retention`.
    #[must_use]
    pub fn new(queue: Queue, leadership: Arc<Leadership>, retention: Duration) -> Self {
        Self {
            queue,
            leadership,
            retention,
        }
    }

    /// Counts in batches until nothing is left or the time for one run is up.
    ///
    /// # Errors
    /// When a statement failed; what the ones before did stays done.
    pub async fn run_once(&self) -> anyhow::Result<Report> {
        let until = Instant::now() + BUDGET;
        let mut report = Report::default();
        while self.may_go_on(until) {
            let counted = self.queue.count_tallies(BATCH).await;
            let counted = counted.context("counting what attempts came to")?;
            report.counted += counted;
            if counted < BATCH {
                break;
            }
        }
        while self.may_go_on(until) {
            let purged = self.queue.purge_history(self.retention, PURGED_MAX).await;
            let purged = purged.context("removing old hours of targets")?;
            report.purged += purged;
            HISTORY_ROWS_PURGED_TOTAL
                .counter(&[])
                .increment(purged.unsigned_abs());
            if purged < PURGED_MAX {
                break;
            }
        }
        while self.may_go_on(until) {
            let purged = self.queue.purge_audit(self.retention, PURGED_MAX).await;
            let purged = purged.context("removing old entries of the audit")?;
            report.entries += purged;
            if purged < PURGED_MAX.unsigned_abs() {
                break;
            }
        }
        if self.may_go_on(until) {
            let purged = self.queue.purge_replays(self.retention, PURGED_MAX).await;
            report.replays = purged.context("removing old replays")?;
        }
        Ok(report)
    }

    fn may_go_on(&self, until: Instant) -> bool {
        Instant::now() < until && self.leadership.leads()
    }
}
