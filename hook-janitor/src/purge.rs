//! Purge: keeps the ring of buckets turning and removes what is past its retention.
//!
//! Only the leader purges; it works in short statements and looks up between them. Whatever it
//! cannot have now (rows or tables that others hold) it leaves for the next run, so it never
//! stands in a queue behind anybody.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use hook_common::{
    metrics::{
        janitor::{
            IDEMPOTENCY_KEYS_PURGED_TOTAL, JOBS_PURGED_TOTAL, LAST_PURGE_SUCCESS_TIMESTAMP_SECONDS,
        },
        unix_seconds,
    },
    queue::{Queue, Retention},
};
use tokio::{sync::Mutex, time::Instant};
use tracing::info;

use crate::{BUDGET, leader::Leadership};

mod emptying;

use emptying::{Emptying, Pace};

/// Rows of one statement that deletes.
const BATCH: i64 = 500;

/// The open bucket is closed after this share of the retention. Eight buckets hold six such
/// shares, the open one, and one that is being emptied.
const SHARES: u32 = 6;

/// No bucket is closed sooner than this, however short the retention.
const BUCKET_AGE_MIN: Duration = Duration::from_millis(200);

/// Removes jobs and keys after their time.
#[derive(Debug)]
pub struct Purge {
    queue: Queue,
    leadership: Arc<Leadership>,
    retention: Retention,
    emptying: Mutex<Emptying>,
}

/// What one run did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// True if this janitor does not lead and did nothing.
    pub skipped: bool,
    /// The bucket that was opened for new jobs.
    pub opened: Option<i16>,
    /// Buckets that were emptied at one stroke.
    pub emptied: u32,
    /// Jobs that were moved to the kept bucket.
    pub kept: i64,
    /// Jobs that were removed, one by one or with their bucket.
    pub purged: i64,
    /// Idempotency keys that were removed.
    pub keys: u64,
}

impl Purge {
    /// Purges by `retention` while `leadership` leads.
    #[must_use]
    pub fn new(queue: Queue, leadership: Arc<Leadership>, retention: Retention) -> Self {
        Self {
            emptying: Mutex::new(Emptying::new(queue.clone(), retention)),
            queue,
            leadership,
            retention,
        }
    }

    /// How old the open bucket gets.
    #[must_use]
    pub fn bucket_age(&self) -> Duration {
        (self.retention.completed / SHARES).max(BUCKET_AGE_MIN)
    }

    /// Does what is due, as far as the time for one run goes.
    ///
    /// # Errors
    /// When a statement failed; what the ones before did stays done.
    pub async fn run_once(&self) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let mut emptying = self.emptying.lock().await;
        if !self.leadership.leads() {
            emptying.forget();
            report.skipped = true;
            return Ok(report);
        }
        let until = Instant::now() + BUDGET;

        let opened = self.queue.rotate(self.bucket_age()).await;
        report.opened = opened.context("opening the next bucket")?;
        while self.may_go_on(until) {
            match emptying.step(&mut report).await? {
                Pace::Go => {}
                Pace::Wait => break,
            }
        }
        self.purge_kept(until, &mut report).await?;
        self.purge_keys(until, &mut report).await?;

        LAST_PURGE_SUCCESS_TIMESTAMP_SECONDS
            .gauge(&[])
            .set(unix_seconds());
        if report != Report::default() {
            info!(
                opened = report.opened,
                emptied = report.emptied,
                kept = report.kept,
                purged = report.purged,
                keys = report.keys,
                "purged"
            );
        }
        Ok(report)
    }

    async fn purge_kept(&self, until: Instant, report: &mut Report) -> anyhow::Result<()> {
        loop {
            let purged = self.queue.purge_kept(self.retention, BATCH).await;
            let purged = purged.context("removing old jobs from the kept bucket")?;
            report.purged += purged;
            JOBS_PURGED_TOTAL
                .counter(&[])
                .increment(purged.unsigned_abs());
            if purged < BATCH || !self.may_go_on(until) {
                return Ok(());
            }
        }
    }

    async fn purge_keys(&self, until: Instant, report: &mut Report) -> anyhow::Result<()> {
        loop {
            let purged = self.queue.purge_keys(BATCH).await;
            let purged = purged.context("removing old idempotency keys")?;
            report.keys += purged;
            IDEMPOTENCY_KEYS_PURGED_TOTAL.counter(&[]).increment(purged);
            if purged < BATCH.unsigned_abs() || !self.may_go_on(until) {
                return Ok(());
            }
        }
    }

    fn may_go_on(&self, until: Instant) -> bool {
        Instant::now() < until && self.leadership.leads()
    }
}
