//! Why an exchange got no answer, told by the errors of the libraries underneath.
//!
//! Texts are our own and name no address: they may end up in a log, and an address that a name
//! leads to is nobody's business but the resolver's.

use std::{error::Error, io};

use crate::{classify::TransportError, client::wire::Meter};

/// Why there is no answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Failure {
    /// What it means for the job.
    pub(crate) error: TransportError,
    /// For people; short, constant, without addresses and URLs.
    pub(crate) text: &'static str,
    /// Whether not a byte of an answer had come, so that a repeat on a fresh connection is fair.
    pub(crate) unanswered: bool,
}

impl Failure {
    /// A failure before or outside of any exchange.
    pub(crate) const fn new(error: TransportError, text: &'static str) -> Self {
        Self {
            error,
            text,
            unanswered: false,
        }
    }

    /// The connection was lost.
    pub(crate) const fn reset(text: &'static str) -> Self {
        Self::new(TransportError::Reset, text)
    }

    /// A deadline passed.
    pub(crate) const fn timeout(text: &'static str) -> Self {
        Self::new(TransportError::Timeout, text)
    }

    /// The attempt's deadline passed while an answer was awaited.
    pub(crate) const fn no_answer() -> Self {
        Self::timeout("no answer before the deadline")
    }

    /// The peer sent interim answers without end, or nearly so.
    pub(crate) const fn too_many_interim_answers() -> Self {
        let text = "more interim answers than allowed";
        Self::new(TransportError::InvalidResponse, text)
    }

    /// The peer sent bytes before it was asked anything.
    pub(crate) const fn spoke_first() -> Self {
        let text = "the peer speaks first, so this is not HTTP";
        Self::new(TransportError::InvalidResponse, text)
    }

    /// Says whether a byte of the answer had come.
    pub(crate) const fn unanswered(mut self, unanswered: bool) -> Self {
        self.unanswered = unanswered;
        self
    }

    /// Reads an error of the HTTP library.
    pub(crate) fn of_http(error: &hyper::Error, meter: &Meter) -> Self {
        if meter.is_flooded() {
            return Self::too_many_interim_answers();
        }
        if error.is_parse_too_large() {
            let text = "the head of the answer is too large";
            return Self::new(TransportError::InvalidResponse, text);
        }
        if error.is_parse() {
            return Self::new(TransportError::InvalidResponse, "the answer is not HTTP");
        }
        if error.is_user() {
            let text = "the request cannot be put on the wire";
            return Self::new(TransportError::InvalidRequest, text);
        }
        if let Some(failure) = Self::of_h2(error) {
            return failure;
        }
        if source_of::<rustls::Error>(error).is_some() {
            return Self::new(TransportError::Tls, "the peer ended the TLS session");
        }
        if meter.written_bytes() == 0 && meter.read_bytes() > 0 {
            return Self::spoke_first();
        }
        if meter.written_bytes() == 0 {
            let text = "the connection was gone before the request";
            return Self::new(TransportError::Connect, text);
        }
        Self::reset("the connection was lost before an answer")
    }

    /// Whether a peer that ended an HTTP/2 stream may have acted on its request.
    ///
    /// A refused stream was not looked at, and a lost connection is judged as on HTTP/1.1. Any
    /// other reset comes from somebody who had begun to work.
    pub(crate) fn may_have_been_processed(error: &hyper::Error) -> bool {
        source_of::<h2::Error>(error).is_some_and(|error| {
            error.is_reset() && error.reason() != Some(h2::Reason::REFUSED_STREAM)
        })
    }

    fn of_h2(error: &hyper::Error) -> Option<Self> {
        let error = source_of::<h2::Error>(error)?;
        if error.is_io() {
            return None;
        }
        // What the peer refuses or gives up is a loss; what it got wrong is our finding.
        Some(if error.is_remote() {
            Self::reset("the peer ended the HTTP/2 stream")
        } else {
            let text = "the answer is not valid HTTP/2";
            Self::new(TransportError::InvalidResponse, text)
        })
    }

    /// Reads an error of connecting.
    pub(crate) fn of_connect(error: &io::Error) -> Self {
        // Running out of files or ports is our own trouble and says nothing about the target.
        let ours = matches!(
            error.raw_os_error(),
            Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
        ) || error.kind() == io::ErrorKind::AddrNotAvailable;
        if ours {
            Self::new(
                TransportError::Internal,
                "no socket is left for a connection",
            )
        } else if error.kind() == io::ErrorKind::TimedOut {
            Self::timeout("the connection could not be made in time")
        } else {
            Self::new(TransportError::Connect, "the connection was refused")
        }
    }

    /// Reads an error of the TLS handshake.
    pub(crate) fn of_handshake(error: &io::Error) -> Self {
        let lost = matches!(
            error.kind(),
            io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe
        );
        if lost {
            let text = "the connection was reset during the TLS handshake";
            Self::new(TransportError::Connect, text)
        } else {
            Self::new(TransportError::Tls, "the TLS handshake failed")
        }
    }
}

/// The first error of type `T` in a chain of sources.
fn source_of<'e, T: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        // An io::Error hides what it wraps from `source` of its own.
        if let Some(inner) = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
        {
            next = Some(inner);
            continue;
        }
        next = error.source();
    }
    None
}
