//! Hostile answers that several tests want, ready-made.

use crate::sink::answer::{Answer, End, Framing};
use crate::sink::body::Body;

/// Inflated bytes for each byte of [`gzip_bomb`]: four matches of 258 bytes.
const INFLATION: u64 = 4 * 258;

/// The gzip header (deflate, no name, no time) and the start of one deflate block whose own
/// Huffman codes give one bit each to "258 bytes again" and to "from one byte back". The block
/// begins with a literal zero, so that every zero bit that follows is half of such a match.
const BOMB_HEAD: &[u8] = &[
    0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255, // gzip
    237, 192, 129, 0, 0, 0, 0, 128, 160, 253, 169, 23, 169, 0, // deflate
];

/// A gzip stream that inflates to about `inflated_bytes` zeros and is a thousand times smaller on
/// the wire. It has no end, which a decoder learns only after it has inflated everything.
#[must_use]
pub fn gzip_bomb(inflated_bytes: u64) -> Body {
    Body::bytes(BOMB_HEAD).then(Body::repeat(&[0_u8][..], inflated_bytes / INFLATION))
}

/// Chunks of one byte, each with an extension of 4 KiB, until the peer goes away.
#[must_use]
pub fn chunk_extension_flood() -> Answer {
    let chunk = format!("1;x={}\r\nz\r\n", "e".repeat(4096));
    chunked().body(Body::endless(chunk)).then(End::Close)
}

/// A proper chunked body with so many trailers after it.
#[must_use]
pub fn trailer_flood(trailers: u64) -> Answer {
    let trailer = "x-trailer: 1\r\n";
    let flood = Body::repeat(trailer, trailers * trailer.len() as u64);
    let body = Body::bytes("2\r\nok\r\n0\r\n").then(flood);
    chunked().body(body.then(Body::bytes("\r\n")))
}

/// A chunked body whose first size line is no number.
#[must_use]
pub fn bad_chunk_size() -> Answer {
    chunked().bytes("ZZ\r\nok\r\n0\r\n\r\n").then(End::Close)
}

/// An answer with so many header lines.
#[must_use]
pub fn many_headers(count: usize) -> Answer {
    (0..count).fold(Answer::ok(), |answer, number| {
        answer.header(format!("x-{number}"), "1")
    })
}

/// An answer with two ways to tell where its body ends.
#[must_use]
pub fn two_framings() -> Answer {
    Answer::ok()
        .header("transfer-encoding", "chunked")
        .framing(Framing::Declared(5))
        .bytes("2\r\nok\r\n0\r\n\r\n")
}

fn chunked() -> Answer {
    Answer::ok()
        .header("transfer-encoding", "chunked")
        .framing(Framing::Nothing)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_bomb_inflates_to_what_it_promises() {
        let wire = gzip_bomb(20_000_000).to_bytes();
        assert!(wire.len() < 20_000, "{}", wire.len());
        let mut inflated = 0_u64;
        let mut decoder = flate2::read::GzDecoder::new(&wire[..]);
        let mut buffer = vec![1; 64 * 1024];
        let end = loop {
            match decoder.read(&mut buffer) {
                Ok(length) => {
                    assert!(buffer[..length].iter().all(|byte| *byte == 0));
                    inflated += length as u64;
                }
                Err(error) => break error,
            }
        };
        assert_eq!(end.kind(), std::io::ErrorKind::UnexpectedEof);
        assert!(inflated.abs_diff(20_000_000) < 5_000, "{inflated}");
    }
}
