//! Adds the rows of targets whose jobs were stored by SQL, a bounded number at a time.

use std::sync::Arc;

use anyhow::Context as _;
use hook_common::{job::Tier, queue::Queue, target::TargetId};
use tokio::sync::Mutex;
use tracing::debug;

use crate::leader::Leadership;

/// Heads that one statement looks at.
const BATCH: i32 = 500;

/// Statements of one run.
const BATCHES_MAX: usize = 20;

/// Goes round all targets with waiting jobs.
#[derive(Debug)]
pub struct Targets {
    queue: Queue,
    leadership: Arc<Leadership>,
    after: Mutex<Option<(Tier, TargetId)>>,
}

/// What one run did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// Rows that were missing.
    pub added: i64,
}

impl Targets {
    /// Begins at the first target.
    #[must_use]
    pub fn new(queue: Queue, leadership: Arc<Leadership>) -> Self {
        Self {
            queue,
            leadership,
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
        if report.added > 0 {
            debug!(added = report.added, "targets added");
        }
        Ok(report)
    }
}
