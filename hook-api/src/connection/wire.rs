//! The socket under hyper: stamps the clock, and gives hyper's own refusals a body.
//!
//! hyper answers a head that it cannot read by itself, with an empty body, before any code of
//! ours sees a request. Such an answer is replaced on its way out by one with a problem document,
//! so that clients get one form of error in every case.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use hook_common::problem::Code;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::clock::{Clock, Phase};
use crate::problem::raw_answer;

/// A client's socket.
#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    clock: Arc<Clock>,
    /// What goes out instead of what hyper wrote, and how much of it has.
    instead: Option<(Vec<u8>, usize)>,
}

impl Wire {
    pub(super) fn new(stream: TcpStream, clock: Arc<Clock>) -> Self {
        Self {
            stream,
            clock,
            instead: None,
        }
    }

    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Sends what is left of a replaced answer.
    fn poll_instead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some((answer, sent)) = &mut self.instead {
            if *sent == answer.len() {
                self.instead = None;
                break;
            }
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &answer[*sent..]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *sent += written;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            self.clock.bytes_arrived();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.clock.phase() == Phase::Head
            && self.instead.is_none()
            && let Some(answer) = replacement(bytes)
        {
            self.instead = Some((answer, 0));
            // What cannot go out now does so with the flush that follows.
            if let Poll::Ready(Err(error)) = self.poll_instead(cx) {
                return Poll::Ready(Err(error));
            }
            return Poll::Ready(Ok(bytes.len()));
        }
        ready!(self.poll_instead(cx))?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_instead(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_instead(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The answer with a body that replaces an empty one of hyper; every answer of ours has a body.
fn replacement(bytes: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let status = text.strip_prefix("HTTP/1.")?.get(2..5)?;
    if !text.contains("content-length: 0\r\n") {
        return None;
    }
    match status {
        "431" => {
            let detail = "a request head has at most 100 headers and 64 KiB";
            Some(raw_answer(Code::HeadTooLarge, detail))
        }
        "414" => Some(raw_answer(
            Code::HeadTooLarge,
            "the request target is too long",
        )),
        "400" => {
            let detail = "the request head is not valid HTTP";
            Some(raw_answer(Code::RequestInvalid, detail))
        }
        _ => None,
    }
}
