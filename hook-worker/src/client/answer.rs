//! What is kept of an answer: the status, a hint to wait, and the beginning of the body.
//!
//! The status line has decided the outcome before a byte of the body is read. The body is read
//! for two reasons only: people want to see its beginning, and a connection can be used again
//! once it has been read to its end. Neither is worth more than a bounded amount of bytes and time.

use std::{future::poll_fn, pin::Pin, task::Poll};

use hyper::{
    Response,
    body::{Body, Incoming},
    header::{HeaderValue, RETRY_AFTER},
};
use tokio::time::{Instant, timeout_at};

use crate::client::http1::Driver;

/// Bytes of a body that are read at most.
pub(crate) const BODY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of the text that is kept of a body.
pub(crate) const EXCERPT_BYTES_MAX: usize = 4 * 1024;

/// How long an answer's body may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadLimits {
    /// From the head to the end of reading.
    pub(crate) body: std::time::Duration,
    /// The end of the attempt, whatever has been read by then.
    pub(crate) attempt: Instant,
}

impl ReadLimits {
    /// When the reading of a body ends at the latest, if its head was complete at `now`.
    pub(crate) fn body_deadline(&self, now: Instant) -> Instant {
        self.attempt.min(now + self.body)
    }
}

/// The part of an answer that outlives its connection.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status of the final answer, or 101.
    pub(crate) status: u16,
    /// The `retry-after` header as it came.
    pub(crate) retry_after: Option<HeaderValue>,
    /// The beginning of the body as text.
    pub(crate) excerpt: Excerpt,
    /// How the body ended.
    pub(crate) ending: BodyEnding,
    /// Whether the connection is at a point where it can take another request.
    pub(crate) reusable: bool,
}

/// How the reading of a body ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BodyEnding {
    /// At its end.
    Complete,
    /// At the limit of bytes.
    TooLong,
    /// At the limit of time.
    TooSlow,
    /// By a loss of the connection or by bytes that are not HTTP.
    Invalid,
}

impl BodyEnding {
    /// The word that is noted down for anything but a complete body.
    pub(crate) const fn note(self) -> Option<&'static str> {
        match self {
            Self::Complete => None,
            Self::TooLong => Some("body_too_long"),
            Self::TooSlow => Some("body_too_slow"),
            Self::Invalid => Some("body_invalid"),
        }
    }
}

/// The beginning of a body, fit for a text column.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Excerpt {
    /// At most 4 KiB of valid UTF-8 without NUL.
    pub(crate) text: String,
    /// Whether the body went on.
    pub(crate) truncated: bool,
}

impl Excerpt {
    /// Makes an excerpt of the first bytes of a body; `longer` says that more bytes followed.
    pub(crate) fn of(bytes: &[u8], longer: bool) -> Self {
        let cut = bytes.len().min(EXCERPT_BYTES_MAX);
        let mut truncated = longer || cut < bytes.len();
        let mut head = &bytes[..cut];
        if truncated {
            head = without_split_character(head);
        }
        let mut text = String::from_utf8_lossy(head).replace('\0', "\u{FFFD}");
        if text.len() > EXCERPT_BYTES_MAX {
            // Each replaced byte has grown to three.
            text.truncate(text.floor_char_boundary(EXCERPT_BYTES_MAX));
            truncated = true;
        }
        Self { text, truncated }
    }
}

/// Drops the beginning of a character whose rest lies beyond the end of the slice.
fn without_split_character(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => {
            // An earlier invalid byte hides a split character at the end: look at the last ones.
            let tail_start = bytes.len().saturating_sub(3);
            (tail_start..bytes.len())
                .find(|&start| {
                    std::str::from_utf8(&bytes[start..])
                        .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
                })
                .map_or(bytes, |start| &bytes[..start])
        }
    }
}

/// Reads the body of an answer, at most to its limit of bytes and not beyond `until`.
///
/// # Cancel safety
/// Dropping the future loses the answer.
pub(crate) async fn read_answer(
    response: Response<Incoming>,
    driver: &mut Driver,
    until: Instant,
) -> Answer {
    let status = response.status().as_u16();
    let retry_after = response.headers().get(RETRY_AFTER).cloned();
    let mut kept = Vec::new();
    let mut read_bytes = 0;
    let body = response.into_body();
    let reading = read_body(body, driver, |data| {
        let room = EXCERPT_BYTES_MAX - kept.len();
        kept.extend_from_slice(&data[..data.len().min(room)]);
        read_bytes += data.len();
        read_bytes < BODY_BYTES_MAX
    });
    let ending = timeout_at(until, reading)
        .await
        .unwrap_or(BodyEnding::TooSlow);
    let longer = read_bytes > kept.len();
    Answer {
        status,
        retry_after,
        excerpt: Excerpt::of(&kept, longer),
        ending,
        reusable: ending == BodyEnding::Complete && status != 101,
    }
}

/// Reads data frames until `keep` has had enough, driving the connection meanwhile.
async fn read_body(
    mut body: Incoming,
    driver: &mut Driver,
    mut keep: impl FnMut(&[u8]) -> bool,
) -> BodyEnding {
    loop {
        if body.is_end_stream() {
            return BodyEnding::Complete;
        }
        let frame = poll_fn(|cx| {
            if let Poll::Ready(frame) = Pin::new(&mut body).poll_frame(cx) {
                return Poll::Ready(frame);
            }
            driver.turn(cx);
            Pin::new(&mut body).poll_frame(cx)
        })
        .await;
        match frame {
            None => return BodyEnding::Complete,
            Some(Err(_)) => return BodyEnding::Invalid,
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref()
                    && !keep(data)
                {
                    return BodyEnding::TooLong;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
