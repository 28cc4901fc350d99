//! An answer as a list of plain steps.
//!
//! The code that talks to the socket follows these steps and knows nothing of HTTP; everything
//! that decides which bytes are written, and when, is here and needs no socket.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use crate::sink::answer::{Answer, BodyRead, End, Framing, Head, Stage};
use crate::sink::body::{Body, Part};

/// One thing to do on the socket.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Pause(Duration),
    ReadBody,
    /// With a gap, each byte is written on its own.
    Write {
        part: Part,
        gap: Duration,
    },
}

/// The part of an answer that does not depend on the version of HTTP.
pub(super) struct Message<'a> {
    pub(super) status: u16,
    pub(super) headers: &'a [(Bytes, Bytes)],
    pub(super) body: Bytes,
    pub(super) pause: Duration,
}

impl Answer {
    /// The steps of this exchange and how it ends.
    pub(super) fn plan(self) -> (Vec<Step>, End) {
        let end = self.end_of_connection();
        let pauses = self.pauses;
        let head = self.head_bytes();
        let mut plan = Plan(Vec::new());
        plan.pause(pauses.before_read);
        if self.stage == Stage::HeadRead {
            return (plan.0, end);
        }
        if self.body_read == BodyRead::First {
            plan.0.push(Step::ReadBody);
        }
        if self.stage == Stage::BodyRead {
            return (plan.0, end);
        }
        plan.pause(pauses.before_head);
        plan.write(self.interim, pauses.head_gap);
        if let Stage::MidHead(limit) = self.stage {
            plan.write(head.cut(limit as u64), pauses.head_gap);
            plan.pause(pauses.before_end);
            return (plan.0, end);
        }
        plan.write(head, pauses.head_gap);
        plan.pause(pauses.before_body);
        if let Stage::MidBody(limit) = self.stage {
            plan.write(self.body.cut(limit), pauses.body_gap);
            plan.pause(pauses.before_end);
            return (plan.0, end);
        }
        let chunk_line = self.body.len().filter(|length| *length > 0);
        match (self.framing, chunk_line) {
            (Framing::Chunked, Some(length)) => {
                plan.write(Body::bytes(format!("{length:x}\r\n")), Duration::ZERO);
                plan.write(self.body, pauses.body_gap);
                plan.write(Body::bytes("\r\n0\r\n\r\n"), Duration::ZERO);
            }
            (Framing::Chunked, None) => plan.write(Body::bytes("0\r\n\r\n"), Duration::ZERO),
            (Framing::Length | Framing::Declared(_) | Framing::Nothing, _) => {
                plan.write(self.body, pauses.body_gap);
            }
        }
        plan.write(Body::bytes(self.surplus), Duration::ZERO);
        if self.body_read == BodyRead::Last {
            plan.0.push(Step::ReadBody);
        }
        plan.pause(pauses.before_end);
        (plan.0, end)
    }

    /// A body without framing ends with the connection, so that it cannot be kept.
    fn end_of_connection(&self) -> End {
        let unframed = self.framing == Framing::Nothing && !self.body.is_empty();
        let unread = self.body_read == BodyRead::Never;
        match self.end {
            End::KeepAlive | End::CloseIdle(_) if unframed || unread => End::Close,
            end @ (End::KeepAlive
            | End::CloseIdle(_)
            | End::Close
            | End::HalfClose
            | End::Reset
            | End::Hold) => end,
        }
    }

    fn head_bytes(&self) -> Body {
        let Head::Built {
            version,
            status,
            reason,
            headers,
        } = &self.head
        else {
            return Body::default();
        };
        let mut out = BytesMut::new();
        out.put_slice(format!("{version} {status:03} ").as_bytes());
        out.put_slice(reason);
        out.put_slice(b"\r\n");
        for (name, value) in headers {
            for piece in [name, &b": "[..], value, &b"\r\n"[..]] {
                out.put_slice(piece);
            }
        }
        let bodiless = matches!(status, 100..=199 | 204 | 304);
        match (self.framing, self.body.len()) {
            (Framing::Length, Some(length)) if !bodiless => {
                out.put_slice(format!("content-length: {length}\r\n").as_bytes());
            }
            (Framing::Declared(length), _) => {
                out.put_slice(format!("content-length: {length}\r\n").as_bytes());
            }
            (Framing::Chunked, _) => out.put_slice(b"transfer-encoding: chunked\r\n"),
            (Framing::Length | Framing::Nothing, _) => {}
        }
        out.put_slice(b"\r\n");
        Body::bytes(out.freeze())
    }

    /// Status, headers, body and the pause before them: what HTTP/2 can express of this answer.
    pub(super) fn message(&self) -> Option<Message<'_>> {
        let Head::Built {
            status, headers, ..
        } = &self.head
        else {
            return None;
        };
        Some(Message {
            status: *status,
            headers,
            body: self.body.to_bytes(),
            pause: self.pauses.before_head,
        })
    }
}

struct Plan(Vec<Step>);

impl Plan {
    fn pause(&mut self, duration: Duration) {
        if !duration.is_zero() {
            self.0.push(Step::Pause(duration));
        }
    }

    fn write(&mut self, body: Body, gap: Duration) {
        for part in body.parts.into_iter().filter(|part| part.total > 0) {
            self.0.push(Step::Write { part, gap });
        }
    }
}
