//! One connection of the sink, from accept to its end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::sink::Shared;
use crate::sink::answer::End;
use crate::sink::body::Part;
use crate::sink::h2;
use crate::sink::plan::Step;
use crate::sink::reader::{BodyFraming, Head, ReadError, Reader, values};
use crate::sink::record::Entry;
use crate::sink::script::OpeningAct;
use crate::sink::wire::Wire;
use crate::wait::pause;

/// Size of one write, in bytes, where a pattern is repeated.
const BLOCK_BYTES: usize = 64 * 1024;

/// Longest time that an orderly close may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// Time between two looks at a connection that nobody reads from.
const HOLD_LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Serves one accepted connection to its end and records when that was.
pub(super) async fn serve(stream: TcpStream, number: usize, shared: &Arc<Shared>) {
    converse(stream, number, shared).await;
    shared.record.update_connection(number, |connection| {
        connection.closed = Some(Instant::now());
    });
}

async fn converse(stream: TcpStream, number: usize, shared: &Arc<Shared>) {
    let opening = shared.opening(number);
    if !opening.pause.is_zero() {
        pause(opening.pause).await;
    }
    match opening.act {
        OpeningAct::Serve => {}
        OpeningAct::Say(bytes, end) => {
            let mut wire = Wire::Plain(stream);
            // A peer that left before the banner is as good as one that read it.
            drop(wire.write_all(&bytes).await);
            return finish(wire, end).await;
        }
        OpeningAct::Finish(end) => return finish(Wire::Plain(stream), end).await,
    }
    let wire = match &shared.tls {
        None => Wire::Plain(stream),
        Some(tls) => match tls.accept(stream, number, &shared.record).await {
            Some(secured) if secured.is_http2() => {
                return h2::serve(secured, number, shared).await;
            }
            Some(secured) => Wire::Tls(Box::new(secured.stream)),
            None => return,
        },
    };
    let talk = Talk {
        wire,
        reader: Reader::default(),
        number,
        shared,
    };
    talk.run().await;
}

/// The exchanges of one connection.
struct Talk<'a> {
    wire: Wire,
    reader: Reader,
    number: usize,
    shared: &'a Shared,
}

/// The peer went away, so that nothing more can be done on this connection.
#[derive(Debug)]
struct Gone;

impl From<io::Error> for Gone {
    fn from(_: io::Error) -> Self {
        Self
    }
}

/// What is known of the request that is being answered.
struct Exchange {
    entry: Entry,
    framing: BodyFraming,
    body_read: bool,
}

impl Talk<'_> {
    async fn run(mut self) {
        let mut idle_limit = None;
        while let Some((started, head)) = self.next_head(idle_limit).await {
            let framing = head.framing;
            let may_keep = may_keep(&head);
            let (entry, request) = self.shared.record.add(self.number, started, head);
            let (steps, end) = self.shared.script().decide(&request).plan();
            let mut exchange = Exchange {
                entry,
                framing,
                body_read: false,
            };
            if self.perform(&mut exchange, steps).await.is_err() {
                return ended(self.shared, entry);
            }
            match end {
                End::KeepAlive if may_keep => idle_limit = None,
                End::CloseIdle(limit) if may_keep => idle_limit = Some(limit),
                End::Hold if !exchange.body_read => {
                    hold_unread(&self.wire).await;
                    return ended(self.shared, entry);
                }
                End::KeepAlive
                | End::CloseIdle(_)
                | End::Close
                | End::HalfClose
                | End::Reset
                | End::Hold => {
                    finish(self.wire, end).await;
                    return ended(self.shared, entry);
                }
            }
            ended(self.shared, entry);
        }
        finish(self.wire, End::Close).await;
    }

    /// The next head and when its first byte was seen; nothing when the connection is over.
    async fn next_head(&mut self, idle_limit: Option<Duration>) -> Option<(Instant, Head)> {
        if !self.reader.has_bytes() {
            let first = self.reader.fill_head(&mut self.wire);
            let filled = match idle_limit {
                Some(limit) => timeout(limit, first).await.ok()?,
                None => first.await,
            };
            if filled.ok()? == 0 {
                return None;
            }
        }
        let started = Instant::now();
        match self.reader.head(&mut self.wire).await {
            Ok(head) => Some((started, head?)),
            Err(ReadError::Gone) => None,
            Err(ReadError::Violation(what)) => {
                self.shared.record.violation(what);
                // The record matters; whether the peer sees an answer does not.
                let bad = self.wire.write_all(b"HTTP/1.1 400 Bad\r\n\r\n").await;
                if bad.is_ok() {
                    shut(&mut self.wire).await;
                    drop(timeout(CLOSE_LIMIT, discard(&mut self.wire)).await);
                }
                None
            }
        }
    }

    async fn perform(&mut self, exchange: &mut Exchange, steps: Vec<Step>) -> Result<(), Gone> {
        for step in steps {
            match step {
                Step::Pause(duration) => self.pause(exchange, duration).await?,
                Step::ReadBody => self.read_body(exchange).await?,
                Step::Write { part, gap } if gap.is_zero() => self.write(exchange, &part).await?,
                Step::Write { part, gap } => self.drip(exchange, &part, gap).await?,
            }
        }
        Ok(())
    }

    /// Pauses, but ends early when the peer closes, so that the record says when that was.
    async fn pause(&mut self, exchange: &Exchange, duration: Duration) -> Result<(), Gone> {
        if !exchange.body_read {
            pause(duration).await;
            return Ok(());
        }
        let over = Instant::now() + duration;
        loop {
            let left = over.saturating_duration_since(Instant::now());
            match timeout(left, self.reader.fill(&mut self.wire)).await {
                Ok(Ok(0) | Err(_)) => return Err(Gone),
                // Bytes of a next request wait in the buffer.
                Ok(Ok(_)) => {}
                Err(_) => return Ok(()),
            }
        }
    }

    async fn read_body(&mut self, exchange: &mut Exchange) -> Result<(), Gone> {
        let mut body = BytesMut::new();
        let read = self
            .reader
            .body(&mut self.wire, exchange.framing, &mut body)
            .await;
        self.shared.record.update(exchange.entry, |request| {
            request.body = body.freeze();
            request.body_complete = read.is_ok();
        });
        exchange.body_read = true;
        match read {
            Ok(()) => Ok(()),
            Err(ReadError::Gone) => Err(Gone),
            Err(ReadError::Violation(what)) => {
                self.shared.record.violation(what);
                Err(Gone)
            }
        }
    }

    async fn write(&mut self, exchange: &Exchange, part: &Part) -> Result<(), Gone> {
        let block = block_of(part);
        let mut left = part.total;
        let mut offset = 0_usize;
        while left > 0 {
            let piece = usize::try_from(left).unwrap_or(usize::MAX);
            let end = block.len().min(offset.saturating_add(piece));
            let written = self.wire.write(&block[offset..end]).await?;
            self.count(exchange, written);
            left -= written as u64;
            offset = (offset + written) % block.len();
        }
        self.wire.flush().await?;
        Ok(())
    }

    async fn drip(&mut self, exchange: &Exchange, part: &Part, gap: Duration) -> Result<(), Gone> {
        let bytes = part.pattern.iter().cycle();
        for (byte, _) in bytes.zip(0..part.total) {
            self.wire.write_all(&[*byte]).await?;
            self.wire.flush().await?;
            self.count(exchange, 1);
            self.pause(exchange, gap).await?;
        }
        Ok(())
    }

    fn count(&self, exchange: &Exchange, written: usize) {
        self.shared.record.update(exchange.entry, |request| {
            request.bytes_written += written as u64;
        });
    }
}

fn ended(shared: &Shared, entry: Entry) {
    shared.record.update(entry, |request| {
        request.ended = Some(Instant::now());
    });
}

/// Whether the request leaves the connection open by the rules of its version.
fn may_keep(head: &Head) -> bool {
    let says = |word: &str| {
        values(&head.headers, "connection")
            .flat_map(|value| value.split(','))
            .any(|part| part.trim().eq_ignore_ascii_case(word))
    };
    if head.version == "HTTP/1.0" {
        says("keep-alive")
    } else {
        !says("close")
    }
}

/// The pattern, repeated to a size that is worth a system call.
fn block_of(part: &Part) -> Bytes {
    let length = part.pattern.len();
    if part.total <= length as u64 || length >= BLOCK_BYTES {
        return part.pattern.clone();
    }
    Bytes::from(part.pattern.repeat(BLOCK_BYTES / length))
}

/// Ends a connection whose requests were read.
async fn finish(mut wire: Wire, end: End) {
    match end {
        // Dropping a socket closes it in one step, and resets it where bytes were left unread.
        End::KeepAlive | End::CloseIdle(_) | End::Close => {
            if let Wire::Tls(_) = wire {
                shut(&mut wire).await;
            }
        }
        End::HalfClose => {
            shut(&mut wire).await;
            discard(&mut wire).await;
        }
        End::Hold => discard(&mut wire).await,
        End::Reset => wire.reset(),
    }
}

async fn shut(wire: &mut Wire) {
    // The peer may be gone, or may not read; neither matters to a sink that is done.
    drop(timeout(CLOSE_LIMIT, wire.shutdown()).await);
}

/// Reads and drops everything until the peer closes.
async fn discard(wire: &mut Wire) {
    let mut buffer = vec![0; 16 * 1024];
    while wire.read(&mut buffer).await.is_ok_and(|length| length > 0) {}
}

/// Waits until the peer closes without taking a byte from the socket.
async fn hold_unread(wire: &Wire) {
    loop {
        match wire.tcp().ready(Interest::READABLE).await {
            Ok(ready) if !ready.is_read_closed() => pause(HOLD_LOOK_INTERVAL).await,
            Ok(_) | Err(_) => return,
        }
    }
}
