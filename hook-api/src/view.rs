//! Jobs and targets as JSON.
//!
//! Without being asked for the body, nobody is shown the value of a secret header or more of the
//! URL than its host: lists of jobs end up in tickets and chats.

use base64::{Engine, engine::general_purpose::STANDARD};
use chrono::{DateTime, SecondsFormat, Utc};
use hook_common::{
    headers::is_secret,
    job::{ErrorKind, JobId, Method, Outcome, Status, Tier},
    queue::{AttemptView, HEADERS_CONTEXT, JobView, PenaltyReason, TargetHour, TargetView},
    seal::Sealer,
};
use serde::Serialize;
use serde_json::{Map, Value, value::RawValue};
use url::Url;

/// What stands in the place of what is not shown.
const HIDDEN: &str = "***";

/// How much of a job is shown, and what that takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown<'a> {
    /// Body, secret headers and the whole URL.
    pub(crate) everything: bool,
    /// Opens sealed headers.
    pub(crate) sealer: Option<&'a Sealer>,
    /// Attempts of a job whose producer gave no number.
    pub(crate) max_attempts: i16,
}

/// A job as JSON.
#[derive(Serialize)]
pub(crate) struct JobJson {
    id: String,
    status: &'static str,
    queue: &'static str,
    target: String,
    url: String,
    method: &'static str,
    headers: Map<String, Value>,
    metadata: Box<RawValue>,
    attempt: i32,
    max_attempts: i16,
    created_at: String,
    scheduled_at: String,
    expires_at: Option<String>,
    finished_at: Option<String>,
    error_kind: Option<&'static str>,
    attempts: Vec<AttemptJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
}

#[derive(Serialize)]
struct AttemptJson {
    attempt: i32,
    started_at: String,
    duration_ms: i32,
    outcome: Option<&'static str>,
    error_kind: Option<&'static str>,
    response_status: Option<i16>,
    response_excerpt: Option<String>,
    response_truncated: bool,
    worker: String,
}

/// A target as JSON.
#[derive(Serialize)]
pub(crate) struct TargetJson {
    target: String,
    state: &'static str,
    penalty: i16,
    penalty_pin: Option<i16>,
    penalty_reasons: Vec<&'static str>,
    failures_in_row: i32,
    next_probe_at: Option<String>,
    asked_until: Option<String>,
    waiting: i64,
    retries: i64,
    running: i64,
    failed: i64,
    max_in_flight: Option<i32>,
    rate_per_second: Option<f64>,
    last_error_kind: Option<&'static str>,
    last_error_at: Option<String>,
    last_success_at: Option<String>,
    latency_p50_ms: Option<i32>,
    latency_p95_ms: Option<i32>,
    unused: bool,
    hours: Vec<RecentHourJson>,
}

/// What attempts at a target came to in one hour, in short.
#[derive(Serialize)]
struct RecentHourJson {
    hour: String,
    delivered: i64,
    failed: i64,
}

/// One hour of a target as JSON.
#[derive(Serialize)]
pub(crate) struct TargetHourJson {
    hour: String,
    attempts: i64,
    delivered: i64,
    retryable: i64,
    permanent: i64,
    /// Of one attempt.
    mean_duration_ms: i64,
}

impl JobJson {
    pub(crate) fn new(job: JobView, attempts: Vec<AttemptView>, shown: Shown<'_>) -> Self {
        let headers = headers_of(&job, shown);
        let (body, body_base64) = if shown.everything {
            body_of(job.body.unwrap_or_default())
        } else {
            (None, None)
        };
        let status = Status::from_code(job.status).map_or("", Status::as_str);
        let tier = Tier::from_code(job.tier).unwrap_or(Tier::Primary);
        Self {
            id: JobId(job.job_id).to_string(),
            status,
            queue: tier.queue().as_str(),
            target: job.target,
            url: if shown.everything {
                job.url
            } else {
                without_path(&job.url)
            },
            method: Method::from_code(job.method).map_or("", Method::as_str),
            headers,
            metadata: metadata_of(job.metadata),
            attempt: job.attempt,
            max_attempts: job.max_attempts.unwrap_or(shown.max_attempts),
            created_at: time(job.created_at),
            scheduled_at: time(job.scheduled_at),
            expires_at: job.expires_at.map(time),
            finished_at: job.finished_at.map(time),
            error_kind: error_kind(job.error_kind),
            attempts: attempts.into_iter().map(AttemptJson::new).collect(),
            body,
            body_base64,
        }
    }
}

impl AttemptJson {
    fn new(attempt: AttemptView) -> Self {
        let excerpt = attempt.response_excerpt;
        Self {
            attempt: attempt.attempt,
            started_at: time(attempt.started_at),
            duration_ms: attempt.duration_ms,
            outcome: Outcome::from_code(attempt.outcome).map(Outcome::as_str),
            error_kind: error_kind(attempt.error_kind),
            response_status: attempt.response_status,
            response_excerpt: excerpt.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            response_truncated: attempt.response_truncated,
            worker: attempt.worker,
        }
    }
}

impl TargetHourJson {
    pub(crate) fn new(TargetHour { hour, counts }: TargetHour) -> Self {
        let attempts = counts.attempts();
        Self {
            hour: time(hour),
            attempts,
            delivered: counts.delivered,
            retryable: counts.retryable,
            permanent: counts.permanent,
            mean_duration_ms: counts.duration_ms / attempts.max(1),
        }
    }
}

impl TargetJson {
    pub(crate) fn new(target: TargetView) -> Self {
        let (reasons, unused) = (target.penalty_reasons(), target.is_unused());
        let ended = target.hours_delivered.iter().zip(&target.hours_failed);
        let hours = target.hours.iter().zip(ended);
        let hours = hours.map(|(hour, (delivered, failed))| RecentHourJson {
            hour: time(*hour),
            delivered: *delivered,
            failed: *failed,
        });
        Self {
            hours: hours.collect(),
            penalty_reasons: reasons.into_iter().map(PenaltyReason::as_str).collect(),
            target: target.name,
            state: state(target.paused, target.held, target.penalty),
            penalty: target.penalty,
            penalty_pin: target.penalty_pin,
            failures_in_row: target.failures_in_row,
            next_probe_at: target.next_probe_at.map(time),
            asked_until: target.asked_until.map(time),
            unused,
            waiting: target.waiting,
            retries: target.retries,
            running: target.running,
            failed: target.failed,
            max_in_flight: target.max_in_flight,
            rate_per_second: target.rate_per_second,
            last_error_kind: error_kind(target.last_error_kind),
            last_error_at: target.last_error_at.map(time),
            last_success_at: target.last_success_at.map(time),
            latency_p50_ms: target.latency_p50_ms,
            latency_p95_ms: target.latency_p95_ms,
        }
    }
}

/// A time in RFC 3339, UTC.
pub(crate) fn time(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// How a target is treated, in one word.
pub(crate) fn state(paused: bool, held: bool, penalty: i16) -> &'static str {
    if paused {
        "paused"
    } else if held {
        "held"
    } else if penalty > 0 {
        "penalised"
    } else {
        "healthy"
    }
}

pub(crate) fn error_kind(code: Option<i16>) -> Option<&'static str> {
    code.and_then(ErrorKind::from_code).map(ErrorKind::as_str)
}

/// The headers, sealed ones included where they can be opened.
fn headers_of(job: &JobView, shown: Shown<'_>) -> Map<String, Value> {
    let mut headers = match &job.headers {
        Some(Value::Object(headers)) => headers.clone(),
        Some(_) | None => Map::new(),
    };
    let opened = shown
        .sealer
        .zip(job.headers_sealed.as_deref())
        .and_then(|(sealer, sealed)| sealer.open(sealed, HEADERS_CONTEXT).ok());
    if let Some(opened) = opened
        && let Ok(Value::Object(sealed)) = serde_json::from_slice(&opened)
    {
        headers.extend(sealed);
    }
    if !shown.everything {
        for (name, value) in &mut headers {
            if is_secret(name) {
                *value = HIDDEN.into();
            }
        }
    }
    headers
}

/// The metadata as it was written; rows made by SQL hold whatever Postgres writes for JSON.
fn metadata_of(text: Option<String>) -> Box<RawValue> {
    let text = text.unwrap_or_else(|| "{}".to_owned());
    RawValue::from_string(text)
        .or_else(|_| RawValue::from_string("{}".to_owned()))
        .expect("an empty object is JSON")
}

/// The body as text, or in base64 where it is none.
fn body_of(body: Vec<u8>) -> (Option<String>, Option<String>) {
    match String::from_utf8(body) {
        Ok(text) => (Some(text), None),
        Err(error) => (None, Some(STANDARD.encode(error.as_bytes()))),
    }
}

/// A URL without what may hold secrets; what is no URL is not shown at all.
fn without_path(text: &str) -> String {
    let Ok(url) = Url::parse(text) else {
        return HIDDEN.to_owned();
    };
    let origin = url.origin().ascii_serialization();
    if url.path() == "/" && url.query().is_none() {
        format!("{origin}/")
    } else {
        format!("{origin}/{HIDDEN}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_shows_its_host_only() {
        let check = |url: &str, shown: &str| assert_eq!(without_path(url), shown);
        check("https://example.com/", "https://example.com/");
        check("https://example.com/a/b?c=d", "https://example.com/***");
        check(
            "http://example.com:8080/?token=x",
            "http://example.com:8080/***",
        );
        check("http://[::1]/x", "http://[::1]/***");
        check("nonsense", "***");
    }

    #[test]
    fn a_body_is_text_where_it_can_be() {
        assert_eq!(body_of(b"abc".to_vec()), (Some("abc".to_owned()), None));
        assert_eq!(body_of(Vec::new()), (Some(String::new()), None));
        assert_eq!(body_of(vec![0xff, 0]), (None, Some("/wA=".to_owned())));
    }
}
