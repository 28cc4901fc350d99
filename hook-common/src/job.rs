//! A job and what can happen to it: plain data, shared by every crate.
//!
//! Each enumeration that is stored has a fixed number (`code`) for the row and a fixed word
//! (`as_str`) for JSON, logs and metrics. Numbers are append-only: old rows and old processes
//! keep reading them.

use std::{fmt, time::Duration};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::target::Target;

/// Most signing secrets of one job.
pub const SIGNING_SECRETS_MAX: usize = 10;

/// Identifies a job; made by Postgres as a UUIDv7, so that ids sort by enqueue time.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct JobId(pub Uuid);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl JobId {
    /// Parses the hyphenated form that the product hands out; nothing else is an id.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 36 {
            return None;
        }
        Uuid::try_parse(text).ok().map(Self)
    }
}

/// Defines a stored enumeration: its words, its numbers, and both ways back.
macro_rules! stored_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $code:literal $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum $name { $($(#[$vmeta])* $variant,)+ }

        impl $name {
            /// Every value, in the order of the numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The number that rows hold.
            #[must_use]
            pub const fn code(self) -> i16 {
                match self { $(Self::$variant => $code,)+ }
            }

            /// The value with this number, if there is one.
            #[must_use]
            pub const fn from_code(code: i16) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)+ _ => None }
            }

            /// The word that JSON, logs and metrics show.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            /// The value with this word, if there is one.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

stored_enum! {
    /// Where a job stands.
    Status {
        /// Waiting for an attempt, perhaps scheduled for later.
        Available = 0 "available",
        /// Leased by a worker.
        Running = 1 "running",
        /// Delivered.
        Completed = 2 "completed",
        /// No attempt will follow on its own.
        Failed = 3 "failed",
        /// Stopped by a person before it was delivered.
        Cancelled = 4 "cancelled",
    }
}

stored_enum! {
    /// Which of the waiting lines of a target a job is in. Lower tiers are served first.
    Tier {
        /// First tries of targets in good standing.
        Primary = 0 "primary",
        /// First tries that the API put into the degraded queue.
        DegradedFirst = 1 "degraded_first",
        /// Retries, always in the degraded queue.
        DegradedRetry = 2 "degraded_retry",
    }
}

impl Tier {
    /// The queue that this tier belongs to.
    #[must_use]
    pub const fn queue(self) -> QueueName {
        match self {
            Self::Primary => QueueName::Primary,
            Self::DegradedFirst | Self::DegradedRetry => QueueName::Degraded,
        }
    }
}

/// The two queues that the outside knows.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueName {
    /// Where jobs start.
    Primary,
    /// Where retries, and first tries of penalised targets, wait.
    Degraded,
}

impl QueueName {
    /// Both queues.
    pub const ALL: &'static [Self] = &[Self::Primary, Self::Degraded];

    /// The word that JSON, settings, logs and metrics show.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Degraded => "degraded",
        }
    }

    /// The queue with this word, if there is one.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|queue| queue.as_str() == word)
    }

    /// The tiers that make up this queue, in serving order.
    #[must_use]
    pub const fn tiers(self) -> &'static [Tier] {
        match self {
            Self::Primary => &[Tier::Primary],
            Self::Degraded => &[Tier::DegradedFirst, Tier::DegradedRetry],
        }
    }
}

stored_enum! {
    /// HTTP methods that a job may use.
    Method {
        /// The default.
        Post = 0 "POST",
        /// Replace.
        Put = 1 "PUT",
        /// Change.
        Patch = 2 "PATCH",
        /// Remove.
        Delete = 3 "DELETE",
        /// Fetch; a body is allowed.
        Get = 4 "GET",
    }
}

stored_enum! {
    /// What an attempt came to.
    Outcome {
        /// A 2xx status line was read.
        Delivered = 0 "delivered",
        /// The target may accept it later.
        Retryable = 1 "retryable",
        /// Trying again cannot help.
        Permanent = 2 "permanent",
    }
}

stored_enum! {
    /// Why an attempt did not deliver.
    ErrorKind {
        /// The target answered with a status that is not 2xx.
        HttpStatus = 0 "http_status",
        /// The target answered 3xx, which is never followed.
        Redirect = 1 "redirect",
        /// A deadline passed (connect included).
        Timeout = 2 "timeout",
        /// No connection could be made.
        Connect = 3 "connect",
        /// The TLS handshake failed.
        Tls = 4 "tls",
        /// The name could not be resolved.
        Dns = 5 "dns",
        /// The connection was lost before an answer.
        Reset = 6 "reset",
        /// The address is one that must not be reached.
        BlockedAddress = 7 "blocked_address",
        /// The answer was not HTTP, or broke its limits.
        InvalidResponse = 8 "invalid_response",
        /// The job's time to live ended before an attempt could start.
        Expired = 9 "expired",
        /// The worker that held the lease did not report in time.
        LeaseExpired = 10 "lease_expired",
        /// The stored job cannot be sent as it is.
        InvalidRequest = 11 "invalid_request",
        /// Our own fault.
        Internal = 12 "internal",
    }
}

/// A validated job on its way into the queue.
#[derive(Clone, Debug)]
pub struct NewJob {
    /// Normalised absolute URL without user info and fragment.
    pub url: String,
    /// The destination key.
    pub target: Target,
    /// HTTP method.
    pub method: Method,
    /// Header names and values to send, in the given order.
    pub headers: Vec<(String, String)>,
    /// The exact bytes to send.
    pub body: Bytes,
    /// A JSON object as written, stored and given back, never sent. `None` means `{}`.
    pub metadata: Option<String>,
    /// When the first attempt may start.
    pub due: Due,
    /// After this, no attempt starts.
    pub expires: Expiry,
    /// Attempts in all; `None` means the worker's setting.
    pub max_attempts: Option<i16>,
    /// Whole-attempt deadline; `None` means the worker's setting.
    pub timeout: Option<Duration>,
    /// The key and the digest of the request that used it.
    pub idempotency: Option<Idempotency>,
    /// Names of the secrets that sign the body; empty means unsigned.
    pub signing: Vec<String>,
}

/// When a job may first be attempted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Due {
    /// As soon as it is stored.
    #[default]
    Now,
    /// Not before this time.
    At(DateTime<Utc>),
    /// This long after it is stored, by Postgres's clock.
    After(Duration),
}

/// When a job stops being worth an attempt.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Expiry {
    /// Never.
    #[default]
    Never,
    /// After this time.
    At(DateTime<Utc>),
    /// This long after it is stored, by Postgres's clock.
    After(Duration),
}

/// Makes a repeated enqueue request harmless.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Idempotency {
    /// The producer's key: 1 to 255 printable characters.
    pub key: String,
    /// SHA-256 over everything that makes the request what it is, the key excluded.
    pub request_sha256: [u8; 32],
}
