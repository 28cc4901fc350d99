//! One attempt: from a leased job to the finish that ends its lease.
//!
//! Whatever happens, an attempt gives its slot back and leaves exactly one finish: a result, or
//! the release of the lease when the worker is aborted. Faults of our own never count against the
//! target.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use futures_util::FutureExt as _;
use hook_common::{
    gate::Permit,
    job::{ErrorKind, Method, Outcome, SIGNING_SECRETS_MAX, Status},
    lifecycle::Stop,
    metrics::worker as metric,
    queue::{AttemptRecord, Dequeued, Finish, LeasedJob, Next},
};
use rand::Rng as _;
use tokio::{
    task::{JoinError, JoinSet},
    time::Instant,
};
use tracing::{debug, error};

use crate::{
    client::Client,
    delivery::{Deadlines, Report, Request},
    finisher::FinishQueue,
    heads::Slot,
    signer::Signer,
    worker::Shared,
};

/// A pause that a target asked for is lengthened by up to this share.
const HOLD_JITTER: f64 = 0.1;

/// Longest timeout that a job may bring; a row made by SQL may hold more.
const TIMEOUT_MAX_MS: u64 = 60_000;

/// What attempts need.
#[derive(Clone)]
pub(crate) struct Attempts {
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: Arc<Client>,
    pub(crate) signer: Arc<Signer>,
    pub(crate) finishes: FinishQueue,
    pub(crate) stop: Stop,
}

/// A leased job, and when it was leased.
struct Leased {
    job: LeasedJob,
    /// Read before the dequeue was sent.
    at: Instant,
    /// Postgres's time at the dequeue.
    now: DateTime<Utc>,
}

impl Attempts {
    /// Starts an attempt for each leased job; permits that no job needs are given back.
    pub(crate) fn start(
        &self,
        dequeued: Dequeued,
        mut permits: Permit,
        leased_at: Instant,
        running: &mut JoinSet<()>,
    ) {
        let Some(leased_now) = dequeued.now else {
            return;
        };
        let now = self.shared.now();
        let mut heads = self.shared.heads();
        for job in dequeued.jobs {
            let permit = permits
                .split(1)
                .expect("a dequeue leases no more jobs than permits");
            let slot = heads.start(job.lease.target_id, now);
            let leased = Leased {
                job,
                at: leased_at,
                now: leased_now,
            };
            let this = self.clone();
            running.spawn(async move { this.run(leased, slot, permit).await });
        }
    }

    /// Counts an attempt task that ended; a panic in one is a bug and costs its job a lease.
    pub(crate) fn count(&self, ended: &Result<(), JoinError>) {
        if let Err(panic) = ended {
            error!(error = %panic, "an attempt panicked; its job comes back when the lease ends");
        }
    }

    async fn run(&self, leased: Leased, slot: Slot, permit: Permit) {
        let made = AssertUnwindSafe(self.make(&leased)).catch_unwind();
        let (report, next) = match self.stop.unless_aborting(made).await {
            None => (nothing_sent(ErrorKind::Internal), Next::Release),
            Some(Ok(made)) => made,
            Some(Err(_)) => {
                error!(job.id = %leased.job.lease.job_id, "an attempt panicked");
                self.internal_failure(&leased.job)
            }
        };
        self.measure(&leased, &report, next);
        let judged = report
            .error_kind
            .is_none_or(tells_of_target)
            .then_some(report.outcome);
        let target_id = leased.job.lease.target_id;
        let record = AttemptRecord {
            outcome: report.outcome,
            error_kind: report.error_kind,
            response_status: report.response_status,
            response_excerpt: report.response_excerpt,
            response_truncated: report.response_truncated,
            duration: leased.at.elapsed(),
        };
        self.finishes
            .send(Finish {
                lease: leased.job.lease,
                record,
                next,
            })
            .await;
        // The permit first: the heads must never believe in more free slots than there are.
        drop(permit);
        let now = self.shared.now();
        let mut heads = self.shared.heads();
        if heads.end(slot, judged, now)
            && let Some(outcome) = judged
        {
            metric::PROBES_TOTAL
                .counter(&[probe_result(outcome)])
                .increment(1);
        }
        if let Some(hint) = report.retry_after {
            let pause = self.shared.config.retry.bounded_hint(hint);
            heads.hold(target_id, now + jittered(pause), now);
        }
        drop(heads);
        self.shared.changed.notify_one();
    }

    /// Sends the job, unless it cannot or must not be sent any more.
    async fn make(&self, leased: &Leased) -> (Report, Next) {
        let job = &leased.job;
        if job.expired {
            return (nothing_sent(ErrorKind::Expired), Next::EndUnattempted);
        }
        let timestamp = leased.now.timestamp();
        let request = match self.request(job, timestamp).await {
            Ok(request) => request,
            Err(ErrorKind::Internal) => return self.internal_failure(job),
            Err(kind) => return (nothing_sent(kind), Next::End(Status::Failed)),
        };
        let config = &self.shared.config;
        let timeout = job
            .timeout_ms
            .and_then(|ms| u64::try_from(ms).ok())
            .map_or(config.attempt_timeout, |ms| {
                Duration::from_millis(ms.min(TIMEOUT_MAX_MS))
            });
        let deadlines = Deadlines {
            attempt: leased.at + timeout,
            connect: config.connect_timeout,
            response_body: config.response_body_timeout,
        };
        let report = self.client.deliver(request, deadlines).await;
        let next = match report.outcome {
            Outcome::Delivered => Next::End(Status::Completed),
            Outcome::Permanent => Next::End(Status::Failed),
            Outcome::Retryable => self.after_failure(job, report.retry_after),
        };
        (report, next)
    }

    /// The request as the row describes it; rows made by SQL may describe none.
    async fn request(&self, job: &LeasedJob, timestamp: i64) -> Result<Request, ErrorKind> {
        let method = Method::from_code(job.method).ok_or(ErrorKind::InvalidRequest)?;
        let mut headers = headers_of(job)?;
        if let Some(sealed) = &job.headers_sealed {
            headers.extend(self.signer.open_headers(sealed)?);
        }
        let id = job.lease.job_id.to_string();
        let signatures = self
            .signer
            .sign(&signing_of(job)?, &id, timestamp, &job.body)
            .await?;
        Ok(Request {
            job_id: job.lease.job_id,
            attempt: job.lease.attempt,
            method,
            url: job.url.clone(),
            headers,
            body: job.body.clone(),
            timestamp,
            signatures,
        })
    }

    /// Where a job goes whose attempt may be repeated.
    fn after_failure(&self, job: &LeasedJob, hint: Option<Duration>) -> Next {
        let config = &self.shared.config;
        let max_attempts = job.max_attempts.unwrap_or(config.max_attempts);
        if job.lease.attempt >= i32::from(max_attempts) {
            return Next::End(Status::Failed);
        }
        let attempt = u32::try_from(job.lease.attempt).unwrap_or(u32::MAX);
        Next::Retry(config.retry.next(attempt, hint, &mut rand::rng()))
    }

    /// A fault of our own: tried again, and not held against the target.
    fn internal_failure(&self, job: &LeasedJob) -> (Report, Next) {
        let report = Report {
            outcome: Outcome::Retryable,
            ..nothing_sent(ErrorKind::Internal)
        };
        (report, self.after_failure(job, None))
    }

    fn measure(&self, leased: &Leased, report: &Report, next: Next) {
        let job = &leased.job;
        if matches!(next, Next::Release | Next::EndUnattempted) {
            return;
        }
        let queue = job.lease.tier.queue().as_str();
        let kind = report.error_kind.map_or("none", ErrorKind::as_str);
        metric::ATTEMPTS_TOTAL
            .counter(&[queue, report.outcome.as_str(), kind])
            .increment(1);
        if report.error_kind == Some(ErrorKind::InvalidRequest) {
            metric::POISON_JOBS_TOTAL.counter(&[]).increment(1);
        }
        metric::ATTEMPT_DURATION_SECONDS
            .histogram(&[report.outcome.as_str()])
            .record(leased.at.elapsed());
        if report.outcome == Outcome::Delivered {
            let waited = (leased.now - job.run_at).to_std().unwrap_or_default();
            metric::DELIVERY_LATENCY_SECONDS
                .histogram(&[queue])
                .record(waited + leased.at.elapsed());
        }
        debug!(
            job.id = %job.lease.job_id,
            target = %job.target,
            attempt = job.lease.attempt,
            outcome = report.outcome.as_str(),
            error.kind = kind,
            response.status = report.response_status,
            "attempt finished"
        );
    }
}

/// A little longer than the pause that a target asked for, so that the workers do not all come
/// back in the same moment.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::rng().random_range(1.0..=1.0 + HOLD_JITTER))
}

/// The headers in the order in which they are stored; a row made by SQL may hold anything.
fn headers_of(job: &LeasedJob) -> Result<Vec<(String, String)>, ErrorKind> {
    let Some(text) = &job.headers else {
        return Ok(Vec::new());
    };
    let object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(text).map_err(|_| ErrorKind::InvalidRequest)?;
    object
        .into_iter()
        .map(|(name, value)| {
            let serde_json::Value::String(value) = value else {
                return Err(ErrorKind::InvalidRequest);
            };
            Ok((name, value))
        })
        .collect()
}

/// The names of the secrets that sign.
fn signing_of(job: &LeasedJob) -> Result<Vec<String>, ErrorKind> {
    let Some(text) = job.signing.as_deref() else {
        return Ok(Vec::new());
    };
    serde_json::from_str(text)
        .ok()
        .filter(|names: &Vec<String>| names.len() <= SIGNING_SECRETS_MAX)
        .ok_or(ErrorKind::InvalidRequest)
}

/// What a probe found: a held target that answers at all is back.
fn probe_result(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Delivered | Outcome::Permanent => "answered",
        Outcome::Retryable => "failed",
    }
}

/// The report of an attempt that put nothing on the wire.
fn nothing_sent(kind: ErrorKind) -> Report {
    Report {
        outcome: Outcome::Permanent,
        error_kind: Some(kind),
        response_status: None,
        response_excerpt: None,
        response_truncated: false,
        retry_after: None,
        duration: Duration::ZERO,
        note: None,
    }
}

/// Whether an error says anything about the target.
const fn tells_of_target(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::HttpStatus
        | ErrorKind::Redirect
        | ErrorKind::Timeout
        | ErrorKind::Connect
        | ErrorKind::Tls
        | ErrorKind::Dns
        | ErrorKind::Reset
        | ErrorKind::InvalidResponse => true,
        ErrorKind::Internal
        | ErrorKind::InvalidRequest
        | ErrorKind::BlockedAddress
        | ErrorKind::Expired
        | ErrorKind::LeaseExpired => false,
    }
}
