//! What the sink does with one request.
//!
//! An [`Answer`] describes a whole exchange: when the body is read, what is written, how slowly,
//! and how the connection ends. It is turned into a list of plain steps, so that the code which
//! talks to the socket knows nothing of HTTP. Nothing checks that an answer is valid: most of
//! them exist because it is not.

use std::time::Duration;

use bytes::Bytes;

use crate::sink::body::Body;

/// One exchange, built from a status and changed by the methods below.
#[derive(Clone, Debug)]
pub struct Answer {
    pub(super) head: Head,
    pub(super) body: Body,
    pub(super) framing: Framing,
    pub(super) interim: Body,
    pub(super) surplus: Bytes,
    pub(super) body_read: BodyRead,
    pub(super) pauses: Pauses,
    pub(super) stage: Stage,
    pub(super) end: End,
}

#[derive(Clone, Debug)]
pub(super) enum Head {
    /// Status line and headers are rendered.
    Built {
        version: &'static str,
        status: u16,
        reason: Bytes,
        headers: Vec<(Bytes, Bytes)>,
    },
    /// The body holds everything that is written.
    Literal,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pauses {
    pub(super) before_read: Duration,
    pub(super) before_head: Duration,
    pub(super) before_body: Duration,
    pub(super) before_end: Duration,
    pub(super) head_gap: Duration,
    pub(super) body_gap: Duration,
}

/// How the length of the answer's body is declared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Framing {
    /// The true `Content-Length`; none for a status that has no body.
    Length,
    /// One chunk and the terminator.
    Chunked,
    /// This `Content-Length`, whatever the body is.
    Declared(u64),
    /// No framing header: the end of the connection ends the body.
    Nothing,
}

/// When the request's body is read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BodyRead {
    /// Before the first byte of the answer.
    First,
    /// After the answer, so that the connection can go on.
    Last,
    /// Not at all: closing then makes the kernel send a reset.
    Never,
}

/// The point of an exchange at which it ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stage {
    /// The head of the request was read, nothing of its body.
    HeadRead,
    /// The request was read, nothing was answered.
    BodyRead,
    /// So many bytes of the answer's head were written.
    MidHead(usize),
    /// So many bytes of the answer's body were written.
    MidBody(u64),
    /// The whole answer was written.
    Answered,
}

/// What becomes of the connection at the end of an exchange.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// It serves the next request, unless the request asked to close.
    KeepAlive,
    /// It serves the next request if that comes within this time, and is closed otherwise.
    CloseIdle(Duration),
    /// It is closed in both directions.
    Close,
    /// It is closed for writing; reading goes on until the peer closes.
    HalfClose,
    /// It is reset (`SO_LINGER` 0).
    Reset,
    /// It stays open and silent until the peer closes.
    Hold,
}

impl Answer {
    /// Answers with `status` and an empty body, and keeps the connection.
    #[must_use]
    pub fn status(status: u16) -> Self {
        let reason = http::StatusCode::from_u16(status)
            .ok()
            .and_then(|status| status.canonical_reason())
            .unwrap_or("Scripted");
        Self::with_head(Head::Built {
            version: "HTTP/1.1",
            status,
            reason: Bytes::from_static(reason.as_bytes()),
            headers: Vec::new(),
        })
    }

    /// Answers 200.
    #[must_use]
    pub fn ok() -> Self {
        Self::status(200)
    }

    /// Reads the request and never answers; ends when the peer closes.
    #[must_use]
    pub fn silence() -> Self {
        Self::ok().end_at(Stage::BodyRead, End::Hold)
    }

    /// Writes exactly these bytes as the whole answer, then closes.
    #[must_use]
    pub fn literal(bytes: impl Into<Bytes>) -> Self {
        Self::literal_body(Body::bytes(bytes))
    }

    /// Writes exactly this body, without any head, then closes.
    #[must_use]
    pub fn literal_body(body: Body) -> Self {
        Self::with_head(Head::Literal).body(body).then(End::Close)
    }

    fn with_head(head: Head) -> Self {
        Self {
            head,
            body: Body::default(),
            framing: Framing::Length,
            interim: Body::default(),
            surplus: Bytes::new(),
            body_read: BodyRead::First,
            pauses: Pauses::default(),
            stage: Stage::Answered,
            end: End::KeepAlive,
        }
    }

    /// Replaces the reason phrase, which may be any bytes.
    #[must_use]
    pub fn reason(mut self, bytes: impl Into<Bytes>) -> Self {
        if let Head::Built { reason, .. } = &mut self.head {
            *reason = bytes.into();
        }
        self
    }

    /// Adds a header line; name and value may be any bytes.
    #[must_use]
    pub fn header(mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        if let Head::Built { headers, .. } = &mut self.head {
            headers.push((name.into(), value.into()));
        }
        self
    }

    /// Speaks HTTP/1.0: no framing header, and the end of the connection ends the body.
    #[must_use]
    pub fn http10(mut self) -> Self {
        if let Head::Built { version, .. } = &mut self.head {
            *version = "HTTP/1.0";
        }
        self.framing(Framing::Nothing).then(End::Close)
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: Body) -> Self {
        self.body = body;
        self
    }

    /// Sets the body to these bytes.
    #[must_use]
    pub fn bytes(self, bytes: impl Into<Bytes>) -> Self {
        self.body(Body::bytes(bytes))
    }

    /// Sets how the body's length is declared.
    #[must_use]
    pub fn framing(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }

    /// Writes an interim answer (`100`, `103` …) before the head; repeated calls add up.
    #[must_use]
    pub fn interim(mut self, status: u16) -> Self {
        self.interim = self.interim.then(Body::bytes(interim_head(status)));
        self
    }

    /// Writes interim answers with this status until the peer goes away.
    #[must_use]
    pub fn endless_interim(mut self, status: u16) -> Self {
        self.interim = self.interim.then(Body::endless(interim_head(status)));
        self
    }

    /// Writes these bytes after the answer, as if they belonged to a next one.
    #[must_use]
    pub fn surplus(mut self, bytes: impl Into<Bytes>) -> Self {
        self.surplus = bytes.into();
        self
    }

    /// Sets when the request's body is read.
    #[must_use]
    pub fn body_read(mut self, body_read: BodyRead) -> Self {
        self.body_read = body_read;
        self
    }

    /// Waits after the request's head, before its body is read.
    #[must_use]
    pub fn pause_before_read(mut self, pause: Duration) -> Self {
        self.pauses.before_read = pause;
        self
    }

    /// Waits before the first byte of the answer.
    #[must_use]
    pub fn pause_before_head(mut self, pause: Duration) -> Self {
        self.pauses.before_head = pause;
        self
    }

    /// Waits between head and body.
    #[must_use]
    pub fn pause_before_body(mut self, pause: Duration) -> Self {
        self.pauses.before_body = pause;
        self
    }

    /// Waits after the last byte, before the exchange ends.
    #[must_use]
    pub fn pause_before_end(mut self, pause: Duration) -> Self {
        self.pauses.before_end = pause;
        self
    }

    /// Writes the head (and interim answers) one byte at a time, with this gap.
    #[must_use]
    pub fn head_gap(mut self, gap: Duration) -> Self {
        self.pauses.head_gap = gap;
        self
    }

    /// Writes the body one byte at a time, with this gap.
    #[must_use]
    pub fn body_gap(mut self, gap: Duration) -> Self {
        self.pauses.body_gap = gap;
        self
    }

    /// Ends the exchange at `stage`; nothing of what would follow is done.
    #[must_use]
    pub fn end_at(mut self, stage: Stage, end: End) -> Self {
        self.stage = stage;
        self.end = end;
        self
    }

    /// Sets what happens after the whole answer.
    #[must_use]
    pub fn then(self, end: End) -> Self {
        self.end_at(Stage::Answered, end)
    }
}

fn interim_head(status: u16) -> String {
    format!("HTTP/1.1 {status} Interim\r\n\r\n")
}
