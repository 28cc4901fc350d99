//! Stats: measures queues and targets for `/metrics`, in place of a query at each scrape.
//!
//! Only the leader measures, so that sums over janitors are right, and what it shows goes away
//! with its lead. Large tables are sampled (see [`hook_common::queue::Sample`]), and large buckets
//! that get no new jobs are measured rarely.

use std::{collections::HashMap, sync::Arc, time::Duration};

use anyhow::Context as _;
use chrono::{DateTime, Utc};
use hook_common::{
    job::{Outcome, QueueName, Status, Tier},
    metrics::{
        janitor::{
            BUCKETS_IN_USE, DB_SIZE_BYTES, DB_TABLE_BYTES, DEAD_ROWS, OLDEST_FINISHED_AGE_SECONDS,
            OLDEST_TRANSACTION_AGE_SECONDS, QUEUE_JOBS, QUEUE_OLDEST_DUE_AGE_SECONDS,
            TARGET_ATTEMPT_DURATION_SECONDS_TOTAL, TARGET_ATTEMPTS_TOTAL, TARGET_METRICS_LIMIT,
            TARGET_OUTCOMES_TOTAL, TARGET_PENALTY, TARGET_WAITING_JOBS,
        },
        replaced::{self, Series},
    },
    queue::{self, AttemptCounts, BucketUse, FinishedJobs, Queue, Sample, TargetGauge},
    target::TargetId,
};
use tokio::{sync::Mutex, time::Instant};

use crate::{leader::Leadership, totals::Totals};

/// The name of what is published.
pub(crate) const SET: &str = "janitor";

/// Pages of the waiting jobs that are read; 64 MiB, or about 700,000 jobs.
const WAITING_PAGES_MAX: i64 = 8192;

/// Pages of each bucket's finished jobs that are read.
const FINISHED_PAGES_MAX: i64 = 2048;

/// A closed bucket larger than this is not measured each time.
const SMALL_PAGES: i64 = 256;

/// How long the numbers of such a bucket are taken for current.
const CLOSED_FOR: Duration = Duration::from_secs(600);

/// Heads that are looked at for the oldest job, where not all jobs are read.
const HEADS_MAX: i32 = 20_000;

/// The label of what is summed up.
const OTHER: &str = "other";

/// Measures queues and targets.
#[derive(Debug)]
pub struct Stats {
    queue: Queue,
    leadership: Arc<Leadership>,
    targets_max: usize,
    stale_after: Duration,
    closed: Mutex<HashMap<i16, Measured>>,
    totals: Mutex<Totals>,
}

/// Numbers of a closed bucket.
#[derive(Debug)]
struct Measured {
    opened_at: Option<DateTime<Utc>>,
    at: Instant,
    jobs: Vec<FinishedJobs>,
}

/// What one run found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What `/metrics` shows now; empty if this janitor does not lead.
    pub series: Vec<Series>,
}

impl Stats {
    /// Shows up to `targets_max` targets by name. `penalty_refresh` is how often workers confirm
    /// penalties.
    #[must_use]
    pub fn new(
        queue: Queue,
        leadership: Arc<Leadership>,
        targets_max: usize,
        penalty_refresh: Duration,
    ) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "it is at most ten thousand")]
        TARGET_METRICS_LIMIT.gauge(&[]).set(targets_max as f64);
        Self {
            queue,
            leadership,
            targets_max,
            stale_after: penalty_refresh * queue::STALE_REFRESHES,
            closed: Mutex::default(),
            totals: Mutex::default(),
        }
    }

    /// Measures everything and shows it in place of what was shown before.
    ///
    /// # Errors
    /// When a statement failed; what was shown before stays.
    pub async fn run_once(&self) -> anyhow::Result<Report> {
        if !self.leadership.leads() {
            return Ok(self.show_nothing().await);
        }
        let pages = self.queue.ready_pages().await;
        let pages = pages.context("measuring the table of waiting jobs")?;
        let sample = Sample::of(pages, WAITING_PAGES_MAX);
        let mut series = Vec::new();
        self.measure_queues(sample, &mut series).await?;
        self.measure_targets(sample, &mut series).await?;
        self.measure_database(&mut series).await?;
        // The lead may have been lost meanwhile, and somebody else may show the same.
        if !self.leadership.leads() {
            return Ok(self.show_nothing().await);
        }
        replaced::publish(SET, &series);
        Ok(Report { series })
    }

    /// The next time that this janitor leads, its counters begin anew.
    async fn show_nothing(&self) -> Report {
        self.totals.lock().await.forget();
        replaced::withdraw(SET);
        Report::default()
    }

    async fn measure_queues(&self, sample: Sample, series: &mut Vec<Series>) -> anyhow::Result<()> {
        let mut jobs: HashMap<(QueueName, Status), i64> = HashMap::new();
        let mut oldest_ms: HashMap<QueueName, i64> = HashMap::new();
        let mut count = |tier, status, number| {
            if let Some(tier) = Tier::from_code(tier) {
                *jobs.entry((tier.queue(), status)).or_default() += number;
            }
        };
        let mut due = |tier, age_ms: i64| {
            if let Some(tier) = Tier::from_code(tier) {
                let oldest = oldest_ms.entry(tier.queue()).or_default();
                *oldest = age_ms.max(*oldest);
            }
        };
        let waiting = self.queue.count_waiting(sample).await;
        for row in waiting.context("counting waiting jobs")? {
            count(row.tier, Status::Available, row.jobs);
            due(row.tier, row.oldest_due_ms.unwrap_or(0));
        }
        if !sample.is_exact() {
            let oldest = self.queue.oldest_due(HEADS_MAX).await;
            for (tier, age_ms) in oldest.context("looking for the oldest job that is due")? {
                due(tier, age_ms);
            }
        }
        let running = self.queue.count_running().await;
        for (tier, number) in running.context("counting running jobs")? {
            count(tier, Status::Running, number);
        }
        let buckets = self.queue.buckets().await;
        let buckets = buckets.context("listing the buckets")?;
        for row in self.finished_jobs(&buckets).await? {
            if let Some(status) = Status::from_code(row.status) {
                count(row.tier, status, row.jobs);
            }
        }

        for queue in QueueName::ALL {
            let name = queue.as_str();
            for status in Status::ALL {
                let number = jobs.get(&(*queue, *status)).copied().unwrap_or(0);
                let labels = [name, status.as_str()];
                series.push(Series::new(&QUEUE_JOBS, &labels, float(number)));
            }
            let age = oldest_ms.get(queue).copied().unwrap_or(0);
            let age = Series::new(&QUEUE_OLDEST_DUE_AGE_SECONDS, &[name], seconds(age));
            series.push(age);
        }
        let ring = buckets.iter().filter(|bucket| bucket.bucket >= 0).count();
        let ring = i64::try_from(ring).unwrap_or(i64::MAX);
        series.push(Series::new(&BUCKETS_IN_USE, &[], float(ring)));
        Ok(())
    }

    /// The finished jobs of all buckets, with one row or more for each.
    async fn finished_jobs(&self, buckets: &[BucketUse]) -> anyhow::Result<Vec<FinishedJobs>> {
        let mut all = Vec::new();
        let mut closed = self.closed.lock().await;
        closed.retain(|bucket, measured| {
            let same = |b: &BucketUse| b.bucket == *bucket && b.opened_at == measured.opened_at;
            measured.at.elapsed() < CLOSED_FOR && buckets.iter().any(same)
        });
        for bucket in buckets {
            if let Some(measured) = closed.get(&bucket.bucket) {
                all.extend_from_slice(&measured.jobs);
                continue;
            }
            let sample = Sample::of(bucket.finished_pages, FINISHED_PAGES_MAX);
            let jobs = self.queue.count_finished(bucket.bucket, sample).await;
            let jobs = jobs.context("counting finished jobs")?;
            all.extend_from_slice(&jobs);
            if bucket.closed && bucket.finished_pages > SMALL_PAGES {
                let measured = Measured {
                    opened_at: bucket.opened_at,
                    at: Instant::now(),
                    jobs,
                };
                closed.insert(bucket.bucket, measured);
            }
        }
        Ok(all)
    }

    async fn measure_targets(
        &self,
        sample: Sample,
        series: &mut Vec<Series>,
    ) -> anyhow::Result<()> {
        let worst = self
            .queue
            .worst_targets(sample, self.stale_after, self.targets_max, OTHER);
        let mut worst = worst.await.context("looking for the worst targets")?;
        if worst.iter().all(|target| target.name.is_some()) {
            worst.push(TargetGauge {
                target_id: None,
                name: None,
                waiting: 0,
                penalty: 0,
            });
        }
        for target in &worst {
            let name = target.name.as_deref().unwrap_or(OTHER);
            let waiting = Series::new(&TARGET_WAITING_JOBS, &[name], float(target.waiting));
            let penalty = Series::new(&TARGET_PENALTY, &[name], f64::from(target.penalty));
            series.extend([waiting, penalty]);
        }
        self.count_attempts(&worst, series).await
    }

    async fn count_attempts(
        &self,
        worst: &[TargetGauge],
        series: &mut Vec<Series>,
    ) -> anyhow::Result<()> {
        let ids = worst.iter().filter_map(|target| target.target_id);
        let in_view: Vec<TargetId> = ids.map(TargetId).collect();
        let read = self.queue.attempt_totals(&in_view).await;
        let read = read.context("reading the totals of attempts")?;
        let shown = self.totals.lock().await.show(&in_view, &read);
        for target in worst {
            let id = target.target_id.map(TargetId);
            let counts = id.map_or(Some(&shown.other), |id| shown.targets.get(&id));
            let name = target.name.as_deref().unwrap_or(OTHER);
            series.extend(
                counts
                    .into_iter()
                    .flat_map(|counts| attempts(name, *counts)),
            );
        }
        Ok(())
    }

    async fn measure_database(&self, series: &mut Vec<Series>) -> anyhow::Result<()> {
        let vitals = self.queue.vitals().await;
        let vitals = vitals.context("measuring the database")?;
        let age = seconds(vitals.oldest_transaction_ms);
        series.push(Series::new(&OLDEST_TRANSACTION_AGE_SECONDS, &[], age));
        let age = seconds(vitals.oldest_finished_ms);
        series.push(Series::new(&OLDEST_FINISHED_AGE_SECONDS, &[], age));
        let dead = self.queue.dead_rows().await;
        for row in dead.context("asking for dead rows")? {
            series.push(Series::new(&DEAD_ROWS, &[&row.table_name], float(row.dead)));
        }
        let sizes = self.queue.table_sizes().await;
        for row in sizes.context("asking for sizes")? {
            let bytes = float(row.bytes);
            series.push(match &row.table_name {
                Some(table) => Series::new(&DB_TABLE_BYTES, &[table], bytes),
                None => Series::new(&DB_SIZE_BYTES, &[], bytes),
            });
        }
        Ok(())
    }
}

/// The counters of one target.
fn attempts(name: &str, counts: AttemptCounts) -> impl Iterator<Item = Series> {
    let all = Series::new(&TARGET_ATTEMPTS_TOTAL, &[name], float(counts.attempts()));
    let took = seconds(counts.duration_ms);
    let took = Series::new(&TARGET_ATTEMPT_DURATION_SECONDS_TOTAL, &[name], took);
    let outcomes = Outcome::ALL.iter().map(move |outcome| {
        let number = match outcome {
            Outcome::Delivered => counts.delivered,
            Outcome::Retryable => counts.retryable,
            Outcome::Permanent => counts.permanent,
        };
        (outcome.as_str(), number)
    });
    let outcomes: Vec<Series> = outcomes
        .map(|(word, number)| Series::new(&TARGET_OUTCOMES_TOTAL, &[name, word], float(number)))
        .collect();
    [all, took].into_iter().chain(outcomes)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a gauge of more than 2^52 jobs may be off by a few"
)]
fn float(number: i64) -> f64 {
    number as f64
}

/// Seconds of a duration that Postgres measured; one that lies in the future counts as none.
fn seconds(ms: i64) -> f64 {
    float(ms.max(0)) / 1000.0
}
