//! Replays: goes on with those that people asked for, at the rate of each.
//!
//! Every api and every janitor does this, whether it leads or not: a batch and its progress are one
//! statement, and whoever finds a replay locked or moved on leaves it. So one that was asked for goes
//! on as long as anybody is there.

use std::time::Duration;

use anyhow::Context as _;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::{
    job::QueueName,
    queue::{Queue, Wake},
    target::TargetId,
};

/// Replays are gone on with this often; one run puts back what falls due until the next.
pub const EVERY: Duration = Duration::from_secs(1);

/// Time for one run. The statement under way when it is up ends as well.
pub const BUDGET: Duration = Duration::from_secs(20);

/// Works replays off.
#[derive(Clone, Debug)]
pub struct Replays {
    queue: Queue,
}

/// What one run did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// Steps that were made: jobs counted, or a batch of them put back.
    pub steps: u32,
    /// Replays that could not be gone on with for now.
    pub refused: u32,
}

impl Replays {
    /// Works on the replays of this queue.
    #[must_use]
    pub fn new(queue: Queue) -> Self {
        Self { queue }
    }

    /// Goes on until each replay has put back what falls due before the next run, or the time for
    /// one run is up. One that Postgres refuses to go on with does not stop the others.
    ///
    /// # Errors
    /// When nobody could be asked what there is to do; what was done stays done.
    pub async fn run_once(&self) -> anyhow::Result<Report> {
        let begun = Instant::now();
        let mut report = Report::default();
        while begun.elapsed() < BUDGET {
            let work = self.queue.replay_work(EVERY).await;
            let work = work.context("looking for replays to go on with")?;
            let mut made = 0;
            for replay in &work {
                match self.queue.replay_step(replay).await {
                    Ok(targets) => {
                        made += 1;
                        self.wake(targets).await;
                    }
                    Err(error) => {
                        report.refused += 1;
                        warn!(replay.id = %replay.id(), %error, "a replay could not be gone on with");
                    }
                }
            }
            report.steps += made;
            if made == 0 {
                break;
            }
        }
        Ok(report)
    }

    /// Tells workers; those that are not reached find the jobs when they sweep.
    async fn wake(&self, targets: Vec<TargetId>) {
        if targets.is_empty() {
            return;
        }
        let heads = targets.into_iter().map(|id| (QueueName::Degraded, id));
        let wake = Wake::Heads(heads.collect());
        if let Err(error) = self.queue.notify(&wake).await {
            debug!(%error, "workers could not be notified");
        }
    }
}
