//! TLS in front of the sink.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use crate::sink::record::Record;
use crate::wait::pause;

/// How the sink behaves in a TLS handshake.
#[derive(Clone, Debug)]
pub enum Tls {
    /// Completes it with this configuration.
    Serve(Arc<ServerConfig>),
    /// Completes it, writing one byte at a time with this gap.
    Drip(Arc<ServerConfig>, Duration),
    /// Reads the client's first message and never answers it.
    Stall,
    /// Answers the client's first message with these bytes and closes.
    Say(&'static [u8]),
}

impl Tls {
    /// Refuses the client the way a server does that knows nothing newer than TLS 1.0: the fatal
    /// alert `protocol_version`.
    #[must_use]
    pub fn tls10_only() -> Self {
        Self::Say(&[21, 3, 1, 0, 2, 2, 70])
    }

    /// The same with HTTP/2 offered before HTTP/1.1.
    pub(super) fn offering_http2(self) -> Self {
        let offer = |config: Arc<ServerConfig>| {
            let mut config = ServerConfig::clone(&config);
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
            Arc::new(config)
        };
        match self {
            Self::Serve(config) => Self::Serve(offer(config)),
            Self::Drip(config, gap) => Self::Drip(offer(config), gap),
            other @ (Self::Stall | Self::Say(_)) => other,
        }
    }
}

/// A finished handshake.
pub(super) struct Secured {
    pub(super) stream: TlsStream<Paced>,
}

impl Secured {
    pub(super) fn is_http2(&self) -> bool {
        self.stream.get_ref().1.alpn_protocol() == Some(b"h2")
    }
}

impl Tls {
    /// Shakes hands and records what the client asked for; nothing when that did not work out.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
        number: usize,
        record: &Record,
    ) -> Option<Secured> {
        let gap = match self {
            Self::Drip(_, gap) => *gap,
            Self::Serve(_) | Self::Stall | Self::Say(_) => Duration::ZERO,
        };
        let acceptor = LazyConfigAcceptor::new(Default::default(), Paced::new(stream, gap));
        let started = match acceptor.await {
            Ok(started) => started,
            Err(error) => {
                note_error(record, number, &error);
                return None;
            }
        };
        let hello = started.client_hello();
        let server_name = hello.server_name().map(str::to_owned);
        let protocols = hello.alpn().into_iter().flatten();
        let protocols = protocols
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect();
        record.update_connection(number, |connection| {
            connection.server_name = server_name;
            connection.protocols = protocols;
        });
        match self {
            Self::Serve(config) | Self::Drip(config, _) => {
                match started.into_stream(Arc::clone(config)).await {
                    Ok(stream) => Some(Secured { stream }),
                    Err(error) => {
                        note_error(record, number, &error);
                        None
                    }
                }
            }
            Self::Stall => {
                hold(started.io).await;
                None
            }
            Self::Say(bytes) => {
                let mut io = started.io;
                // The client may have given up already.
                drop(io.write_all(bytes).await);
                hold(io).await;
                None
            }
        }
    }
}

/// Keeps the connection until the client closes it.
async fn hold(mut io: Paced) {
    drop(tokio::io::copy(&mut io, &mut tokio::io::sink()).await);
}

fn note_error(record: &Record, number: usize, error: &io::Error) {
    record.update_connection(number, |connection| {
        connection.tls_error = Some(error.to_string());
    });
}

/// A socket that may write one byte at a time.
#[derive(Debug)]
pub(super) struct Paced {
    tcp: TcpStream,
    gap: Duration,
    /// The wait before the next byte.
    rest: Option<Pin<Box<Sleep>>>,
}

impl Paced {
    fn new(tcp: TcpStream, gap: Duration) -> Self {
        Self {
            tcp,
            gap,
            rest: None,
        }
    }

    pub(super) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }
}

impl AsyncRead for Paced {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(context, buffer)
    }
}

impl AsyncWrite for Paced {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.gap.is_zero() || bytes.is_empty() {
            return Pin::new(&mut self.tcp).poll_write(context, bytes);
        }
        if let Some(rest) = &mut self.rest {
            ready!(rest.as_mut().poll(context));
            self.rest = None;
        }
        let written = ready!(Pin::new(&mut self.tcp).poll_write(context, &bytes[..1]));
        self.rest = Some(Box::pin(pause(self.gap)));
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
