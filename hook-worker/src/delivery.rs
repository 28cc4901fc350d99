//! One attempt: a stored request goes in, a report comes out.
//!
//! Whatever the target does, and whatever a row made by SQL holds, the answer is a [`Report`]:
//! an attempt never fails as such, never outlives its deadline, and never says more about a URL
//! than its host.

use std::{borrow::Cow, time::Duration};

use bytes::Bytes;
use chrono::DateTime;
use hook_common::{
    job::{ErrorKind, JobId, Method, Outcome},
    retry_after,
};
use tokio::time::Instant;

use crate::{
    classify,
    client::{Client, answer::Answer, failure::Failure},
    outgoing::{Outgoing, Refusal},
};

/// A leased job as it is to be sent.
#[derive(Clone, Debug)]
pub struct Request {
    /// Goes out as `webhook-id`, the same on every attempt.
    pub job_id: JobId,
    /// Goes out as `hook-attempt`, counted from 1.
    pub attempt: i32,
    /// The method as stored.
    pub method: Method,
    /// The URL as stored; checked again here.
    pub url: String,
    /// The caller's headers as stored; checked again here.
    pub headers: Vec<(String, String)>,
    /// The exact bytes to send.
    pub body: Bytes,
    /// Unix seconds of this attempt by Postgres's clock; goes out as `webhook-timestamp`.
    pub timestamp: i64,
    /// The finished value of `webhook-signature`, made by [`crate::signing::sign`].
    pub signatures: Option<String>,
}

/// How long the parts of an attempt may take.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// The end of the whole attempt, DNS and body included.
    pub attempt: Instant,
    /// TCP and TLS together.
    pub connect: Duration,
    /// Reading the body of an answer, counted from its head.
    pub response_body: Duration,
}

/// What an attempt came to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Report {
    /// What it means for the job.
    pub outcome: Outcome,
    /// Why it was not delivered.
    pub error_kind: Option<ErrorKind>,
    /// The status of the answer, if its head was read.
    pub response_status: Option<u16>,
    /// The beginning of the answer's body: at most 4 KiB of UTF-8 without NUL.
    pub response_excerpt: Option<Vec<u8>>,
    /// Whether the body went on behind the excerpt.
    pub response_truncated: bool,
    /// How long the target asks to be left alone; only with 429 and 503.
    pub retry_after: Option<Duration>,
    /// From the start of the attempt to this report.
    pub duration: Duration,
    /// One line for people and debug logs. It names the host at most: no address, no path.
    pub note: Option<Cow<'static, str>>,
}

impl Client {
    /// Makes one attempt, and says what came of it no later than shortly after the deadline.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the attempt: the target may or may not have seen it.
    pub async fn deliver(&self, request: Request, deadlines: Deadlines) -> Report {
        let started = Instant::now();
        let timestamp = request.timestamp;
        let mut report = match Outgoing::new(request, self.outgoing_rules()) {
            Err(refusal) => refused(refusal),
            Ok(outgoing) => match self.send(&outgoing, deadlines).await {
                Ok(answer) => answered(answer, timestamp),
                Err(failure) => failed(&failure, outgoing.host()),
            },
        };
        report.duration = started.elapsed();
        report
    }
}

fn answered(answer: Answer, timestamp: i64) -> Report {
    let (outcome, error_kind) = classify::status(answer.status);
    let retry_after = answer
        .retry_after
        .filter(|_| classify::may_ask_to_wait(answer.status))
        .zip(DateTime::from_timestamp(timestamp, 0))
        .and_then(|(value, now)| retry_after::parse(value.as_bytes(), now));
    Report {
        outcome,
        error_kind,
        response_status: Some(answer.status),
        response_excerpt: Some(answer.excerpt.text.into_bytes()),
        response_truncated: answer.excerpt.truncated,
        retry_after,
        duration: Duration::ZERO,
        note: answer.ending.note().map(Cow::Borrowed),
    }
}

fn failed(failure: &Failure, host: &str) -> Report {
    let (outcome, error_kind) = classify::transport(failure.error);
    unanswered(
        outcome,
        error_kind,
        format!("{host}: {}", failure.text).into(),
    )
}

fn refused(refusal: Refusal) -> Report {
    let (outcome, error_kind) = classify::transport(refusal.error);
    unanswered(outcome, error_kind, refusal.text)
}

fn unanswered(outcome: Outcome, error_kind: ErrorKind, note: Cow<'static, str>) -> Report {
    Report {
        outcome,
        error_kind: Some(error_kind),
        response_status: None,
        response_excerpt: None,
        response_truncated: false,
        retry_after: None,
        duration: Duration::ZERO,
        note: Some(note),
    }
}
