//! What a request must pass before its handler works on it, and how much of it is held meanwhile.
//!
//! Everything that can be refused early is refused before a byte of the body is read. The permit
//! is taken after the body has arrived: a slow sender holds a connection and its own bytes, never
//! a place that a complete request could use. All bodies together have a bound of their own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{body::Body, extract::Request};
use bytes::{Bytes, BytesMut};
use hook_common::{
    gate::{Gate, Permit},
    lifecycle::{Stop, within},
    ops::Readiness,
    problem::Code,
};
use http::{HeaderMap, HeaderValue, header, request::Parts};
use http_body_util::BodyExt as _;

use crate::{auth::Grant, problem::Refusal};

/// Bytes of all request bodies together that may be held beyond [`FREE_BYTES`] each.
const BODIES_BYTES_MAX: usize = 256 * 1024 * 1024;
/// What every request may hold without asking; the number of connections bounds these.
const FREE_BYTES: usize = 64 * 1024;
/// Largest body of a request that manages something.
const MANAGE_BODY_BYTES_MAX: usize = 64 * 1024;
/// Largest body of a request whose body says nothing.
const ACTION_BODY_BYTES_MAX: usize = 1024;
/// After an answer that says "not ready", a client should wait this long.
const NOT_READY_PAUSE: Duration = Duration::from_secs(2);

/// The conditions of entry.
#[derive(Debug)]
pub(crate) struct Admission {
    gate: Gate,
    readiness: Readiness,
    stop: Stop,
    limits: BodyLimits,
    held: Arc<Held>,
}

/// How large a request body may be and how long it may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits {
    /// Largest body.
    pub(crate) bytes_max: usize,
    /// From the head to the last byte.
    pub(crate) timeout: Duration,
}

/// A request that may be worked on. It holds its permit until it is dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    /// Head of the request.
    pub(crate) parts: Parts,
    /// Its whole body.
    pub(crate) body: Bytes,
    _permit: Permit,
    _share: Share,
}

/// Which content types a route takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Content {
    /// `application/json` only.
    Json,
    /// Also `application/x-ndjson`.
    JsonOrLines,
}

/// Which grants a route asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Access {
    /// Any valid token.
    Enqueue,
    /// A token that may do everything.
    Manage,
}

impl Admission {
    pub(crate) fn new(
        in_flight_max: usize,
        limits: BodyLimits,
        readiness: Readiness,
        stop: Stop,
    ) -> Self {
        Self {
            gate: Gate::new("api_requests", in_flight_max),
            readiness,
            stop,
            limits,
            held: Arc::default(),
        }
    }

    /// Admits a request with a body that matters.
    pub(crate) async fn with_body(
        &self,
        request: Request,
        access: Access,
        content: Content,
    ) -> Result<Admitted, Refusal> {
        let (parts, body) = request.into_parts();
        refuse_grant(&parts, access)?;
        self.refuse_unready()?;
        refuse_encoding(&parts.headers)?;
        refuse_content_type(&parts.headers, content)?;
        let bytes_max = match access {
            Access::Enqueue => self.limits.bytes_max,
            Access::Manage => self.limits.bytes_max.min(MANAGE_BODY_BYTES_MAX),
        };
        self.finish(parts, body, bytes_max).await
    }

    /// Admits a request to a route that takes no body.
    pub(crate) fn without_body(
        &self,
        request: Request,
        access: Access,
    ) -> Result<Admitted, Refusal> {
        let (parts, body) = request.into_parts();
        refuse_grant(&parts, access)?;
        self.refuse_unready()?;
        if !http_body::Body::is_end_stream(&body) {
            let detail = "this route takes no body";
            return Err(Refusal::new(Code::RequestInvalid, detail).closing());
        }
        self.enter(parts, Bytes::new(), Share::none(&self.held))
    }

    /// Admits a request whose body says nothing: it is empty or an empty object.
    pub(crate) async fn action(&self, request: Request) -> Result<Admitted, Refusal> {
        let (parts, body) = request.into_parts();
        refuse_grant(&parts, Access::Manage)?;
        self.refuse_unready()?;
        refuse_encoding(&parts.headers)?;
        let admitted = self.finish(parts, body, ACTION_BODY_BYTES_MAX).await?;
        let mut said = admitted.body.iter().filter(|b| !b.is_ascii_whitespace());
        let is_empty = match (said.next(), said.next(), said.next()) {
            (None, _, _) => true,
            (Some(open), Some(close), None) => (*open, *close) == (b'{', b'}'),
            _ => false,
        };
        if is_empty {
            Ok(admitted)
        } else {
            let detail = "this route takes no body";
            Err(Refusal::new(Code::RequestInvalid, detail))
        }
    }

    async fn finish(
        &self,
        parts: Parts,
        body: Body,
        bytes_max: usize,
    ) -> Result<Admitted, Refusal> {
        let declared = http_body::Body::size_hint(&body).lower();
        if declared > u64::try_from(bytes_max).unwrap_or(u64::MAX) {
            return Err(too_large());
        }
        if self.gate.free() == 0 {
            return Err(Refusal::overloaded());
        }
        let reading = Reading {
            whole: BytesMut::new(),
            only: None,
            bytes_max,
            share: Share::none(&self.held),
        };
        let Some(read) = within(self.limits.timeout, reading.read_to_end(body)).await else {
            let detail = "the request body did not arrive in time";
            return Err(Refusal::new(Code::RequestTimeout, detail).closing());
        };
        let (body, share) = read?;
        self.enter(parts, body, share)
    }

    fn enter(&self, parts: Parts, body: Bytes, share: Share) -> Result<Admitted, Refusal> {
        let permit = self.gate.try_enter().ok_or_else(Refusal::overloaded)?;
        Ok(Admitted {
            parts,
            body,
            _permit: permit,
            _share: share,
        })
    }

    fn refuse_unready(&self) -> Result<(), Refusal> {
        if self.stop.is_draining() {
            return Err(Refusal::draining());
        }
        if self.readiness.postgres_refuses() {
            return Err(Refusal::database_unavailable());
        }
        if self.readiness.is_ready() {
            return Ok(());
        }
        if self.readiness.postgres_is_near() {
            let detail = "the service is not ready";
            Err(Refusal::later(Code::NotReady, detail, NOT_READY_PAUSE))
        } else {
            Err(Refusal::database_unavailable())
        }
    }
}

/// Collects a body. One that arrives in one piece, as most do, is not copied.
struct Reading {
    only: Option<Bytes>,
    whole: BytesMut,
    bytes_max: usize,
    share: Share,
}

impl Reading {
    async fn read_to_end(mut self, mut body: Body) -> Result<(Bytes, Share), Refusal> {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| {
                let detail = "the request body is cut short or not valid HTTP";
                Refusal::new(Code::RequestInvalid, detail).closing()
            })?;
            if let Ok(data) = frame.into_data() {
                self.add(data)?;
            }
        }
        let body = self.only.take().unwrap_or_else(|| self.whole.freeze());
        Ok((body, self.share))
    }

    fn add(&mut self, data: Bytes) -> Result<(), Refusal> {
        let before = self.whole.len() + self.only.as_ref().map_or(0, Bytes::len);
        if before + data.len() > self.bytes_max {
            return Err(too_large());
        }
        self.share.grow_to(before + data.len())?;
        if before == 0 {
            self.only = Some(data);
            return Ok(());
        }
        if let Some(first) = self.only.take() {
            self.whole.extend_from_slice(&first);
        }
        self.whole.extend_from_slice(&data);
        Ok(())
    }
}

/// Bytes of bodies that are held beyond what is free.
#[derive(Debug, Default)]
struct Held(AtomicUsize);

/// The part of one request in [`Held`].
#[derive(Debug)]
struct Share {
    held: Arc<Held>,
    bytes: usize,
}

impl Share {
    fn none(held: &Arc<Held>) -> Self {
        Self {
            held: Arc::clone(held),
            bytes: 0,
        }
    }

    fn grow_to(&mut self, body_bytes: usize) -> Result<(), Refusal> {
        let wanted = body_bytes.saturating_sub(FREE_BYTES);
        let more = wanted.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let before = self.held.0.fetch_add(more, Ordering::Relaxed);
        self.bytes = wanted;
        if before + more > BODIES_BYTES_MAX {
            return Err(Refusal::overloaded().closing());
        }
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.held.0.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

fn refuse_grant(parts: &Parts, access: Access) -> Result<(), Refusal> {
    match (parts.extensions.get::<Grant>(), access) {
        (Some(Grant::All), _) | (Some(Grant::EnqueueOnly), Access::Enqueue) => Ok(()),
        (Some(Grant::EnqueueOnly), Access::Manage) => {
            let detail = "this token may only enqueue";
            Err(Refusal::new(Code::Forbidden, detail))
        }
        (None, _) => Err(Refusal::internal()),
    }
}

/// Refuses compressed bodies: what a small one unfolds to has no bound.
fn refuse_encoding(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut transfer = headers.get_all(header::TRANSFER_ENCODING).iter();
    let once = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    if !transfer.next().is_none_or(once) || transfer.next().is_some() {
        let detail = "send the body as it is, without a transfer coding but chunked";
        return Err(Refusal::new(Code::EncodingUnsupported, detail).closing());
    }
    match headers.get(header::CONTENT_ENCODING) {
        Some(coding) if !coding.as_bytes().eq_ignore_ascii_case(b"identity") => {
            let detail = "send the body as it is, without a content encoding";
            let identity = const { HeaderValue::from_static("identity") };
            Err(Refusal::new(Code::EncodingUnsupported, detail)
                .with(header::ACCEPT_ENCODING, identity)
                .closing())
        }
        Some(_) | None => Ok(()),
    }
}

/// Refuses other content types. A page of another site can send forms and plain text on behalf of
/// a user's browser, but not JSON.
fn refuse_content_type(headers: &HeaderMap, content: Content) -> Result<(), Refusal> {
    let given = media_type(headers);
    let is_json = given.eq_ignore_ascii_case(b"application/json");
    let detail = match content {
        Content::Json => "the content type must be application/json",
        Content::JsonOrLines => "the content type must be application/json or application/x-ndjson",
    };
    if is_json || (content == Content::JsonOrLines && is_lines(headers)) {
        Ok(())
    } else {
        Err(Refusal::new(Code::ContentType, detail).closing())
    }
}

/// Whether the body is one JSON value a line.
pub(crate) fn is_lines(headers: &HeaderMap) -> bool {
    media_type(headers).eq_ignore_ascii_case(b"application/x-ndjson")
}

/// The content type without its parameters.
fn media_type(headers: &HeaderMap) -> &[u8] {
    let value = headers.get(header::CONTENT_TYPE);
    let value = value.map_or(&b""[..], HeaderValue::as_bytes);
    let end = value.iter().position(|byte| *byte == b';');
    value[..end.unwrap_or(value.len())].trim_ascii()
}

fn too_large() -> Refusal {
    let detail = "the request body is larger than this service takes";
    Refusal::new(Code::BodyTooLarge, detail).closing()
}
