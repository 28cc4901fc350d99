//! What an answer, or the lack of one, means for the job: pure, so that the table can be read
//! and tested in one place.
//!
//! The status line alone decides. A success stays a success whatever happens to its body, and a
//! client error is never held against the target.

use hook_common::job::{ErrorKind, Outcome};

/// Why an attempt ended without a status.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum TransportError {
    /// The name could not be resolved.
    Dns,
    /// A deadline passed before the head of an answer was read.
    Timeout,
    /// No connection could be made, or it was gone before a byte of the request was on it.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The connection was lost after the request began and before an answer.
    Reset,
    /// The peer sent something that is not an HTTP answer, or broke a limit on answers.
    InvalidResponse,
    /// The address, or the name, is one that must not be reached.
    BlockedAddress,
    /// The stored job cannot be sent as it is.
    InvalidRequest,
    /// Our own machinery failed, for instance for lack of file descriptors.
    Internal,
}

/// Classifies an attempt that got the head of an answer.
///
/// Interim answers never come here, with one exception: 101 ends an exchange for good.
#[must_use]
pub fn status(code: u16) -> (Outcome, Option<ErrorKind>) {
    match code {
        200..=299 => (Outcome::Delivered, None),
        // We never ask for an upgrade, so the peer is not speaking HTTP with us.
        100..=199 => (Outcome::Permanent, Some(ErrorKind::InvalidResponse)),
        300..=399 => (Outcome::Permanent, Some(ErrorKind::Redirect)),
        408 | 425 | 429 | 500..=599 => (Outcome::Retryable, Some(ErrorKind::HttpStatus)),
        _ => (Outcome::Permanent, Some(ErrorKind::HttpStatus)),
    }
}

/// Classifies an attempt that got no status.
#[must_use]
pub const fn transport(error: TransportError) -> (Outcome, ErrorKind) {
    match error {
        TransportError::Dns => (Outcome::Retryable, ErrorKind::Dns),
        TransportError::Timeout => (Outcome::Retryable, ErrorKind::Timeout),
        TransportError::Connect => (Outcome::Retryable, ErrorKind::Connect),
        TransportError::Tls => (Outcome::Retryable, ErrorKind::Tls),
        TransportError::Reset => (Outcome::Retryable, ErrorKind::Reset),
        TransportError::InvalidResponse => (Outcome::Retryable, ErrorKind::InvalidResponse),
        TransportError::BlockedAddress => (Outcome::Permanent, ErrorKind::BlockedAddress),
        TransportError::InvalidRequest => (Outcome::Permanent, ErrorKind::InvalidRequest),
        TransportError::Internal => (Outcome::Retryable, ErrorKind::Internal),
    }
}

/// Whether the status may carry a wait that is honoured.
#[must_use]
pub const fn may_ask_to_wait(code: u16) -> bool {
    matches!(code, 429 | 503)
}

#[cfg(test)]
mod tests;
