//! `Target`: the one definition of "same destination".
//!
//! A target is a name of 1 to 255 printable characters: the URL's host in one spelling, or a key
//! that the caller chose. Its id is derived from the name alone, so that every process, and SQL,
//! computes the same id without asking anybody.

use std::fmt;

use sha2::{Digest, Sha256};

/// The destination that a job shares its fate with.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Target(String);

/// The number that stands for a target in rows and in memory.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TargetId(pub i64);

impl Target {
    /// Longest name, in characters.
    pub const CHARS_MAX: usize = 255;

    /// Accepts a name of 1 to 255 printable characters.
    ///
    /// # Errors
    /// Says what is wrong with the name, for the person who sent it.
    pub fn new(name: impl Into<String>) -> Result<Self, &'static str> {
        let name = name.into();
        if name.is_empty() {
            return Err("must not be empty");
        }
        if name.chars().count() > Self::CHARS_MAX {
            return Err("must have at most 255 characters");
        }
        if !name.chars().all(is_printable) {
            return Err("must have printable characters only");
        }
        Ok(Self(name))
    }

    /// The name as it is shown and stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first eight bytes of the name's SHA-256, as a big-endian signed number.
    ///
    /// SQL computes the same in `hook.target_id(text)`. Two names in a million collide with a
    /// chance of 3e-8; such a pair would merely share its caps and its place in the order.
    #[must_use]
    pub fn id(&self) -> TargetId {
        let digest = Sha256::digest(self.0.as_bytes());
        let head: [u8; 8] = digest[..8]
            .try_into()
            .expect("a SHA-256 digest has 32 bytes");
        TargetId(i64::from_be_bytes(head))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a character of a name shows, and leaves the ones around it as they are: neither control
/// characters nor invisible ones, nor those that turn the direction of what follows (UAX #9), with
/// which one name could be made to look like another. Joiners stay; scripts and emoji need them.
#[must_use]
pub fn is_printable(character: char) -> bool {
    let misleads = matches!(
        character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
    );
    !character.is_control() && !misleads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_depends_on_the_name_alone() {
        assert_eq!(
            Target::new("example.com").unwrap().id(),
            Target::new("example.com").unwrap().id()
        );
        assert_eq!(
            Target::new("example.com").unwrap().id(),
            TargetId(-6_667_114_193_848_649_307)
        );
    }

    #[test]
    fn names_that_cannot_be_shown_are_refused() {
        for name in [
            "",
            "a\nb",
            "a\u{0}b",
            "a\u{202e}b",
            "\u{200b}",
            "\u{feff}a",
            &"x".repeat(256),
        ] {
            assert!(Target::new(name).is_err(), "{name:?}");
        }
        assert!(Target::new("ü".repeat(255)).is_ok());
        assert!(Target::new("👩\u{200d}🚀 क्\u{200d}ष").is_ok());
    }
}
