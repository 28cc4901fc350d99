//! The byte stream under a connection, with the few counts that classification needs.
//!
//! Whether a byte of the request went out, and whether a byte of the answer came in, decides
//! between `connect`, `reset` and a free repeat. Only the stream itself knows that for certain.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

/// Counts what passed over one connection.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    interim_answers: AtomicU32,
    flooded: AtomicBool,
}

impl Meter {
    /// Interim answers that one exchange may send before the final one.
    pub(crate) const INTERIM_ANSWERS_MAX: u32 = 64;

    /// Bytes received so far.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Bytes sent so far.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Starts the count of interim answers afresh, for the next exchange.
    pub(crate) fn begin_exchange(&self) {
        self.interim_answers.store(0, Ordering::Relaxed);
    }

    /// Counts one interim answer; one too many makes the next read fail.
    pub(crate) fn count_interim_answer(&self) {
        let before = self.interim_answers.fetch_add(1, Ordering::Relaxed);
        if before >= Self::INTERIM_ANSWERS_MAX {
            self.flooded.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the peer sent more interim answers than it may.
    pub(crate) fn is_flooded(&self) -> bool {
        self.flooded.load(Ordering::Relaxed)
    }
}

/// A connected stream in clear text or under TLS.
#[derive(Debug)]
pub(crate) enum Transport {
    /// Clear text.
    Plain(TcpStream),
    /// TLS; boxed because its buffers make it several times as large.
    Tls(Box<TlsStream<TcpStream>>),
}

/// A transport that counts its bytes.
///
/// A failed write is held back. A peer may answer and close before it has read the request; its
/// answer then waits in our receive buffer while our writes fail already. The next read brings
/// either that answer or the true reason of the loss, so the write merely never gets ready.
#[derive(Debug)]
pub(crate) struct Wire {
    transport: Transport,
    meter: Arc<Meter>,
    write_failed: bool,
}

impl Wire {
    /// Wraps a connected transport.
    pub(crate) fn new(transport: Transport, meter: Arc<Meter>) -> Self {
        Self {
            transport,
            meter,
            write_failed: false,
        }
    }

    /// Passes a write's result on, unless it failed.
    fn hold_back_failure<T>(
        &mut self,
        cx: &Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match result {
            Poll::Ready(Err(_)) => {
                self.write_failed = true;
                // The read comes first in each turn of the connection, so one more turn is due.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Ready(Ok(_)) | Poll::Pending => result,
        }
    }

    fn count_written(&self, result: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(count)) = result {
            self.meter
                .written_bytes
                .fetch_add(*count as u64, Ordering::Relaxed);
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.meter.is_flooded() {
            return Poll::Ready(Err(io::Error::other("too many interim answers")));
        }
        let before = buf.filled().len();
        let result = match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Transport::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        };
        let count = buf.filled().len() - before;
        self.meter
            .read_bytes
            .fetch_add(count as u64, Ordering::Relaxed);
        result
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.write_failed {
            return Poll::Pending;
        }
        let result = match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Transport::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        };
        self.count_written(&result);
        self.hold_back_failure(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.write_failed {
            return Poll::Pending;
        }
        let result = match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Transport::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        };
        self.count_written(&result);
        self.hold_back_failure(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.transport {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.write_failed {
            return Poll::Pending;
        }
        let result = match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_flush(cx),
        };
        self.hold_back_failure(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
