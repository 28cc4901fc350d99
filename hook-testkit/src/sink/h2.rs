//! HTTP/2 for the sink.
//!
//! Frames are written by the `h2` crate, because nothing in the product depends on odd frames;
//! what a test needs are the ways in which a proper server refuses or ends streams.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::sink::Shared;
use crate::sink::answer::Answer;
use crate::sink::reader::{BodyFraming, Head};
use crate::sink::record::{Entry, Request};
use crate::sink::tls::Secured;
use crate::wait::pause;

/// What is done with one HTTP/2 request.
#[derive(Clone, Debug)]
pub enum Http2Answer {
    /// Status, headers, body and the pause before the head are used, the rest does not apply.
    Answer(Answer),
    /// The stream stays open without an answer until the client resets it.
    Silence,
    /// `RST_STREAM` with `REFUSED_STREAM`: not processed at all.
    Refused,
    /// The head of this answer, then `RST_STREAM` with `INTERNAL_ERROR`.
    ResetAfterHead(Answer),
    /// `GOAWAY` with an error, by which this request may have been processed, then the end of the
    /// connection.
    GoAway,
    /// `GOAWAY` without an error: this answer is still given, then the connection closes.
    LastAnswer(Answer),
}

/// Decides what is done with each HTTP/2 request.
#[derive(Clone)]
pub struct Http2Script(Arc<Decide>);

type Decide = dyn Fn(&Request, u32) -> Http2Answer + Send + Sync;

impl Http2Script {
    /// Asks a closure, with the number of requests seen so far with the same `webhook-id`
    /// (this one included, so from 1). The request's body is not read at that time.
    pub fn new(decide: impl Fn(&Request, u32) -> Http2Answer + Send + Sync + 'static) -> Self {
        Self(Arc::new(decide))
    }

    /// Does the same with every request.
    #[must_use]
    pub fn always(answer: Http2Answer) -> Self {
        Self::new(move |_, _| answer.clone())
    }
}

impl fmt::Debug for Http2Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Http2Script")
    }
}

/// Serves the streams of one connection to its end.
pub(super) async fn serve(secured: Secured, number: usize, shared: &Arc<Shared>) {
    let script = shared.http2.clone();
    let script = script.expect("a client gets HTTP/2 only from a sink that has a script for it");
    let Ok(mut server) = h2::server::handshake(secured.stream).await else {
        return;
    };
    let mut streams = JoinSet::new();
    let mut held = Vec::new();
    loop {
        tokio::select! {
            accepted = server.accept() => {
                let Some(Ok((request, respond))) = accepted else {
                    return;
                };
                let (parts, body) = request.into_parts();
                let started = Instant::now();
                let (entry, request) = shared.record.add(number, started, head_of(&parts));
                let answer = (script.0)(&request, request.nth);
                if let Http2Answer::LastAnswer(_) = answer {
                    server.graceful_shutdown();
                }
                let stream = Stream { respond, body, entry, shared: Arc::clone(shared) };
                streams.spawn(stream.run(answer));
            }
            Some(joined) = streams.join_next() => match joined {
                Ok(None) => {}
                Ok(Some(respond)) => {
                    // Dropping it would reset the stream before the connection goes away.
                    held.push(respond);
                    server.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                }
                Err(error) => {
                    shared.record.violation(format!("a stream of the sink failed: {error}"));
                }
            }
        }
    }
}

fn head_of(parts: &http::request::Parts) -> Head {
    let authority = parts.uri.authority().map_or("", |name| name.as_str());
    let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
    let mut headers = vec![(":authority".to_owned(), authority.to_owned())];
    headers.extend(parts.headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.as_str().to_owned(), value)
    }));
    Head {
        raw: Bytes::new(),
        method: parts.method.to_string(),
        path: path.to_owned(),
        version: "HTTP/2.0".to_owned(),
        headers,
        framing: BodyFraming::Length(0),
    }
}

struct Stream {
    respond: SendResponse<Bytes>,
    body: RecvStream,
    entry: Entry,
    shared: Arc<Shared>,
}

impl Stream {
    /// Gives the stream back when the connection is to go away, which only its owner can do. The
    /// body is read before: closing a socket with unread bytes would destroy the farewell.
    async fn run(mut self, answer: Http2Answer) -> Option<SendResponse<Bytes>> {
        let goes_away = matches!(answer, Http2Answer::GoAway);
        match answer {
            Http2Answer::Answer(answer) | Http2Answer::LastAnswer(answer) => {
                self.read_body().await;
                self.send(&answer, Finish::Whole).await;
            }
            Http2Answer::GoAway => self.read_body().await,
            Http2Answer::Silence => {
                self.read_body().await;
                // Ends when the client resets the stream or the connection is over.
                drop(poll_fn(|context| self.respond.poll_reset(context)).await);
            }
            Http2Answer::Refused => self.respond.send_reset(Reason::REFUSED_STREAM),
            Http2Answer::ResetAfterHead(answer) => {
                self.read_body().await;
                self.send(&answer, Finish::ResetAfterHead).await;
            }
        }
        self.shared.record.update(self.entry, |request| {
            request.ended = Some(Instant::now());
        });
        goes_away.then_some(self.respond)
    }

    async fn read_body(&mut self) {
        let mut body = BytesMut::new();
        let mut complete = true;
        while let Some(data) = self.body.data().await {
            let Ok(data) = data else {
                complete = false;
                break;
            };
            // It fails only when the stream is over, which the next read tells.
            drop(self.body.flow_control().release_capacity(data.len()));
            body.extend_from_slice(&data);
        }
        self.shared.record.update(self.entry, |request| {
            request.body = body.freeze();
            request.body_complete = complete;
        });
    }

    /// Sends an answer; a client that is gone misses it.
    async fn send(&mut self, answer: &Answer, finish: Finish) {
        let message = answer.message().expect("HTTP/2 has no literal answers");
        if !message.pause.is_zero() {
            pause(message.pause).await;
        }
        let mut response = http::Response::builder().status(message.status);
        for (name, value) in message.headers {
            response = response.header(&name[..], &value[..]);
        }
        let response = response
            .body(())
            .expect("HTTP/2 answers have proper headers");
        let ends_at_once = message.body.is_empty() && finish == Finish::Whole;
        let Ok(mut stream) = self.respond.send_response(response, ends_at_once) else {
            return;
        };
        let length = message.body.len() as u64;
        match finish {
            Finish::Whole if ends_at_once => {}
            Finish::Whole => drop(stream.send_data(message.body, true)),
            Finish::ResetAfterHead => {
                // The head must be on its way before the reset takes the stream away.
                pause(RESET_PAUSE).await;
                stream.send_reset(Reason::INTERNAL_ERROR);
            }
        }
        self.shared.record.update(self.entry, |request| {
            request.bytes_written += length;
        });
    }
}

/// Time for the head to leave before a reset.
const RESET_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

#[derive(Clone, Copy, Eq, PartialEq)]
enum Finish {
    Whole,
    ResetAfterHead,
}

#[cfg(test)]
mod tests;
