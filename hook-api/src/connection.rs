//! One client connection: HTTP/1.1 on a socket, with a deadline for everything the client does.
//!
//! hyper reads and writes the messages; this module decides when enough is enough. A request head
//! that does not arrive in time is answered 408, an idle connection is closed when its time is up,
//! when room is needed, or as soon as the process drains, and a client that does not read its
//! answer is cut. The deadlines cost nothing per request: one timer per connection looks at a
//! [`Clock`] that the request path merely stamps.

use std::{convert::Infallible, future::poll_fn, pin::Pin, sync::Arc, time::Duration};

use axum::body::Body;
use hook_common::{
    lifecycle::{Stop, within},
    metrics::api::CONNECTIONS_CUT_TOTAL,
    problem::Code,
};
use http::Response;
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::problem::raw_answer;

mod clock;
mod wire;

pub(crate) use clock::{Clock, Phase};
use wire::Wire;

/// Largest request head; hyper itself takes at most 100 headers.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// How long bytes of a refused request are still taken off the socket, so that closing it does
/// not reset the connection before the client has read its answer.
const LINGER: Duration = Duration::from_millis(500);
/// How many of them.
const LINGER_BYTES_MAX: usize = 32 * 1024 * 1024;

/// How many at a time; on the heap, because few connections ever need it.
const LINGER_BUFFER_BYTES: usize = 8192;

/// What ends the reading and writing of messages.
enum Event {
    /// hyper is done with the connection.
    Done(Result<(), hyper::Error>),
    /// The process drains.
    Draining,
    /// The process aborts.
    Aborting,
    /// Somebody else needs the place of this idle connection.
    Evicted,
}

/// Serves one connection until it ends.
pub(crate) async fn serve<S>(
    stream: TcpStream,
    service: S,
    clock: Arc<Clock>,
    head_timeout: Duration,
    stop: &Stop,
) where
    S: hyper::service::Service<
            http::Request<Incoming>,
            Response = Response<Body>,
            Error = Infallible,
        > + Unpin,
    S::Future: Unpin,
{
    let io = TokioIo::new(Wire::new(stream, Arc::clone(&clock)));
    let mut connection = http1::Builder::new()
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(HEAD_BYTES_MAX + 4096)
        .header_read_timeout(None)
        .serve_connection(io, service);

    let mut is_ending = false;
    let end = loop {
        let event = {
            let (draining, aborting) = (stop.draining(), stop.aborting());
            let next = async {
                tokio::select! {
                    biased;
                    end = poll_fn(|cx| connection.poll_without_shutdown(cx)) => Event::Done(end),
                    () = draining, if !is_ending => Event::Draining,
                    () = clock.evicted(), if !is_ending => Event::Evicted,
                    () = aborting => Event::Aborting,
                }
            };
            within(clock.time_left(head_timeout), next).await
        };
        match event {
            Some(Event::Done(end)) => break End::of(end),
            Some(Event::Aborting) => break End::Cut("drain"),
            // hyper would wait for the first request of a fresh connection.
            Some(Event::Draining) if clock.phase() == Phase::Fresh => break End::Cut("drain"),
            Some(Event::Evicted) if clock.phase() == Phase::Fresh => break End::Cut("limit"),
            Some(Event::Evicted) if clock.phase() != Phase::Idle => {}
            // Ends at once when nothing is in hand, else with the answer.
            Some(Event::Draining | Event::Evicted) => {
                is_ending = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            None => match clock.overdue(head_timeout) {
                Some(Phase::Head) => break End::HeadTimeout,
                Some(Phase::Fresh | Phase::Idle) => break End::Closed,
                Some(Phase::Serving) | None => {}
            },
        }
    };
    let stream = connection.into_parts().io.into_inner();
    finish(stream, end).await;
}

/// How a connection came to its end.
enum End {
    /// In good order.
    Closed,
    /// The client sent what is no request, and hyper has answered it.
    Refused,
    /// The client went away.
    Gone,
    /// The request head did not arrive in time.
    HeadTimeout,
    /// We want no more of it.
    Cut(&'static str),
}

impl End {
    fn of(end: Result<(), hyper::Error>) -> Self {
        match end {
            Ok(()) => Self::Closed,
            Err(error) if error.is_parse() => Self::Refused,
            Err(_) => Self::Gone,
        }
    }
}

/// Says the last word, where there is one, and closes the socket.
async fn finish(wire: Wire, end: End) {
    let mut stream = wire.into_stream();
    match end {
        End::Closed => {
            // A client that has gone already does not mind.
            drop(within(LINGER, stream.shutdown()).await);
            linger(&mut stream).await;
        }
        End::Refused => {
            cut("protocol");
            drop(within(LINGER, stream.shutdown()).await);
            linger(&mut stream).await;
        }
        End::HeadTimeout => {
            cut("head_timeout");
            refuse(
                &mut stream,
                Code::RequestTimeout,
                "the request head did not arrive in time",
            )
            .await;
        }
        End::Cut(reason) => cut(reason),
        End::Gone => {}
    }
}

/// Answers by hand and closes.
pub(crate) async fn refuse(stream: &mut TcpStream, code: Code, detail: &'static str) {
    let answer = raw_answer(code, detail);
    let sent = within(LINGER, async {
        stream.write_all(&answer).await?;
        stream.shutdown().await
    });
    if let Some(Ok(())) = sent.await {
        linger(stream).await;
    }
}

/// Takes what the client still sends off the socket, for a moment.
async fn linger(stream: &mut TcpStream) {
    let mut sink = vec![0; LINGER_BUFFER_BYTES];
    let mut taken = 0;
    let drain = async {
        while taken < LINGER_BYTES_MAX {
            match stream.read(&mut sink).await {
                Ok(0) | Err(_) => return,
                Ok(count) => taken += count,
            }
        }
    };
    within(LINGER, drain).await;
}

fn cut(reason: &'static str) {
    CONNECTIONS_CUT_TOTAL.counter(&[reason]).increment(1);
}
