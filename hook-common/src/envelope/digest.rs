//! The digest that tells whether two enqueue requests are the same request.

use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};

use crate::job::{Due, Expiry, NewJob};

/// SHA-256 over everything that makes a job what it is, its idempotency key excluded.
///
/// Each part is written with its length or in a fixed width, so that no two requests read alike.
/// Headers count in the order of their names: a producer that keeps them in a hash map sends
/// another order on its next try. Spelling that changes nothing (white space of the envelope, the
/// order of its fields, escapes in a `body`) does not count either.
#[must_use]
pub fn request_sha256(job: &NewJob) -> [u8; 32] {
    let mut hash = Sha256::new();
    // Changes when the encoding does, so that keys from before an upgrade fail to match rather
    // than match by accident.
    part(&mut hash, b"hook request 1");
    part(&mut hash, job.url.as_bytes());
    part(&mut hash, job.target.as_str().as_bytes());
    part(&mut hash, job.method.as_str().as_bytes());
    let mut headers: Vec<_> = job
        .headers
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect();
    headers.sort_unstable();
    count(&mut hash, headers.len());
    for (name, value) in headers {
        part(&mut hash, name.as_bytes());
        part(&mut hash, value.as_bytes());
    }
    part(&mut hash, &job.body);
    part(
        &mut hash,
        job.metadata.as_deref().unwrap_or("{}").as_bytes(),
    );
    match job.due {
        Due::Now => hash.update([0]),
        Due::At(time) => at(&mut hash, time),
        Due::After(delay) => after(&mut hash, delay),
    }
    match job.expires {
        Expiry::Never => hash.update([0]),
        Expiry::At(time) => at(&mut hash, time),
        Expiry::After(delay) => after(&mut hash, delay),
    }
    hash.update(job.max_attempts.unwrap_or_default().to_be_bytes());
    hash.update(job.timeout.unwrap_or_default().as_nanos().to_be_bytes());
    count(&mut hash, job.signing.len());
    for name in &job.signing {
        part(&mut hash, name.as_bytes());
    }
    hash.finalize().into()
}

fn part(hash: &mut Sha256, bytes: &[u8]) {
    count(hash, bytes.len());
    hash.update(bytes);
}

fn count(hash: &mut Sha256, number: usize) {
    let number = u64::try_from(number).expect("no slice is longer than 2^64 bytes");
    hash.update(number.to_be_bytes());
}

fn at(hash: &mut Sha256, time: DateTime<Utc>) {
    hash.update([1]);
    hash.update(time.timestamp_micros().to_be_bytes());
}

fn after(hash: &mut Sha256, delay: std::time::Duration) {
    hash.update([2]);
    hash.update(delay.as_nanos().to_be_bytes());
}
