//! One HTTP/2 connection, shared by attempts to one endpoint.
//!
//! Its bytes are moved by tasks in a set that the client owns. A connection on which attempt
//! after attempt runs into its deadline is not used for new ones: the path may be dead, and each
//! stream that we abandon leaves something behind on either side.

use std::{
    future::poll_fn,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout_at};

use crate::client::{
    answer::{Answer, ReadLimits, read_answer},
    failure::Failure,
    http1::Driver,
    tasks::TaskSet,
    wire::{Meter, Wire},
};

/// Streams that we open at once on one connection, if the peer allows as many.
const STREAMS_MAX: usize = 100;
/// Bytes that a peer may send before we have taken any; one answer's worth for one stream.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// The same for all streams of a connection together.
const CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;
/// Largest head of an answer, decompressed.
const HEADER_LIST_BYTES_MAX: u32 = 32 * 1024;
/// Bytes of a request that wait for the peer's window.
const SEND_BUFFER_BYTES_MAX: usize = 64 * 1024;
/// Abandoned streams in a row, without an answer on any other, that condemn a connection.
const ABANDONED_IN_A_ROW_MAX: usize = 8;

/// An HTTP/2 connection to an address that was judged.
pub(crate) struct Http2 {
    sender: SendRequest<Full<Bytes>>,
    meter: Arc<Meter>,
    streams: AtomicUsize,
    /// Our bound or the peer's, whichever is lower.
    streams_max: Arc<AtomicUsize>,
    abandoned_in_a_row: AtomicUsize,
    idle_since: Mutex<Instant>,
    /// The address that this connection leads to.
    pub(crate) peer: SocketAddr,
    /// When it was made.
    pub(crate) made_at: Instant,
}

impl Http2 {
    /// Speaks HTTP/2 over a connected wire.
    pub(crate) async fn open(
        wire: Wire,
        meter: Arc<Meter>,
        peer: SocketAddr,
        tasks: &TaskSet,
    ) -> Result<Arc<Self>, Failure> {
        let (sender, mut connection) = Builder::new(tasks.spawner())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(HEADER_LIST_BYTES_MAX)
            .max_send_buf_size(SEND_BUFFER_BYTES_MAX)
            .initial_max_send_streams(STREAMS_MAX)
            .handshake::<_, Full<Bytes>>(TokioIo::new(wire))
            .await
            .map_err(|error| Failure::of_http(&error, &meter))?;
        let streams_max = Arc::new(AtomicUsize::new(STREAMS_MAX));
        let allowed = Arc::clone(&streams_max);
        tasks.spawner().spawn(poll_fn(move |cx| {
            let ended = Pin::new(&mut connection).poll(cx).is_ready();
            // The peer may change its mind at any time.
            let by_peer = connection.current_max_send_streams();
            allowed.store(by_peer.min(STREAMS_MAX), Ordering::Relaxed);
            // Whoever has a stream on this connection learns the reason from that stream.
            if ended {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }));
        let now = Instant::now();
        Ok(Arc::new(Self {
            sender,
            meter,
            streams: AtomicUsize::new(0),
            streams_max,
            abandoned_in_a_row: AtomicUsize::new(0),
            idle_since: Mutex::new(now),
            peer,
            made_at: now,
        }))
    }

    /// Reserves a stream, unless the connection is full, closed or condemned.
    pub(crate) fn open_stream(self: &Arc<Self>) -> Option<Stream> {
        if !self.is_open() {
            return None;
        }
        let streams_max = self.streams_max.load(Ordering::Relaxed);
        self.streams
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |streams| {
                (streams < streams_max).then_some(streams + 1)
            })
            .ok()
            .map(|_| Stream {
                connection: Arc::clone(self),
                answered: false,
            })
    }

    /// Whether one more stream could be opened.
    pub(crate) fn has_room(&self) -> bool {
        self.is_open()
            && self.streams.load(Ordering::Relaxed) < self.streams_max.load(Ordering::Relaxed)
    }

    /// Whether a stream is open.
    pub(crate) fn is_in_use(&self) -> bool {
        self.streams.load(Ordering::Relaxed) > 0
    }

    /// Whether new streams may still be opened.
    pub(crate) fn is_open(&self) -> bool {
        !self.sender.is_closed()
            && self.abandoned_in_a_row.load(Ordering::Relaxed) < ABANDONED_IN_A_ROW_MAX
    }

    /// Whether no stream has been open for this long.
    pub(crate) fn is_idle_for(&self, duration: Duration, now: Instant) -> bool {
        let since = *self
            .idle_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        !self.is_in_use() && now.duration_since(since) >= duration
    }
}

/// The right to one exchange on a shared connection.
pub(crate) struct Stream {
    connection: Arc<Http2>,
    answered: bool,
}

impl Stream {
    /// Sends a request and reads as much of the answer as the limits allow.
    ///
    /// # Cancel safety
    /// Dropping the future resets the stream and counts it as abandoned.
    pub(crate) async fn exchange(
        mut self,
        request: hyper::Request<Full<Bytes>>,
        limits: ReadLimits,
    ) -> Result<Answer, Failure> {
        let mut sender = self.connection.sender.clone();
        match timeout_at(limits.attempt, sender.send_request(request)).await {
            Err(_) => Err(Failure::no_answer()),
            Ok(Ok(response)) => {
                self.answered = true;
                let until = limits.body_deadline(Instant::now());
                Ok(read_answer(response, &mut Driver::elsewhere(), until).await)
            }
            Ok(Err(error)) => {
                // A loss is an answer too: only silence condemns a connection.
                self.answered = true;
                let unanswered = !Failure::may_have_been_processed(&error);
                Err(Failure::of_http(&error, &self.connection.meter).unanswered(unanswered))
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let connection = &self.connection;
        if self.answered {
            connection.abandoned_in_a_row.store(0, Ordering::Relaxed);
        } else {
            connection
                .abandoned_in_a_row
                .fetch_add(1, Ordering::Relaxed);
        }
        if connection.streams.fetch_sub(1, Ordering::Relaxed) == 1 {
            *connection
                .idle_since
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
    }
}
