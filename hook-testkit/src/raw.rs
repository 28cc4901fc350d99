//! A client of raw bytes, for what no HTTP library would send.
//!
//! It sends what it is given, in the pieces in which it is given, and reads answers only as far
//! as a test needs them: status, headers and a body with a declared length.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest time for any single step.
const STEP_LIMIT: Duration = Duration::from_secs(60);

/// A connection that a test drives by hand.
#[derive(Debug)]
pub struct RawClient {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// An answer as it was on the wire.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RawAnswer {
    /// The status code.
    pub status: u16,
    /// Status line and headers, without the empty line.
    pub head: String,
    /// As many bytes as `content-length` says.
    pub body: Vec<u8>,
}

impl RawAnswer {
    /// The first value of a header, whatever the case of its name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (own, value) = line.split_once(':')?;
            own.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The body as JSON; null when it is something else.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl RawClient {
    /// Connects.
    ///
    /// # Errors
    /// When the peer refuses.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: Vec::new(),
        })
    }

    /// Sends these bytes.
    ///
    /// # Errors
    /// When the peer has closed or reset the connection.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        step(self.stream.write_all(bytes.as_ref())).await
    }

    /// Reads the next answer.
    ///
    /// # Errors
    /// `UnexpectedEof` when the peer closes before the answer is complete, else what the socket
    /// says; `InvalidData` for something that is not an answer.
    pub async fn answer(&mut self) -> io::Result<RawAnswer> {
        let head_length = loop {
            let place = self.buffer.windows(4).position(|four| four == b"\r\n\r\n");
            match place {
                Some(place) => break place,
                None => self.fill().await?,
            }
        };
        let head = String::from_utf8_lossy(&self.buffer[..head_length]).into_owned();
        self.buffer.drain(..head_length + 4);
        let status = head.split(' ').nth(1).and_then(|text| text.parse().ok());
        let mut answer = RawAnswer {
            status: status.ok_or(io::ErrorKind::InvalidData)?,
            head,
            body: Vec::new(),
        };
        let length = answer.header("content-length").unwrap_or("0").parse();
        let length: usize = length.map_err(|_| io::ErrorKind::InvalidData)?;
        while self.buffer.len() < length {
            self.fill().await?;
        }
        answer.body = self.buffer.drain(..length).collect();
        Ok(answer)
    }

    /// Sends these bytes and reads the next answer.
    ///
    /// # Errors
    /// As [`Self::answer`]. A peer that answers early and closes makes sending fail; its answer
    /// counts all the same.
    pub async fn exchange(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<RawAnswer> {
        let sent = self.send(bytes).await;
        let answer = self.answer().await;
        match (sent, answer) {
            (_, Ok(answer)) => Ok(answer),
            (Err(error), Err(_)) | (Ok(()), Err(error)) => Err(error),
        }
    }

    /// Waits until the peer closes and gives what it still sent.
    ///
    /// # Errors
    /// `ConnectionReset` when it resets instead, `TimedOut` when it does neither within `limit`.
    pub async fn closed(&mut self, limit: Duration) -> io::Result<Vec<u8>> {
        let read = self.stream.read_to_end(&mut self.buffer);
        timeout(limit, read).await??;
        Ok(std::mem::take(&mut self.buffer))
    }

    /// Closes the connection with a reset.
    pub fn reset(self) {
        // It fails only when the peer has reset the connection already.
        drop(SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)));
    }

    async fn fill(&mut self) -> io::Result<()> {
        match step(self.stream.read_buf(&mut self.buffer)).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

async fn step<T>(future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(STEP_LIMIT, future).await?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::Sink;
    use crate::sink::answer::{Answer, BodyRead, End};

    const GET: &str = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";

    #[tokio::test]
    async fn answers_are_read_one_after_the_other() {
        let sink = Sink::start(Answer::status(201).header("X-A", "b").bytes("{\"n\":1}")).await;
        let mut client = RawClient::connect(sink.address()).await.unwrap();
        client.send(format!("{GET}{GET}")).await.unwrap();
        for _ in 0..2 {
            let answer = client.answer().await.unwrap();
            assert_eq!((answer.status, answer.header("x-a")), (201, Some("b")));
            assert_eq!(answer.json()["n"], 1);
        }
    }

    #[tokio::test]
    async fn an_end_is_told_from_a_reset_and_from_silence() {
        for (end, expected) in [
            (End::Close, io::ErrorKind::UnexpectedEof),
            (End::Reset, io::ErrorKind::ConnectionReset),
        ] {
            let sink = Sink::start(Answer::ok().then(end)).await;
            let mut client = RawClient::connect(sink.address()).await.unwrap();
            client.exchange(GET).await.unwrap();
            assert_eq!(client.answer().await.unwrap_err().kind(), expected);
        }
        let sink = Sink::start(200).await;
        let mut client = RawClient::connect(sink.address()).await.unwrap();
        client.exchange(GET).await.unwrap();
        let silent = client.closed(Duration::from_millis(30)).await;
        assert_eq!(silent.unwrap_err().kind(), io::ErrorKind::TimedOut);
        client.reset();
    }

    #[tokio::test]
    async fn an_early_answer_is_seen() {
        let sink = Sink::start(Answer::status(413).body_read(BodyRead::Never)).await;
        let mut client = RawClient::connect(sink.address()).await.unwrap();
        let head = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9999999\r\n\r\n";
        assert_eq!(client.exchange(head).await.unwrap().status, 413);
    }
}
