//! How many jobs wait, roughly, and whether that is too many.
//!
//! A count of a large table is dear, so it is made now and then and corrected by what this process
//! stores in between. Other processes' jobs are seen with the next count: the limit may be passed
//! by what they all store within one interval.

use std::sync::atomic::{AtomicI64, Ordering};

use hook_common::{problem::Code, queue::Queue};

use crate::problem::Refusal;

/// After "the queue is full", a client should wait this long.
const FULL_PAUSE: std::time::Duration = std::time::Duration::from_secs(5);

/// The limit of waiting jobs and what is known of their number.
#[derive(Debug)]
pub(crate) struct Depth {
    /// `None` means no limit.
    waiting_max: Option<i64>,
    /// What the last count found.
    counted: AtomicI64,
    /// What this process has stored since that count began.
    added: AtomicI64,
    queue: Queue,
}

impl Depth {
    pub(crate) fn new(waiting_max: Option<usize>, queue: Queue) -> Self {
        Self {
            waiting_max: waiting_max.map(|max| i64::try_from(max).unwrap_or(i64::MAX)),
            counted: AtomicI64::new(0),
            added: AtomicI64::new(0),
            queue,
        }
    }

    /// Whether there is a limit at all.
    pub(crate) fn is_limited(&self) -> bool {
        self.waiting_max.is_some()
    }

    /// Refuses `jobs` more when they do not fit.
    pub(crate) fn refuse_full(&self, jobs: usize) -> Result<(), Refusal> {
        let Some(max) = self.waiting_max else {
            return Ok(());
        };
        let jobs = i64::try_from(jobs).unwrap_or(i64::MAX);
        let waiting = self.counted.load(Ordering::Relaxed) + self.added.load(Ordering::Relaxed);
        if waiting.saturating_add(jobs) > max {
            let detail = "as many jobs are waiting as may be";
            return Err(Refusal::later(Code::QueueFull, detail, FULL_PAUSE));
        }
        Ok(())
    }

    /// Counts jobs that were stored just now.
    pub(crate) fn add(&self, jobs: usize) {
        if self.is_limited() {
            let jobs = i64::try_from(jobs).unwrap_or(i64::MAX);
            self.added.fetch_add(jobs, Ordering::Relaxed);
        }
    }

    /// Counts the waiting jobs once; does nothing without a limit.
    ///
    /// # Errors
    /// Postgres could not be asked; the last count stays.
    pub(crate) async fn count_once(&self) -> sqlx::Result<()> {
        let Some(max) = self.waiting_max else {
            return Ok(());
        };
        // What is stored while Postgres counts may be missing from the count, so it stays added: too
        // many for one interval rather than too few.
        let before = self.added.load(Ordering::Relaxed);
        let waiting = self.queue.waiting_estimate(max.saturating_add(1)).await?;
        self.counted.store(waiting, Ordering::Relaxed);
        self.added.fetch_sub(before, Ordering::Relaxed);
        Ok(())
    }
}
