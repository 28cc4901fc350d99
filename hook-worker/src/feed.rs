//! The loop that feeds the slots: from heads to leases to attempts.
//!
//! Slots first: the loop asks the heads for no more jobs than slots are free, leases exactly
//! those, and starts an attempt for each at once, so leased jobs never wait in memory. Nothing of
//! the database is held while an attempt runs.
//!
//! One dequeue is under way at a time, and beside a large one a second for other targets: so a busy
//! target does not have the next job of a quiet one wait until Postgres has found all of its own.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use hook_common::{
    db::Fault,
    gate::Permit,
    job::QueueName,
    lifecycle::Stop,
    logging::Repeats,
    metrics::{unix_seconds, worker as metric},
    queue::{Dequeued, Head, LeaseTerm},
};
use tokio::{task::JoinSet, time::Instant};
use tracing::{debug, warn};

use crate::{
    attempt::Attempts,
    heads::{Pick, Taken},
    worker::Shared,
};

/// Longest time without a look at the heads; also how often the loop proves that it turns.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(1);

/// How soon work goes on once statements have been found in order: at each start, for one.
const LOOK_AT_STATEMENTS_EVERY: Duration = Duration::from_millis(20);

/// After a dequeue that failed, so that a database in trouble is not hammered; it doubles with each
/// further failure.
const PAUSE_AFTER_FAILURE_MIN: Duration = Duration::from_millis(250);
const PAUSE_AFTER_FAILURE_MAX: Duration = Duration::from_secs(2);

/// Leases jobs and has them attempted until `stop` drains; returns once every attempt has ended
/// and left its result with `finishes`.
pub(crate) async fn feed(shared: Arc<Shared>, attempts: Attempts, stop: Stop) {
    let heartbeat = shared
        .heartbeats
        .register("delivery", shared.config.lease() + LOOK_AT_LEAST_EVERY);
    let mut running = JoinSet::new();
    let mut dequeues = Dequeues::new(Arc::clone(&shared));
    while !stop.is_draining() {
        heartbeat.beat();
        while let Some(ended) = running.try_join_next() {
            attempts.count(&ended);
        }
        let may_begin = dequeues.may_begin();
        if may_begin {
            dequeues.begin();
        }
        let wait = dequeues.wait();
        tokio::select! {
            Some(ended) = dequeues.next() => dequeues.end(ended, &attempts, &mut running),
            () = wait_for_heads(&shared, &stop), if may_begin => {}
            () = stop.pause(wait), if !may_begin => {}
        }
    }
    drop(heartbeat);
    while let Some(ended) = dequeues.next().await {
        dequeues.end(ended, &attempts, &mut running);
    }
    while let Some(ended) = running.join_next().await {
        attempts.count(&ended);
    }
}

/// Sleeps until something changed, the next head is due, or it is time to look anyway.
async fn wait_for_heads(shared: &Shared, stop: &Stop) {
    let next_due = shared.heads().next_due();
    let pause = next_due
        .map_or(LOOK_AT_LEAST_EVERY, |due| due.saturating_sub(shared.now()))
        .clamp(Duration::from_millis(1), LOOK_AT_LEAST_EVERY);
    tokio::select! {
        () = shared.changed.notified() => {}
        () = stop.pause(pause) => {}
    }
}

/// The dequeues under way.
struct Dequeues {
    shared: Arc<Shared>,
    asked: JoinSet<Answer>,
    /// The large one has had another beside it; more would only split its successor.
    had_second: bool,
    pause: Duration,
    not_before: Instant,
    failures: Repeats,
}

/// What Postgres said to a dequeue.
struct Answer {
    picks: Vec<Pick>,
    permits: Permit,
    leased_at: Instant,
    dequeued: Result<Dequeued, Failure>,
}

impl Dequeues {
    fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            asked: JoinSet::new(),
            had_second: false,
            pause: PAUSE_AFTER_FAILURE_MIN,
            not_before: Instant::now(),
            failures: Repeats::default(),
        }
    }

    fn may_begin(&self) -> bool {
        let has_place = match self.asked.len() {
            0 => true,
            1 => !self.had_second && self.shared.heads().asks_for_many(),
            _ => false,
        };
        // What is sent while statements fail could not be recorded, and would be sent again.
        has_place && self.pause_left().is_zero() && self.shared.queue.statements_work()
    }

    /// Asks for what the heads pick, if that is anything.
    fn begin(&mut self) {
        let batch_max = self.shared.config.dequeue_batch_max;
        let picks = self.shared.heads().pick(batch_max, self.shared.now());
        if picks.is_empty() {
            // What could not be dequeued is gone: others have it, or it is held.
            if self.asked.is_empty() {
                self.shared.dequeue_fails.store(false, Ordering::Relaxed);
            }
            return;
        }
        let asked = picks.iter().map(Pick::take).sum::<usize>();
        let permits = self
            .shared
            .gate
            .try_enter_many(asked.min(batch_max))
            .expect("the heads pick no more jobs than slots are free");
        self.had_second = !self.asked.is_empty();
        let shared = Arc::clone(&self.shared);
        self.asked.spawn(async move {
            // Read before the query, so that an attempt always ends before its lease does.
            let leased_at = Instant::now();
            let dequeued = lease(&shared, &picks, permits.count()).await;
            Answer {
                picks,
                permits,
                leased_at,
                dequeued,
            }
        });
    }

    /// Waits for the next answer; `None` if nothing is asked. Cancel safe.
    async fn next(&mut self) -> Option<Answer> {
        match self.asked.join_next().await? {
            Ok(answer) => Some(answer),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// Starts attempts of what was leased. The heads learn of the answer and of the attempts with
    /// no pick between, which would see slots as free that are not.
    fn end(&mut self, answer: Answer, attempts: &Attempts, running: &mut JoinSet<()>) {
        let Answer {
            picks,
            permits,
            leased_at,
            dequeued,
        } = answer;
        let now = self.shared.now();
        match dequeued {
            Ok(dequeued) => {
                self.pause = PAUSE_AFTER_FAILURE_MIN;
                take_over(&self.shared, &picks, &dequeued, permits.count(), now);
                attempts.start(dequeued, permits, leased_at, running);
            }
            Err(failure) => {
                let mut heads = self.shared.heads();
                for pick in &picks {
                    heads.not_dequeued(pick, now);
                }
                drop(heads);
                if let Some(failures) = self.failures.due() {
                    failure.say(failures);
                }
                self.not_before = Instant::now() + self.pause;
                self.pause = (self.pause * 2).min(PAUSE_AFTER_FAILURE_MAX);
            }
        }
    }

    /// How much longer nothing is asked because Postgres has just failed.
    fn pause_left(&self) -> Duration {
        self.not_before.saturating_duration_since(Instant::now())
    }

    /// How long to wait before it is looked again whether a dequeue may begin.
    fn wait(&self) -> Duration {
        let left = self.pause_left();
        if !left.is_zero() {
            left
        } else if self.shared.queue.statements_work() {
            LOOK_AT_LEAST_EVERY
        } else {
            LOOK_AT_STATEMENTS_EVERY
        }
    }
}

/// Why no jobs could be leased.
enum Failure {
    Refused { fault: Fault, error: String },
    TooLong,
}

impl Failure {
    const fn word(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "failed",
            Self::TooLong => "timeout",
        }
    }

    /// Logs it as the last of so many failures.
    fn say(&self, failures: u64) {
        match self {
            Self::Refused {
                fault: Fault::Cancelled,
                error,
            } => warn!(
                error,
                failures,
                "dequeue cancelled: if HOOK_DB_STATEMENT_TIMEOUT is not far too short, its plan has gone \
                 bad (ANALYZE hook.ready) or a lock is in the way"
            ),
            Self::Refused { fault, error } => {
                warn!(error, fault = fault.as_str(), failures, "dequeue failed");
            }
            Self::TooLong => warn!(
                failures,
                "dequeue took too long, or its answer was lost; what it leased comes back when the leases end"
            ),
        }
    }
}

/// Leases jobs for the picks.
async fn lease(shared: &Shared, picks: &[Pick], limit: usize) -> Result<Dequeued, Failure> {
    let heads: Vec<Head> = picks.iter().map(|pick| pick.head).collect();
    let term = LeaseTerm {
        lease: shared.config.lease(),
        margin: shared.config.lease_margin(),
        worker: shared.config.name.clone(),
    };
    let begun = Instant::now();
    let asked = shared.queue.dequeue(&heads, limit, &term);
    let answered = shared.queue.answer(shared.statement_deadline, asked);
    let failure = match answered.await {
        Some(Ok(dequeued)) => {
            let result = if dequeued.jobs.is_empty() {
                "empty"
            } else {
                "jobs"
            };
            metric::DEQUEUE_DURATION_SECONDS
                .histogram(&[result])
                .record(begun.elapsed());
            metric::LAST_DEQUEUE_SUCCESS_TIMESTAMP_SECONDS
                .gauge(&[])
                .set(unix_seconds());
            shared.dequeue_fails.store(false, Ordering::Relaxed);
            return Ok(dequeued);
        }
        Some(Err(error)) => {
            let fault = shared.queue.judge(&error);
            Failure::Refused {
                fault,
                error: error.to_string(),
            }
        }
        None => Failure::TooLong,
    };
    metric::DEQUEUE_FAILURES_TOTAL
        .counter(&[failure.word()])
        .increment(1);
    shared.dequeue_fails.store(true, Ordering::Relaxed);
    Err(failure)
}

/// Tells the heads what the dequeue brought for each of them.
fn take_over(shared: &Shared, picks: &[Pick], dequeued: &Dequeued, limit: usize, now: Duration) {
    let full = dequeued.jobs.len() >= limit;
    let mut seen = 0;
    let mut heads = shared.heads();
    for pick in picks {
        let of_pick = dequeued.jobs.iter().filter(|job| {
            job.lease.target_id == pick.head.target_id && job.lease.tier == pick.head.tier
        });
        let (mut jobs, mut last_run_at) = (0, None);
        for job in of_pick {
            jobs += 1;
            last_run_at = last_run_at.max(Some(job.run_at));
        }
        // When the batch is full, the head at which it filled up, and those behind it, may have
        // more jobs than were taken.
        let looked_at = !full || seen + jobs < dequeued.jobs.len();
        seen += jobs;
        let exhausted = looked_at && jobs < pick.take();
        heads.dequeued(
            pick,
            Taken {
                jobs,
                last_run_at,
                exhausted,
            },
            now,
        );
    }
    for queue in QueueName::ALL {
        let count = dequeued
            .jobs
            .iter()
            .filter(|job| job.lease.tier.queue() == *queue)
            .count();
        if count > 0 {
            metric::DEQUEUED_JOBS_TOTAL
                .counter(&[queue.as_str()])
                .increment(count as u64);
        }
    }
    if !dequeued.jobs.is_empty() {
        #[expect(clippy::cast_precision_loss, reason = "a batch has few hundred jobs")]
        metric::DEQUEUE_JOBS
            .histogram(&[])
            .record(dequeued.jobs.len() as f64);
    }
    debug!(jobs = dequeued.jobs.len(), heads = picks.len(), "dequeued");
}
