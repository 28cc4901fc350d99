//! Adds the rows of targets whose jobs were stored by SQL, and clears what workers said about
//! targets and no longer confirm; a bounded number at a time.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use hook_common::{job::Tier, queue::Queue, target::TargetId};
use tokio::sync::Mutex;
use tracing::debug;

use crate::leader::Leadership;

/// Heads that one statement looks at.
const BATCH: i32 = 500;

/// Findings that one run clears.
const FORGET_MAX: i64 = 1_000;

/// Statements of one run.
const BATCHES_MAX: usize = 20;

/// Goes round all targets with waiting jobs.
#[derive(Debug)]
pub struct Targets {
    queue: Queue,
    leadership: Arc<Leadership>,
    stale_after: Duration,
    after: Mutex<Option<(Tier, TargetId)>>,
}

/// What one run did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// Rows that were missing.
    pub added: i64,
    /// Rows with findings that no worker confirms any more.
    pub forgotten: u64,
}

impl Targets {
    /// Begins at the first target. A finding that was not confirmed for `stale_after` is cleared.
    #[must_use]
    pub fn new(queue: Queue, leadership: Arc<Leadership>, stale_after: Duration) -> Self {
        Self {
            queue,
            leadership,
            stale_after,
            after: Mutex::new(None),
        }
    }

    /// Goes on where the run before stopped, to the end of the round if that is near.
    ///
    /// # Errors
    /// When a statement failed; the next run goes on from there.
    pub async fn run_once(&self) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let mut after = self.after.lock().await;
        for _ in 0..BATCHES_MAX {
            if !self.leadership.leads() {
                break;
            }
            let batch = self.queue.add_missing_targets(*after, BATCH).await;
            let batch = batch.context("adding missing targets")?;
            report.added += batch.added;
            *after = batch.next;
            if after.is_none() {
                break;
            }
        }
        if self.leadership.leads() {
            let forgotten = self.queue.forget_findings(self.stale_after, FORGET_MAX);
            report.forgotten = forgotten.await.context("clearing old findings")?;
        }
        if report != Report::default() {
            debug!(
                added = report.added,
                forgotten = report.forgotten,
                "targets brought up to date"
            );
        }
        Ok(report)
    }
}
