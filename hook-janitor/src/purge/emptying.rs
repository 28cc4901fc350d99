//! Emptying one bucket, in small steps that survive from one run to the next.
//!
//! 1. Waiting jobs of the bucket are moved to the kept bucket.
//! 2. Once nobody has a transaction open that stored a job in it, and no job of it waits or runs,
//!    its finished jobs can only become fewer.
//! 3. Finished jobs that are inside their retention are moved too.
//! 4. Its tables are truncated, after a last look, under a lock, that still no job of it is live.
//!
//! Only an enqueue that read the bucket's number before it was closed, and hung for a whole
//! retention since, can still add to it after 2. Its job is not lost: 4 finds it. Should it also
//! finish before 4, only its record goes early.
//!
//! A step that has to wait says so, and is tried again at the next run. Reading all waiting jobs
//! over and over, for the sake of one that is leased, would cost more than it brings: a new round
//! begins only after ten times the duration of the last.

use std::{ops::Range, time::Duration};

use anyhow::Context as _;
use hook_common::{
    metrics::janitor::{BUCKETS_EMPTIED_TOTAL, JOBS_KEPT_TOTAL, JOBS_PURGED_TOTAL},
    queue::{ClosedBucket, Patience, Queue, Retention, Truncated},
};
use tokio::time::Instant;

use super::Report;

/// Pages that one statement reads.
const PAGES: i64 = 512;

/// Jobs that one statement moves, with their bodies.
const BATCH: i64 = 200;

/// Between two requests for the tables that traffic has to queue behind.
const PATIENT_EVERY: Duration = Duration::from_secs(10);

/// The bucket that is being emptied, and how far that has come.
#[derive(Debug)]
pub(super) struct Emptying {
    queue: Queue,
    retention: Retention,
    progress: Option<Progress>,
    /// When traffic was last made to queue.
    patient_at: Option<Instant>,
}

/// Whether there is more to do right now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Pace {
    /// The next step can follow at once.
    Go,
    /// Nothing to do, or somebody has to get out of the way first.
    Wait,
}

#[derive(Debug)]
struct Progress {
    closed: ClosedBucket,
    step: Step,
    /// Time spent on this round; waiting for others does not count.
    worked: Duration,
    /// The round may begin only then.
    not_before: Instant,
    /// Finished jobs that will go with the bucket.
    expendable: i64,
}

#[derive(Clone, Debug)]
enum Step {
    /// Moves waiting jobs that lie in these pages.
    MoveWaiting(Range<i64>),
    /// Makes sure that no job of the bucket is live.
    Settle,
    /// Moves finished jobs that lie in these pages.
    MoveFinished(Range<i64>),
    Truncate,
}

impl Emptying {
    pub(super) fn new(queue: Queue, retention: Retention) -> Self {
        Self {
            queue,
            retention,
            progress: None,
            patient_at: None,
        }
    }

    /// Begins anew next time: another janitor may have gone on meanwhile.
    pub(super) fn forget(&mut self) {
        self.progress = None;
    }

    /// Takes one step, which is at most one statement over a bounded number of rows (but for the
    /// two looks for live jobs, which read all waiting ones).
    pub(super) async fn step(&mut self, report: &mut Report) -> anyhow::Result<Pace> {
        let Some(mut progress) = self.progress.take() else {
            return self.begin().await;
        };
        if let Step::MoveWaiting(_) = progress.step
            && Instant::now() < progress.not_before
        {
            self.progress = Some(progress);
            return Ok(Pace::Wait);
        }
        let begun = Instant::now();
        let pace = self.advance(&mut progress, report).await?;
        if pace == Some(Pace::Go) {
            progress.worked += begun.elapsed();
        }
        self.progress = pace.map(|_| progress);
        Ok(pace.unwrap_or(Pace::Go))
    }

    async fn begin(&mut self) -> anyhow::Result<Pace> {
        let closed = self.queue.bucket_to_empty(self.retention).await;
        let Some(closed) = closed.context("looking for a bucket to empty")? else {
            return Ok(Pace::Wait);
        };
        let pages = self.queue.ready_pages().await;
        let pages = pages.context("measuring the table of waiting jobs")?;
        self.progress = Some(Progress {
            closed,
            step: Step::MoveWaiting(0..pages),
            worked: Duration::ZERO,
            not_before: Instant::now(),
            expendable: 0,
        });
        Ok(Pace::Go)
    }

    /// Takes the step; `None` says that this bucket is done with.
    async fn advance(
        &mut self,
        progress: &mut Progress,
        report: &mut Report,
    ) -> anyhow::Result<Option<Pace>> {
        let bucket = progress.closed.bucket;
        match progress.step.clone() {
            Step::MoveWaiting(pages) if pages.is_empty() => progress.step = Step::Settle,
            Step::MoveWaiting(pages) => {
                let next = (pages.start + PAGES).min(pages.end);
                let moved = self.queue.move_waiting(bucket, pages.start..next, BATCH);
                let moved = moved.await.context("moving waiting jobs")?;
                count_kept(moved, report);
                if moved < BATCH {
                    progress.step = Step::MoveWaiting(next..pages.end);
                }
            }
            Step::Settle => return self.settle(progress).await.map(Some),
            Step::MoveFinished(pages) if pages.is_empty() => progress.step = Step::Truncate,
            Step::MoveFinished(pages) => {
                let next = (pages.start + PAGES).min(pages.end);
                let queue = &self.queue;
                let moved = queue.move_finished(bucket, pages.start..next, BATCH, self.retention);
                let moved = moved.await.context("moving finished jobs")?;
                count_kept(moved.moved, report);
                if moved.left == 0 {
                    progress.expendable += moved.expendable;
                    progress.step = Step::MoveFinished(next..pages.end);
                } else if moved.moved == 0 {
                    return Ok(Some(Pace::Wait));
                }
            }
            Step::Truncate => return self.truncate(progress, report).await,
        }
        Ok(Some(Pace::Go))
    }

    async fn settle(&self, progress: &mut Progress) -> anyhow::Result<Pace> {
        let bucket = progress.closed.bucket;
        let flushed = self.queue.flush_bucket(bucket).await;
        if !flushed.context("waiting for open transactions")? {
            return Ok(Pace::Wait);
        }
        let live = self.queue.has_live_jobs(bucket).await;
        if live.context("looking for live jobs")? {
            self.begin_again(progress).await?;
            return Ok(Pace::Wait);
        }
        let pages = self.queue.finished_pages(bucket).await;
        let pages = pages.context("measuring the table of finished jobs")?;
        progress.step = Step::MoveFinished(0..pages);
        Ok(Pace::Go)
    }

    async fn truncate(
        &mut self,
        progress: &mut Progress,
        report: &mut Report,
    ) -> anyhow::Result<Option<Pace>> {
        let patient = self
            .patient_at
            .is_none_or(|last| last.elapsed() >= PATIENT_EVERY);
        let patience = if patient {
            Patience::Queue
        } else {
            Patience::None
        };
        let truncated = self.queue.truncate_bucket(progress.closed, patience).await;
        match truncated.context("emptying a bucket")? {
            Truncated::Emptied => {
                report.emptied += 1;
                report.purged += progress.expendable;
                BUCKETS_EMPTIED_TOTAL.counter(&[]).increment(1);
                JOBS_PURGED_TOTAL
                    .counter(&[])
                    .increment(progress.expendable.unsigned_abs());
                Ok(None)
            }
            Truncated::Gone => Ok(None),
            Truncated::Live => {
                self.begin_again(progress).await?;
                Ok(Some(Pace::Wait))
            }
            Truncated::Busy => {
                if patient {
                    self.patient_at = Some(Instant::now());
                }
                Ok(Some(Pace::Wait))
            }
        }
    }

    async fn begin_again(&self, progress: &mut Progress) -> anyhow::Result<()> {
        let pages = self.queue.ready_pages().await;
        let pages = pages.context("measuring the table of waiting jobs")?;
        progress.step = Step::MoveWaiting(0..pages);
        progress.not_before = Instant::now() + progress.worked * 10;
        progress.worked = Duration::ZERO;
        progress.expendable = 0;
        Ok(())
    }
}

fn count_kept(moved: i64, report: &mut Report) {
    report.kept += moved;
    JOBS_KEPT_TOTAL.counter(&[]).increment(moved.unsigned_abs());
}
