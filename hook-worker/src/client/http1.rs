//! One HTTP/1.1 connection: it carries one exchange at a time and is driven by the attempt that
//! uses it, so that no task of its own can outlive anybody.
//!
//! While a connection is idle nobody drives it. Whoever takes it from the pool turns it once and
//! so learns whether the peer has closed it or has sent bytes that nobody asked for.

use std::{
    future::poll_fn,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Response,
    body::Incoming,
    client::conn::http1::{Builder, Connection, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout_at};

use crate::client::{
    answer::{Answer, ReadLimits, read_answer},
    failure::Failure,
    wire::{Meter, Wire},
};

/// Largest head of an answer, and the most that a connection buffers for reading.
///
/// Fifty endless answers at once must not cost more than 2 MiB; honest heads with long policies and
/// many cookies fit. HTTP/2 has the same bound.
const BUFFER_BYTES_MAX: usize = 32 * 1024;

/// The half of a connection that moves bytes; gone once the connection has ended.
pub(crate) struct Driver(Option<Connection<TokioIo<Wire>, Full<Bytes>>>);

impl Driver {
    /// A driver for exchanges that something else drives.
    pub(crate) const fn elsewhere() -> Self {
        Self(None)
    }

    /// Moves what can be moved now, and remembers whether the connection has ended.
    pub(crate) fn turn(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = &mut self.0
            && Pin::new(connection).poll(cx).is_ready()
        {
            // The reason reaches the exchange, if there is one, by way of its response.
            self.0 = None;
        }
    }

    fn has_ended(&self) -> bool {
        self.0.is_none()
    }
}

/// An HTTP/1.1 connection to an address that was judged.
pub(crate) struct Http1 {
    sender: SendRequest<Full<Bytes>>,
    driver: Driver,
    meter: Arc<Meter>,
    /// The address that this connection leads to.
    pub(crate) peer: SocketAddr,
    /// When it was made.
    pub(crate) made_at: Instant,
}

/// The spelling of header names on the wire.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum HeaderCase {
    /// As HTTP/2 has them, and as most HTTP/1.1 clients send them today.
    #[default]
    Lower,
    /// `Content-Type`, for receivers that compare names by case.
    Title,
}

impl Http1 {
    /// Speaks HTTP/1.1 over a connected wire.
    pub(crate) async fn open(
        wire: Wire,
        meter: Arc<Meter>,
        peer: SocketAddr,
        case: HeaderCase,
    ) -> Result<Self, Failure> {
        let (sender, connection) = Builder::new()
            .max_buf_size(BUFFER_BYTES_MAX)
            .title_case_headers(case == HeaderCase::Title)
            .handshake(TokioIo::new(wire))
            .await
            .map_err(|error| Failure::of_http(&error, &meter))?;
        Ok(Self {
            sender,
            driver: Driver(Some(connection)),
            meter,
            peer,
            made_at: Instant::now(),
        })
    }

    /// Whether another exchange can begin on this connection, as far as anybody can know.
    pub(crate) fn is_usable(&mut self) -> bool {
        self.driver.turn(&mut Context::from_waker(Waker::noop()));
        !self.driver.has_ended() && self.sender.is_ready()
    }

    /// Sends a request and reads as much of the answer as the limits allow.
    ///
    /// # Cancel safety
    /// Dropping the future loses the exchange; the connection must then be dropped too.
    pub(crate) async fn exchange(
        &mut self,
        mut request: hyper::Request<Full<Bytes>>,
        limits: ReadLimits,
    ) -> Result<Answer, Failure> {
        let meter = Arc::clone(&self.meter);
        self.meter.begin_exchange();
        hyper::ext::on_informational(&mut request, move |_| meter.count_interim_answer());
        // Only the head is under this deadline: whatever comes after it must not undo a status.
        let response = timeout_at(limits.attempt, self.head(request))
            .await
            .unwrap_or_else(|_| Err(Failure::no_answer()))?;
        let until = limits.body_deadline(Instant::now());
        let ambiguous = has_two_framings(&response);
        let mut answer = read_answer(response, &mut self.driver, until).await;
        answer.reusable =
            answer.reusable && !ambiguous && self.is_usable_after(answer.status, until).await;
        Ok(answer)
    }

    /// Whether the connection can be used again, once an answer has been read to its end.
    ///
    /// A peer may report success before it has read the request, and read it then. It gets the
    /// rest within the time that an answer's body has.
    async fn is_usable_after(&mut self, status: u16, until: Instant) -> bool {
        if self.is_usable() {
            return true;
        }
        if self.driver.has_ended() || !matches!(status, 200..=299) {
            return false;
        }
        let (driver, sender) = (&mut self.driver, &mut self.sender);
        let written = poll_fn(|cx| {
            driver.turn(cx);
            sender.poll_ready(cx)
        });
        matches!(timeout_at(until, written).await, Ok(Ok(()))) && self.is_usable()
    }

    async fn head(
        &mut self,
        request: hyper::Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Failure> {
        let before = (self.meter.read_bytes(), self.meter.written_bytes());
        let driver = &mut self.driver;
        let mut response = pin!(self.sender.send_request(request));
        let result = poll_fn(|cx| {
            driver.turn(cx);
            match response.as_mut().poll(cx) {
                Poll::Pending if driver.has_ended() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
                Poll::Ready(result) => Poll::Ready(Some(result)),
            }
        })
        .await;
        // Bytes that came although nothing had been sent were not an answer to this request.
        let unanswered =
            self.meter.read_bytes() == before.0 || self.meter.written_bytes() == before.1;
        match result {
            // The flood and the final answer may have come in one piece.
            Some(Ok(_)) if self.meter.is_flooded() => Err(Failure::too_many_interim_answers()),
            Some(Ok(response)) => Ok(response),
            Some(Err(error)) => Err(Failure::of_http(&error, &self.meter).unanswered(unanswered)),
            None => Err(Failure::reset("the connection ended").unanswered(unanswered)),
        }
    }
}

/// Whether the answer names its length in two ways, so that nobody can trust where it ends.
fn has_two_framings(response: &Response<Incoming>) -> bool {
    let headers = response.headers();
    headers.contains_key(hyper::header::CONTENT_LENGTH)
        && headers.contains_key(hyper::header::TRANSFER_ENCODING)
}
