//! `Problem`: what is wrong with a request, in the words that its sender gets to read.
//!
//! Every refusal of the public API has a stable [`Code`], and each code has one HTTP status, so
//! that producers can branch on either. Details name fields, limits and positions. They never
//! repeat a value, because a value may be a secret.

use std::borrow::Cow;
use std::fmt;

/// Defines [`Code`]: variants, words, statuses and titles in one table.
macro_rules! codes {
    ($($(#[$meta:meta])* $variant:ident = $word:literal $status:literal $title:literal,)+) => {
        /// The stable name of a kind of refusal.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        pub enum Code { $($(#[$meta])* $variant,)+ }

        impl Code {
            /// Every code, for documents and tests.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word in the `code` member of an answer.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            /// The HTTP status that belongs to this code.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)+ }
            }

            /// A short summary that is the same for every occurrence.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)+ }
            }
        }
    };
}

codes! {
    /// Not JSON, not an object, not UTF-8, a key given twice, or nested too deep.
    JsonInvalid = "json_invalid" 400 "The request is not valid JSON",
    /// A request header that may come once came twice.
    DuplicateHeader = "duplicate_header" 400 "A request header was given twice",
    /// The request cannot be read for another reason.
    RequestInvalid = "request_invalid" 400 "The request cannot be read",
    /// No valid token came with the request.
    Unauthorized = "unauthorized" 401 "A valid token is needed",
    /// The token may not do this.
    Forbidden = "forbidden" 403 "This token may not do this",
    /// No such route, job, target or secret.
    NotFound = "not_found" 404 "There is nothing here",
    /// The route exists, but not with this method.
    MethodNotAllowed = "method_not_allowed" 405 "This method is not offered here",
    /// The client took too long to send its request.
    RequestTimeout = "request_timeout" 408 "The request did not arrive in time",
    /// The idempotency key came before with another request.
    IdempotencyKeyReused = "idempotency_key_reused" 409 "The idempotency key was used for another request",
    /// The job's state rules the action out.
    StateConflict = "state_conflict" 409 "The job's state does not allow this",
    /// The request, or the body of one job, is above its limit.
    BodyTooLarge = "body_too_large" 413 "The body is too large",
    /// The request's content type is not one that the route takes.
    ContentType = "content_type" 415 "The content type is not supported",
    /// The request is compressed, which is never accepted.
    EncodingUnsupported = "encoding_unsupported" 415 "Content encodings are not supported",
    /// A field that does not exist.
    UnknownField = "unknown_field" 422 "There is no such field",
    /// A field with a value that it cannot have.
    FieldInvalid = "field_invalid" 422 "A field is not valid",
    /// Not an absolute URL that can be sent to.
    UrlInvalid = "url_invalid" 422 "The URL is not valid",
    /// Neither `http` nor `https`.
    SchemeForbidden = "scheme_forbidden" 422 "The URL's scheme is not allowed",
    /// `http`, where only `https` is allowed.
    HttpsRequired = "https_required" 422 "Only https URLs are allowed",
    /// A port that must not be reached.
    PortForbidden = "port_forbidden" 422 "The URL's port is not allowed",
    /// An address or a name that must not be reached.
    TargetForbidden = "target_forbidden" 422 "The URL's host is not allowed",
    /// A header that cannot be sent.
    HeaderInvalid = "header_invalid" 422 "A header is not valid",
    /// A header that belongs to the transport, to this product or to a cloud's inner services.
    HeaderReserved = "header_reserved" 422 "A header is reserved",
    /// One header name twice, in whatever case.
    HeaderDuplicate = "header_duplicate" 422 "A header was given twice",
    /// A signing secret with this name is not stored.
    SecretUnknown = "secret_unknown" 422 "There is no such signing secret",
    /// Not a signing secret in one of the known forms.
    SecretInvalid = "secret_invalid" 422 "The signing secret is not valid",
    /// A signing secret below the least length.
    SecretTooShort = "secret_too_short" 422 "The signing secret is too short",
    /// The queue holds as many jobs as it may.
    QueueFull = "queue_full" 429 "The queue is full",
    /// The request's head is above its limits.
    HeadTooLarge = "head_too_large" 431 "The request head is too large",
    /// Our own fault.
    Internal = "internal" 500 "Something went wrong on our side",
    /// The process has not finished starting.
    NotReady = "not_ready" 503 "The service is not ready",
    /// The process is on its way down.
    Draining = "draining" 503 "The service is shutting down",
    /// As many requests are in hand as may be.
    Overloaded = "overloaded" 503 "The service is busy",
    /// Postgres did not answer in time, and nothing was stored.
    DatabaseUnavailable = "database_unavailable" 503 "The database cannot be reached",
    /// The connection broke after the statement was sent: it may have been stored.
    OutcomeUnknown = "outcome_unknown" 503 "It is not known whether this was stored",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One thing that is wrong, and where.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// What kind of thing.
    pub code: Code,
    /// Where, as a JSON pointer (RFC 6901) into the request; empty for the whole of it.
    pub pointer: String,
    /// A sentence for the person who sent it, without values from the request.
    pub detail: Cow<'static, str>,
}

impl Problem {
    /// Makes a problem at `pointer`.
    pub fn new(
        code: Code,
        pointer: impl Into<String>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            code,
            pointer: pointer.into(),
            detail: detail.into(),
        }
    }

    /// The same problem, seen from the document that holds this one at `prefix`.
    #[must_use]
    pub fn under(mut self, prefix: &str) -> Self {
        self.pointer.insert_str(0, prefix);
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pointer.is_empty() {
            write!(f, "{}: {}", self.code, self.detail)
        } else {
            write!(f, "{} at {}: {}", self.code, self.pointer, self.detail)
        }
    }
}

impl std::error::Error for Problem {}

/// Collects everything that is wrong, so that a sender learns all of it at once.
///
/// At most [`Problems::MAX`] are kept: a hostile request must not make an answer much larger than
/// itself. The rest is only counted.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Problems {
    list: Vec<Problem>,
    left_out: usize,
}

impl Problems {
    /// Most problems kept of one job.
    pub const MAX_OF_ONE_JOB: usize = 32;
    /// Most problems kept of one request: the first of each job of a full batch always fits.
    pub const MAX: usize = 4096;

    /// How many problems of the next job are kept, if `jobs_max` more may follow it: the first of
    /// each has its place.
    #[must_use]
    pub fn room_for_job(&self, jobs_max: usize) -> usize {
        let free = Self::MAX.saturating_sub(self.list.len() + jobs_max);
        free.clamp(1, Self::MAX_OF_ONE_JOB)
    }

    /// Adds one.
    pub fn push(&mut self, problem: Problem) {
        if self.list.len() < Self::MAX {
            self.list.push(problem);
        } else {
            self.left_out += 1;
        }
    }

    /// Adds what is wrong with one part of a larger document that holds it at `prefix`.
    ///
    /// `room` is how many of the part's problems are kept.
    pub fn absorb(&mut self, part: Self, prefix: &str, room: usize) {
        self.left_out += part.left_out + part.list.len().saturating_sub(room);
        for problem in part.list.into_iter().take(room) {
            self.push(problem.under(prefix));
        }
    }

    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The problems, in the order in which they were found.
    #[must_use]
    pub fn list(&self) -> &[Problem] {
        &self.list
    }

    /// How many more there were.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// The refusal that these problems amount to, if there is any.
    #[must_use]
    pub fn into_rejection(self) -> Option<Rejection> {
        let first = self.list.first()?.code;
        Some(Rejection {
            code: first,
            problems: self,
        })
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self {
            list: vec![problem],
            left_out: 0,
        }
    }
}

/// A refused request: the code of its first problem, and all of them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rejection {
    code: Code,
    problems: Problems,
}

impl Rejection {
    /// The code that the answer carries.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// Everything that is wrong; never empty.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        self.problems.list()
    }

    /// How many problems more there were than are listed.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.problems.left_out()
    }
}

impl From<Problem> for Rejection {
    fn from(problem: Problem) -> Self {
        Self {
            code: problem.code,
            problems: problem.into(),
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems() {
            [] => write!(f, "{}", self.code),
            [only] => write!(f, "{only}"),
            [first, rest @ ..] => write!(f, "{first} (and {} more)", rest.len() + self.left_out()),
        }
    }
}

impl std::error::Error for Rejection {}

/// Appends `token` to a JSON pointer, escaped as RFC 6901 wants it.
pub fn push_token(pointer: &mut String, token: &str) {
    pointer.push('/');
    for letter in token.chars() {
        match letter {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            other => pointer.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_escaped() {
        let mut pointer = String::from("/headers");
        push_token(&mut pointer, "a/b~c");
        assert_eq!(pointer, "/headers/a~1b~0c");
    }

    #[test]
    fn a_rejection_has_the_code_of_its_first_problem() {
        let mut problems = Problems::default();
        assert!(problems.is_empty());
        assert!(problems.clone().into_rejection().is_none());
        problems.push(Problem::new(Code::UrlInvalid, "/url", "a"));
        problems.push(Problem::new(Code::FieldInvalid, "/method", "b"));
        let rejection = problems.into_rejection().unwrap();
        assert_eq!(rejection.code(), Code::UrlInvalid);
        assert_eq!(rejection.problems().len(), 2);
        assert_eq!(rejection.to_string(), "url_invalid at /url: a (and 1 more)");
    }

    #[test]
    fn the_list_is_bounded_and_the_rest_counted() {
        let one = || Problem::new(Code::FieldInvalid, "/x", "y");
        let mut part = Problems::default();
        for _ in 0..40 {
            part.push(one());
        }
        let mut all = Problems::default();
        all.absorb(part, "/jobs/7", Problems::MAX_OF_ONE_JOB);
        assert_eq!(all.list().len(), Problems::MAX_OF_ONE_JOB);
        assert_eq!(all.left_out(), 8);
        assert_eq!(all.list()[0].pointer, "/jobs/7/x");
        for _ in 0..2 * Problems::MAX {
            all.push(one());
        }
        assert_eq!(all.list().len(), Problems::MAX);
        assert_eq!(all.left_out(), 8 + Problems::MAX + Problems::MAX_OF_ONE_JOB);
    }

    #[test]
    fn every_code_is_a_distinct_snake_case_word() {
        let mut words: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        for word in &words {
            assert!(
                word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{word}"
            );
        }
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Code::ALL.len());
    }
}
