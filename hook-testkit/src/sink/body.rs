//! The bytes of an answer, described rather than held.
//!
//! A test that sends ten gigabytes must not hold them: a body is a list of patterns and of how
//! often each is repeated.

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes to write, possibly far more than fit in memory.
#[derive(Clone, Debug, Default)]
pub struct Body {
    pub(super) parts: Vec<Part>,
}

/// `pattern`, repeated and cut so that it makes `total` bytes.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) pattern: Bytes,
    pub(super) total: u64,
}

impl Body {
    /// The total that stands for "until the peer goes away".
    const ENDLESS: u64 = u64::MAX;

    /// These bytes.
    #[must_use]
    pub fn bytes(bytes: impl Into<Bytes>) -> Self {
        let pattern = bytes.into();
        let total = pattern.len() as u64;
        Self {
            parts: vec![Part { pattern, total }],
        }
    }

    /// `pattern` again and again until `total` bytes are written.
    ///
    /// # Panics
    /// When the pattern is empty.
    #[must_use]
    pub fn repeat(pattern: impl Into<Bytes>, total: u64) -> Self {
        let pattern = pattern.into();
        assert!(!pattern.is_empty(), "an empty pattern never makes a body");
        Self {
            parts: vec![Part { pattern, total }],
        }
    }

    /// `pattern` again and again until the peer goes away.
    #[must_use]
    pub fn endless(pattern: impl Into<Bytes>) -> Self {
        Self::repeat(pattern, Self::ENDLESS)
    }

    /// This body followed by another.
    #[must_use]
    pub fn then(mut self, next: Self) -> Self {
        self.parts.extend(next.parts);
        self
    }

    /// Length in bytes, or nothing for an endless body.
    #[must_use]
    pub fn len(&self) -> Option<u64> {
        self.parts
            .iter()
            .try_fold(0_u64, |sum, part| sum.checked_add(part.total))
            .filter(|total| *total != Self::ENDLESS)
    }

    /// Whether nothing is written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// The first `limit` bytes of this body.
    pub(super) fn cut(self, limit: u64) -> Self {
        let mut left = limit;
        let mut parts = Vec::new();
        for part in self.parts {
            let total = part.total.min(left);
            left -= total;
            parts.push(Part { total, ..part });
        }
        Self { parts }
    }

    /// Everything in one piece; only for bodies that were given in one.
    pub(super) fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::new();
        for part in &self.parts {
            let mut left = usize::try_from(part.total).expect("the body fits in memory");
            while left > 0 {
                let piece = part.pattern.len().min(left);
                out.put_slice(&part.pattern[..piece]);
                left -= piece;
            }
        }
        out.freeze()
    }
}
