//! The finisher: writes what attempts came to, as many in one statement as have ended meanwhile.
//!
//! There is one writer: while it writes a batch the next one fills, so batches grow with the load,
//! and a result costs the less the more there are. A result is kept in memory and written again
//! until Postgres takes it or its lease is certainly over; then the janitor has given the job back,
//! and the fence keeps a late write out. If Postgres refuses a batch, a rehearsal tells why: where it
//! refuses even nothing (a column is gone, a right was revoked), the batch waits until that is
//! mended, and the worker sends nothing meanwhile. Else it is about what is in the batch, which is
//! halved until the culprit stands alone; that one is put aside and tried again, seldom, while the
//! others go on. If as many are put aside as there are slots, no new results are taken, so that
//! the worker is stopped instead of sending the same jobs again.

use std::{sync::Arc, time::Duration};

use hook_common::{
    config::Binary,
    db::Fault,
    job::Tier,
    lifecycle::{Stop, within},
    logging::Repeats,
    metrics::worker as metric,
    queue::{Finish, Finished, Next},
    target::TargetId,
};
use tokio::{sync::mpsc, time::Instant};
use tracing::{error, warn};

use crate::worker::Shared;

/// Results in one statement: past this, a statement gets longer, not cheaper.
const BATCH_MAX: usize = 500;

/// How often results that were put aside are tried again.
const REFUSED_AGAIN_AFTER: Duration = Duration::from_secs(1);

const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Where attempts leave their results.
#[derive(Clone, Debug)]
pub(crate) struct FinishQueue(mpsc::Sender<Pending>);

/// A result that is not written yet.
#[derive(Debug)]
struct Pending {
    finish: Finish,
    waiting: Waiting,
}

/// How a result has fared so far; it counts as waiting until this is dropped.
#[derive(Debug)]
struct Waiting {
    since: Instant,
    /// Postgres refused it before, which was logged then.
    refused: bool,
}

impl Waiting {
    fn begin() -> Self {
        metric::FINISH_WAITING.gauge(&[]).increment(1.0);
        Self {
            since: Instant::now(),
            refused: false,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        metric::FINISH_WAITING.gauge(&[]).decrement(1.0);
    }
}

impl FinishQueue {
    /// Hands a result over; waits while as many results are unwritten as there are slots.
    pub(crate) async fn send(&self, finish: Finish) {
        let pending = Pending {
            finish,
            waiting: Waiting::begin(),
        };
        // The finisher outlives every sender; were it gone, the lease would still expire.
        if self.0.send(pending).await.is_err() {
            error!("the finisher has ended before the attempts");
        }
    }
}

/// Writes results until every [`FinishQueue`] is dropped and nothing is left.
pub(crate) struct Finisher {
    results: mpsc::Receiver<Pending>,
    writer: Writer,
}

/// Writes batches.
struct Writer {
    shared: Arc<Shared>,
    failures: Repeats,
}

impl Finisher {
    pub(crate) fn new(shared: Arc<Shared>) -> (FinishQueue, Self) {
        let (sender, receiver) = mpsc::channel(shared.config.policy.slots);
        metric::FINISH_WAITING.gauge(&[]).set(0.0);
        (
            FinishQueue(sender),
            Self {
                results: receiver,
                writer: Writer {
                    shared,
                    failures: Repeats::default(),
                },
            },
        )
    }

    /// Writes until the end.
    pub(crate) async fn run(mut self, stop: Stop) {
        let writer = &self.writer;
        let refused_max = writer.shared.config.policy.slots;
        let mut refused: Vec<Pending> = Vec::new();
        let mut again_at = Instant::now();
        loop {
            let mut batch = Vec::with_capacity(BATCH_MAX);
            let pause = again_at.saturating_duration_since(Instant::now());
            let received = if refused.is_empty() {
                Some(self.results.recv_many(&mut batch, BATCH_MAX).await)
            } else if refused.len() < refused_max {
                within(pause, self.results.recv_many(&mut batch, BATCH_MAX)).await
            } else {
                stop.pause_until_abort(pause).await;
                None
            };
            // None will follow.
            if received == Some(0) {
                give_up(writer.write(refused, &stop).await.len());
                return;
            }
            let newly_refused = writer.write(batch, &stop).await;
            if again_at <= Instant::now() {
                refused = writer.write(refused, &stop).await;
                again_at = Instant::now() + REFUSED_AGAIN_AFTER;
            }
            refused.extend(newly_refused);
            if stop.is_aborting() {
                give_up(std::mem::take(&mut refused).len());
            }
        }
    }
}

fn give_up(results: usize) {
    if results > 0 {
        warn!(
            results,
            "results given up at shutdown; their jobs come back when the leases end"
        );
    }
}

impl Writer {
    /// Writes one batch, whatever it takes, and returns the results that Postgres refuses.
    async fn write(&self, batch: Vec<Pending>, stop: &Stop) -> Vec<Pending> {
        let lease = self.shared.config.lease();
        let mut stack = vec![batch];
        let mut refused = Vec::new();
        let mut backoff = BACKOFF_MIN;
        while let Some(mut batch) = stack.pop() {
            batch.retain(|pending| keep(pending, lease));
            if batch.is_empty() {
                continue;
            }
            match self.write_once(&mut batch).await {
                Ok(()) => backoff = BACKOFF_MIN,
                Err(fault) if fault.may_pass_later() || self.refuses_nothing_too().await => {
                    metric::FINISH_RETRIES_TOTAL
                        .counter(&[fault.as_str()])
                        .increment(1);
                    stack.push(batch);
                    if stop.is_aborting() {
                        give_up(stack.iter().map(Vec::len).sum());
                        return Vec::new();
                    }
                    stop.pause_until_abort(backoff).await;
                    backoff = (backoff * 2).min(BACKOFF_MAX);
                }
                Err(_) if batch.len() > 1 => {
                    let half = batch.split_off(batch.len() / 2);
                    stack.extend([half, batch]);
                }
                Err(fault) => {
                    metric::FINISH_RETRIES_TOTAL
                        .counter(&[fault.as_str()])
                        .increment(1);
                    let mut pending = batch.pop().expect("a batch of one");
                    if !pending.waiting.refused {
                        let id = pending.finish.lease.job_id;
                        error!(job.id = %id, "Postgres refuses the result of this job; it is kept until its lease ends");
                        pending.waiting.refused = true;
                    }
                    refused.push(pending);
                }
            }
        }
        refused
    }

    /// Whether Postgres refuses the worker's statements whatever is in them.
    async fn refuses_nothing_too(&self) -> bool {
        let queue = &self.shared.queue;
        let rehearsed = within(
            self.shared.statement_deadline,
            queue.rehearse(Binary::Worker),
        );
        match rehearsed.await {
            Some(Ok(())) => false,
            Some(Err(error)) => {
                // Whatever it is, it is not the fault of the results.
                let _fault = queue.judge(&error);
                true
            }
            // Without an answer, nothing is known of the results either.
            None => true,
        }
    }

    /// Runs one finish statement; the results stay in `batch` if it fails.
    async fn write_once(&self, batch: &mut Vec<Pending>) -> Result<(), Fault> {
        let shared = &self.shared;
        let begun = Instant::now();
        let known = batch.iter().all(|pending| pending.waiting.refused);
        let (mut finishes, rest): (Vec<Finish>, Vec<Waiting>) = batch
            .drain(..)
            .map(|pending| (pending.finish, pending.waiting))
            .unzip();
        let written = shared.queue.finish(&mut finishes);
        let written = shared
            .queue
            .answer(shared.statement_deadline, written)
            .await;
        let failed = match written {
            Some(Ok(finished)) => {
                metric::FINISH_DURATION_SECONDS
                    .histogram(&[])
                    .record(begun.elapsed());
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "a batch has few hundred results"
                )]
                metric::FINISH_JOBS
                    .histogram(&[])
                    .record(finishes.len() as f64);
                wake_retries(shared, &finishes, &finished);
                return Ok(());
            }
            Some(Err(error)) => {
                // What was refused before was said before.
                if !known && let Some(failures) = self.failures.due() {
                    warn!(error = %error, results = finishes.len(), failures, "writing results failed");
                }
                shared.queue.judge(&error)
            }
            None => {
                if let Some(failures) = self.failures.due() {
                    warn!(
                        results = finishes.len(),
                        failures, "writing results took too long"
                    );
                }
                Fault::OutcomeUnknown
            }
        };
        batch.extend(
            finishes
                .into_iter()
                .zip(rest)
                .map(|(finish, waiting)| Pending { finish, waiting }),
        );
        Err(failed)
    }
}

/// False for a result whose lease is certainly over.
fn keep(pending: &Pending, lease: Duration) -> bool {
    let kept = pending.waiting.since.elapsed() < lease * 2;
    if !kept {
        metric::LEASES_LOST_TOTAL.counter(&[]).increment(1);
    }
    kept
}

/// Tells the heads when retried jobs are due, and counts lost leases.
fn wake_retries(shared: &Shared, finishes: &[Finish], finished: &[Finished]) {
    let now = shared.now();
    let mut lost = 0;
    let mut retries: Vec<(TargetId, Tier, Duration)> = Vec::new();
    for (finish, finished) in finishes.iter().zip(finished) {
        match (finished, finish.next) {
            (Finished::LeaseLost, _) => lost += 1,
            (Finished::Recorded, Next::Retry(delay)) => {
                retries.push((finish.lease.target_id, Tier::DegradedRetry, now + delay));
            }
            (Finished::Recorded, Next::Release) => {
                metric::LEASES_RETURNED_TOTAL.counter(&[]).increment(1);
            }
            (Finished::Recorded, Next::End(_) | Next::EndUnattempted) => {}
        }
    }
    if lost > 0 {
        warn!(
            jobs = lost,
            "leases were lost before their results were written"
        );
        metric::LEASES_LOST_TOTAL.counter(&[]).increment(lost);
    }
    if !retries.is_empty() {
        let mut heads = shared.heads();
        for (target_id, tier, at) in retries {
            heads.wake(target_id, tier, at, now);
        }
        drop(heads);
        shared.changed.notify_one();
    }
}
