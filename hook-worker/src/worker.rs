//! The worker's parts and the loop that feeds its slots.
//!
//! Slots first: the loop asks the heads for no more jobs than slots are free, leases exactly
//! those, and starts an attempt for each at once, so leased jobs never wait in memory. Nothing of
//! the database is held while an attempt runs.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hook_common::{
    db::Fault,
    gate::{Gate, Permit},
    job::QueueName,
    lifecycle::{Stop, within},
    logging::Repeats,
    metrics::{unix_seconds, worker as metric},
    periodic::Heartbeats,
    queue::{Dequeued, Head, LeaseTerm, LiveWorker, Queue, Serves},
};
use tokio::{sync::Notify, task::JoinSet, time::Instant};
use tracing::{debug, warn};

use crate::{
    attempt::Attempts,
    config::Config,
    heads::{Heads, Pick, Taken},
};

/// Longest time without a look at the heads; also how often the loop proves that it turns.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(1);

/// After a dequeue that failed, so that a database in trouble is not hammered; it doubles with each
/// further failure.
const PAUSE_AFTER_FAILURE_MIN: Duration = Duration::from_millis(250);
const PAUSE_AFTER_FAILURE_MAX: Duration = Duration::from_secs(2);

/// What the loops of a worker share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) queue: Queue,
    /// What the other workers know this one by.
    pub(crate) me: LiveWorker,
    pub(crate) heads: Mutex<Heads>,
    /// Told when a head may have become servable.
    pub(crate) changed: Notify,
    pub(crate) gate: Gate,
    pub(crate) heartbeats: Heartbeats,
    /// After this, a statement is given up.
    pub(crate) statement_deadline: Duration,
    epoch: Instant,
}

impl Shared {
    pub(crate) fn new(
        config: Config,
        queue: Queue,
        heartbeats: Heartbeats,
        statement_timeout: Duration,
    ) -> Self {
        let tiers = config.tiers();
        Self {
            heads: Mutex::new(Heads::new(config.policy.clone(), tiers)),
            changed: Notify::new(),
            gate: Gate::new("delivery", config.policy.slots),
            heartbeats,
            // Postgres gives up first, and says so.
            statement_deadline: statement_timeout + Duration::from_secs(1),
            epoch: Instant::now(),
            me: LiveWorker {
                worker_id: rand::random(),
                serves: Serves::of(&config.queues),
            },
            config,
            queue,
        }
    }

    /// Time since the worker started, the time scale of the policy.
    pub(crate) fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    pub(crate) fn heads(&self) -> MutexGuard<'_, Heads> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leases jobs and has them attempted until `stop` drains; returns once every attempt has ended
/// and left its result with `finishes`.
pub(crate) async fn feed(shared: Arc<Shared>, attempts: Attempts, stop: Stop) {
    let heartbeat = shared
        .heartbeats
        .register("delivery", shared.config.lease() + LOOK_AT_LEAST_EVERY);
    let mut running = JoinSet::new();
    let mut pause = PAUSE_AFTER_FAILURE_MIN;
    let failures = Repeats::default();
    while !stop.is_draining() {
        heartbeat.beat();
        while let Some(ended) = running.try_join_next() {
            attempts.count(&ended);
        }
        // What is sent now could not be recorded, and would be sent again.
        if !shared.queue.statements_work() {
            stop.pause(LOOK_AT_LEAST_EVERY).await;
            continue;
        }
        let picks = shared
            .heads()
            .pick(shared.config.dequeue_batch_max, shared.now());
        if picks.is_empty() {
            wait_for_heads(&shared, &stop).await;
            continue;
        }
        let asked = picks
            .iter()
            .map(|pick| usize::try_from(pick.head.take).unwrap_or(0))
            .sum::<usize>();
        let permits = shared
            .gate
            .try_enter_many(asked.min(shared.config.dequeue_batch_max))
            .expect("the heads pick no more jobs than slots are free");
        // Read before the query, so that an attempt always ends before its lease does.
        let leased_at = Instant::now();
        match lease(&shared, &picks, &permits).await {
            Ok(dequeued) => {
                pause = PAUSE_AFTER_FAILURE_MIN;
                attempts.start(dequeued, permits, leased_at, &mut running);
            }
            Err(failure) => {
                if let Some(failures) = failures.due() {
                    failure.say(failures);
                }
                stop.pause(pause).await;
                pause = (pause * 2).min(PAUSE_AFTER_FAILURE_MAX);
            }
        }
    }
    drop(heartbeat);
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
                "dequeue took too long; what it leased comes back when the leases end"
            ),
        }
    }
}

/// Leases jobs for the picks.
async fn lease(shared: &Shared, picks: &[Pick], permits: &Permit) -> Result<Dequeued, Failure> {
    let heads: Vec<Head> = picks.iter().map(|pick| pick.head).collect();
    let term = LeaseTerm {
        lease: shared.config.lease(),
        margin: shared.config.lease_margin(),
        worker: shared.config.name.clone(),
    };
    let begun = Instant::now();
    let asked = shared.queue.dequeue(&heads, permits.count(), &term);
    let answer = within(shared.statement_deadline, asked).await;
    let now = shared.now();
    let failure = match answer {
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
            take_over(shared, picks, &dequeued, permits.count(), now);
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
    let mut heads = shared.heads();
    for pick in picks {
        heads.not_dequeued(pick, now);
    }
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
        let exhausted = looked_at && jobs < usize::try_from(pick.head.take).unwrap_or(0);
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
