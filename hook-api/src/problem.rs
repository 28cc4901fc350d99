//! From a refusal to the answer that tells it: a problem document (RFC 9457).
//!
//! A refusal says what the client can do about it and nothing about our insides: no database
//! text, no value of the request, no hint which part of a credential was wrong.

use std::time::Duration;

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use hook_common::{
    db::Fault,
    metrics::api::REJECTIONS_TOTAL,
    problem::{Code, Problem, Rejection},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Why a request is not done, and what its answer carries besides.
#[derive(Debug)]
pub(crate) struct Refusal {
    rejection: Rejection,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Refusal {
    /// A refusal of the request as a whole.
    pub(crate) fn new(code: Code, detail: &'static str) -> Self {
        Problem::new(code, "", detail).into()
    }

    /// A refusal that says when to come back; none is shorter than a second.
    pub(crate) fn later(code: Code, detail: &'static str, after: Duration) -> Self {
        let seconds = after.as_millis().div_ceil(1000).max(1);
        let seconds = HeaderValue::from_str(&seconds.to_string())
            .unwrap_or(const { HeaderValue::from_static("1") });
        Self::new(code, detail).with(header::RETRY_AFTER, seconds)
    }

    /// Adds a header to the answer.
    pub(crate) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Makes the answer the last one of its connection.
    pub(crate) fn closing(self) -> Self {
        self.with(
            header::CONNECTION,
            const { HeaderValue::from_static("close") },
        )
    }

    /// The refusal that follows from a failed statement or connect.
    ///
    /// `changes` says whether the statement would have changed something.
    pub(crate) fn of_fault(fault: Fault, changes: Changes) -> Self {
        match (fault, changes) {
            (Fault::OutcomeUnknown, Changes::Something) => Self::outcome_unknown(),
            (
                Fault::OutcomeUnknown
                | Fault::Cancelled
                | Fault::Unreachable
                | Fault::NotWritable
                | Fault::StaleStatement
                | Fault::Overloaded
                | Fault::Conflict,
                _,
            ) => Self::database_unavailable(),
            (Fault::Refused | Fault::Permanent, _) => Self::internal(),
        }
    }

    /// Postgres did not answer, and nothing was stored.
    pub(crate) fn database_unavailable() -> Self {
        let detail = "the database cannot be reached; nothing was stored";
        Self::later(Code::DatabaseUnavailable, detail, Duration::from_secs(1))
    }

    /// The statement was sent, and nobody knows what became of it.
    pub(crate) fn outcome_unknown() -> Self {
        let detail = "the connection to the database was lost before it answered; \
                      repeat the request with the same idempotency key";
        Self::later(Code::OutcomeUnknown, detail, Duration::from_secs(1))
    }

    /// As many requests are in hand as may be.
    pub(crate) fn overloaded() -> Self {
        let detail = "as many requests are in hand as may be";
        Self::later(Code::Overloaded, detail, Duration::from_secs(1))
    }

    /// The process is on its way down.
    pub(crate) fn draining() -> Self {
        let detail = "this process is shutting down; another one will answer";
        Self::later(Code::Draining, detail, Duration::from_secs(1)).closing()
    }

    /// Our own fault; the log says which.
    pub(crate) fn internal() -> Self {
        Self::new(Code::Internal, "the request could not be worked on")
    }

    /// Nothing has this name.
    pub(crate) fn not_found(detail: &'static str) -> Self {
        Self::new(Code::NotFound, detail)
    }
}

/// Whether a statement would have changed something.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Changes {
    /// It only reads.
    Nothing,
    /// It writes.
    Something,
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Rejection::from(problem).into()
    }
}

impl From<Rejection> for Refusal {
    fn from(rejection: Rejection) -> Self {
        Self {
            rejection,
            headers: Vec::new(),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let code = self.rejection.code();
        REJECTIONS_TOTAL.counter(&[code.as_str()]).increment(1);
        let mut answer = Response::new(Body::from(document(&self.rejection)));
        *answer.status_mut() = status(code);
        let headers = answer.headers_mut();
        headers.insert(header::CONTENT_TYPE, PROBLEM_JSON);
        for (name, value) in self.headers {
            headers.append(name, value);
        }
        answer
    }
}

/// The HTTP status of a code.
fn status(code: Code) -> StatusCode {
    StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// A problem document.
#[derive(Serialize)]
struct Document<'a> {
    r#type: String,
    title: &'static str,
    status: u16,
    code: &'static str,
    detail: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<Error<'a>>,
}

/// One entry of the list of errors.
#[derive(Serialize)]
struct Error<'a> {
    pointer: &'a str,
    code: &'static str,
    detail: &'a str,
}

fn document(rejection: &Rejection) -> Bytes {
    let code = rejection.code();
    let problems = rejection.problems();
    let more = problems.len().saturating_sub(1) + rejection.left_out();
    let mut detail = problems
        .first()
        .map_or_else(String::new, |first| first.detail.to_string());
    if more > 0 {
        detail.push_str(&format!(" (and {more} more)"));
    }
    let is_about_input = matches!(code.status(), 400 | 409 | 413 | 422);
    let errors = problems
        .iter()
        .filter(|_| is_about_input)
        .map(|problem| Error {
            pointer: &problem.pointer,
            code: problem.code.as_str(),
            detail: &problem.detail,
        });
    let document = Document {
        r#type: format!("urn:hook:problem:{code}"),
        title: code.title(),
        status: code.status(),
        code: code.as_str(),
        detail,
        errors: errors.collect(),
    };
    serde_json::to_vec(&document)
        .expect("a problem document has text keys and no failing values")
        .into()
}

/// A whole HTTP answer as bytes that closes the connection, for heads that no handler gets to see.
pub(crate) fn raw_answer(code: Code, detail: &'static str) -> Vec<u8> {
    REJECTIONS_TOTAL.counter(&[code.as_str()]).increment(1);
    let body = document(&Problem::new(code, "", detail).into());
    let status = status(code);
    let mut headers = HeaderMap::new();
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, const { HeaderValue::from_static("1") });
    }
    let mut raw = format!(
        "HTTP/1.1 {} {}\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\nconnection: close\r\n",
        status.as_u16(),
        status.canonical_reason().unwrap_or_default(),
        body.len()
    )
    .into_bytes();
    if headers.contains_key(header::RETRY_AFTER) {
        raw.extend_from_slice(b"retry-after: 1\r\n");
    }
    raw.extend_from_slice(b"\r\n");
    raw.extend_from_slice(&body);
    raw
}
