//! A small, strict reader of HTTP/1.1 requests.
//!
//! It exists because a test must see what was really on the wire: names in their own case, every
//! line, no repair of anything. What a lenient server would accept is a violation here.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncReadExt;

use crate::sink::wire::Wire;

/// Size of one read, in bytes.
const READ_BYTES: usize = 16 * 1024;

/// Longest request head, in bytes.
const HEAD_BYTES_MAX: usize = 256 * 1024;

/// Longest request body, in bytes.
const BODY_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Longest chunk size line, in bytes.
const CHUNK_LINE_BYTES_MAX: usize = 256;

/// The empty line.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// Why a request could not be read.
#[derive(Debug)]
pub(super) enum ReadError {
    /// The peer went away or the socket failed.
    Gone,
    /// The peer broke the rules of HTTP/1.1.
    Violation(String),
}

/// A parsed request head.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Head {
    pub(super) raw: Bytes,
    pub(super) method: String,
    pub(super) path: String,
    pub(super) version: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) framing: BodyFraming,
}

/// How the body of a request ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum BodyFraming {
    Length(u64),
    Chunked,
}

/// Bytes that were read and not yet used.
#[derive(Debug, Default)]
pub(super) struct Reader {
    buffer: BytesMut,
}

impl Reader {
    /// Whether bytes of a next request are already here.
    pub(super) fn has_bytes(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Reads what is there; 0 means that the peer closed its side.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(super) async fn fill(&mut self, wire: &mut Wire) -> io::Result<usize> {
        self.buffer.reserve(READ_BYTES);
        wire.read_buf(&mut self.buffer).await
    }

    /// Like [`Self::fill`], but leaves what follows a head in the socket: a script that does not
    /// read the body must find it unread. TLS hands out whole records, so that it reads on there.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(super) async fn fill_head(&mut self, wire: &mut Wire) -> io::Result<usize> {
        let Wire::Plain(stream) = wire else {
            return self.fill(wire).await;
        };
        let border = self.buffer.len().saturating_sub(HEAD_END.len() - 1);
        let kept = self.buffer.len() - border;
        let mut bytes = self.buffer[border..].to_vec();
        bytes.resize(kept + READ_BYTES, 0);
        let seen = stream.peek(&mut bytes[kept..]).await?;
        let end = find(&bytes[..kept + seen], HEAD_END).map(|place| place + HEAD_END.len());
        let end = end.unwrap_or(kept + seen);
        let read = stream.try_read(&mut bytes[kept..end])?;
        self.buffer.extend_from_slice(&bytes[kept..kept + read]);
        Ok(read)
    }

    /// Reads the next head, or nothing when the peer closed before its first byte.
    pub(super) async fn head(&mut self, wire: &mut Wire) -> Result<Option<Head>, ReadError> {
        loop {
            if let Some(end) = find(&self.buffer, HEAD_END) {
                let raw = self.buffer.split_to(end + HEAD_END.len()).freeze();
                return parse_head(raw).map(Some).map_err(ReadError::Violation);
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                return Err(violation("the request head never ends"));
            }
            // A client that speaks TLS to a plain port waits for an answer to this.
            if self
                .buffer
                .first()
                .is_some_and(|byte| !is_token_byte(*byte))
            {
                return Err(violation("the first byte is not of an HTTP request"));
            }
            if self.fill_head(wire).await.map_err(gone)? == 0 {
                return if self.buffer.is_empty() {
                    Ok(None)
                } else {
                    Err(ReadError::Gone)
                };
            }
        }
    }

    /// Appends the body to `body`, so that a body that is cut short is still there to look at.
    pub(super) async fn body(
        &mut self,
        wire: &mut Wire,
        framing: BodyFraming,
        body: &mut BytesMut,
    ) -> Result<(), ReadError> {
        match framing {
            BodyFraming::Length(length) => self.exactly(wire, length, body).await,
            BodyFraming::Chunked => loop {
                let length = self.chunk_length(wire).await?;
                self.exactly(wire, length, body).await?;
                if length == 0 {
                    return self.trailers(wire).await;
                }
                if !self.line(wire).await?.is_empty() {
                    return Err(violation("a chunk is longer than its size"));
                }
            },
        }
    }

    async fn exactly(
        &mut self,
        wire: &mut Wire,
        length: u64,
        body: &mut BytesMut,
    ) -> Result<(), ReadError> {
        if length > BODY_BYTES_MAX {
            return Err(violation("the request body is too long for the sink"));
        }
        let mut left = usize::try_from(length).expect("the limit on bodies fits in memory");
        while left > 0 {
            if self.buffer.is_empty() && self.fill(wire).await.map_err(gone)? == 0 {
                return Err(ReadError::Gone);
            }
            let piece = left.min(self.buffer.len());
            body.extend_from_slice(&self.buffer[..piece]);
            self.buffer.advance(piece);
            left -= piece;
        }
        Ok(())
    }

    async fn chunk_length(&mut self, wire: &mut Wire) -> Result<u64, ReadError> {
        let line = self.line(wire).await?;
        std::str::from_utf8(&line)
            .ok()
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|text| u64::from_str_radix(text, 16).ok())
            .ok_or_else(|| violation("a chunk size is not a plain hexadecimal number"))
    }

    async fn trailers(&mut self, wire: &mut Wire) -> Result<(), ReadError> {
        if self.line(wire).await?.is_empty() {
            return Ok(());
        }
        Err(violation("the request has trailers"))
    }

    async fn line(&mut self, wire: &mut Wire) -> Result<Bytes, ReadError> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n") {
                let line = self.buffer.split_to(end).freeze();
                self.buffer.advance(2);
                return Ok(line);
            }
            if self.buffer.len() > CHUNK_LINE_BYTES_MAX {
                return Err(violation("a chunk size line never ends"));
            }
            if self.fill(wire).await.map_err(gone)? == 0 {
                return Err(ReadError::Gone);
            }
        }
    }
}

/// Parses a head that ends in an empty line.
pub(super) fn parse_head(raw: Bytes) -> Result<Head, String> {
    let text = std::str::from_utf8(&raw).map_err(|_| "the request head is not UTF-8")?;
    let text = text
        .strip_suffix("\r\n\r\n")
        .ok_or("the request head has no end")?;
    if text.replace("\r\n", "").contains(['\r', '\n', '\0']) {
        return Err("a line of the request head has a stray CR, LF or NUL".into());
    }
    let mut lines = text.split("\r\n");
    let request_line = lines.next().unwrap_or_default();
    let [method, path, version] = request_line.split(' ').collect::<Vec<_>>()[..] else {
        return Err(format!("not a request line: {request_line:?}"));
    };
    if !is_token(method) || path.is_empty() || !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return Err(format!("not a request line: {request_line:?}"));
    }
    let headers = lines.map(parse_header).collect::<Result<Vec<_>, _>>()?;
    let hosts = values(&headers, "host").count();
    if hosts != 1 {
        return Err(format!("{hosts} host headers instead of one"));
    }
    let framing = framing(&headers)?;
    Ok(Head {
        method: method.to_owned(),
        path: path.to_owned(),
        version: version.to_owned(),
        headers,
        framing,
        raw,
    })
}

fn parse_header(line: &str) -> Result<(String, String), String> {
    let (name, value) = line
        .split_once(':')
        .filter(|(name, _)| is_token(name))
        .ok_or_else(|| format!("not a header line: {line:?}"))?;
    Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
}

fn framing(headers: &[(String, String)]) -> Result<BodyFraming, String> {
    let lengths: Vec<&str> = values(headers, "content-length").collect();
    let encodings: Vec<&str> = values(headers, "transfer-encoding").collect();
    match (&lengths[..], &encodings[..]) {
        ([], []) => Ok(BodyFraming::Length(0)),
        ([length], []) if length.bytes().all(|byte| byte.is_ascii_digit()) => length
            .parse()
            .map(BodyFraming::Length)
            .map_err(|_| format!("not a content length: {length:?}")),
        ([], [encoding]) if encoding.eq_ignore_ascii_case("chunked") => Ok(BodyFraming::Chunked),
        _ => Err(format!(
            "unclear framing: content-length {lengths:?}, transfer-encoding {encodings:?}"
        )),
    }
}

/// The values of a header, in order, whatever the case of its name.
pub(super) fn values<'a, 'n>(
    headers: &'a [(String, String)],
    name: &'n str,
) -> impl Iterator<Item = &'a str> + use<'a, 'n> {
    headers
        .iter()
        .filter(move |(own, _)| own.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.as_str())
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_token_byte)
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

fn violation(what: &str) -> ReadError {
    ReadError::Violation(what.to_owned())
}

fn gone(_: io::Error) -> ReadError {
    ReadError::Gone
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &str, expected: Result<BodyFraming, &str>) {
        let raw = Bytes::from(format!("{lines}\r\n\r\n").into_bytes());
        match (parse_head(raw), expected) {
            (Ok(head), Ok(framing)) => assert_eq!(head.framing, framing, "{lines:?}"),
            (Err(error), Err(part)) => assert!(error.contains(part), "{lines:?}: {error}"),
            (got, wanted) => panic!("{lines:?}: {got:?} instead of {wanted:?}"),
        }
    }

    #[test]
    fn the_framing_of_a_request_must_be_clear() {
        check("GET / HTTP/1.1\r\nHost: a", Ok(BodyFraming::Length(0)));
        check(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 12",
            Ok(BodyFraming::Length(12)),
        );
        check(
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked",
            Ok(BodyFraming::Chunked),
        );
        let two = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 1";
        check(two, Err("unclear framing"));
        let both = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ntransfer-encoding: chunked";
        check(both, Err("unclear framing"));
        let signed = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: +1";
        check(signed, Err("unclear framing"));
    }

    #[test]
    fn a_head_that_breaks_a_rule_is_a_violation() {
        check("GET / HTTP/1.1", Err("0 host headers"));
        check(
            "GET / HTTP/1.1\r\nHost: a\r\nHost: a",
            Err("2 host headers"),
        );
        check("GET  / HTTP/1.1\r\nHost: a", Err("not a request line"));
        check("GET / HTTP/2\r\nHost: a", Err("not a request line"));
        check("GET / HTTP/1.1\r\nHost: a\nX: b", Err("stray"));
        check("GET / HTTP/1.1\r\nHost : a", Err("not a header line"));
        check(
            "GET / HTTP/1.1\r\nHost: a\r\n folded",
            Err("not a header line"),
        );
    }

    #[test]
    fn names_keep_their_case_and_order() {
        let raw = Bytes::from_static(b"PUT /x?y HTTP/1.1\r\nhOST: a\r\nX-b:  c\t\r\nx-B:d\r\n\r\n");
        let head = parse_head(raw).unwrap();
        assert_eq!((head.method.as_str(), head.path.as_str()), ("PUT", "/x?y"));
        let headers: Vec<_> = head.headers.iter().map(|(n, v)| (&n[..], &v[..])).collect();
        assert_eq!(headers, [("hOST", "a"), ("X-b", "c"), ("x-B", "d")]);
    }
}
