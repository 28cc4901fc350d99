//! Signing secrets in the two forms of Standard Webhooks, and the signatures made with them.
//!
//! A secret is parsed where it enters and travels as a value that wipes its memory when it goes
//! and shows nothing when it is printed. The signature covers the job's id, the time of the
//! attempt and the exact bytes of the body, so that a receiver can refuse replays.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use ed25519_dalek::{Signer, SigningKey};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use thiserror::Error;
use zeroize::{Zeroize, Zeroizing};

use crate::problem::Code;

const HMAC_PREFIX: &str = "whsec_";
const ED25519_PREFIX: &str = "whsk_";
/// Least and most bytes of an HMAC key.
const HMAC_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Longest text that is looked at: any valid one has fewer characters.
const TEXT_BYTES_MAX: usize = 256;

/// How a secret signs.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SecretKind {
    /// HMAC-SHA256 with a key that the receiver has too: `v1`.
    Hmac,
    /// Ed25519; the receiver has the public key only: `v1a`.
    Ed25519,
}

impl SecretKind {
    /// The word that rows and JSON show.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hmac => "hmac",
            Self::Ed25519 => "ed25519",
        }
    }
}

/// Why a text is no secret.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum SecretFault {
    /// The key has fewer bytes than may be guessed by trying.
    #[error("the secret must have 24 to 64 bytes")]
    TooShort,
    /// Neither form.
    #[error(
        "must be 'whsec_' and 24 to 64 bytes, or 'whsk_' and 32 bytes, or 64 of which the second half is the public key, in base64"
    )]
    Invalid,
}

impl SecretFault {
    /// The code that an answer carries.
    #[must_use]
    pub const fn code(self) -> Code {
        match self {
            Self::TooShort => Code::SecretTooShort,
            Self::Invalid => Code::SecretInvalid,
        }
    }
}

/// A signing secret that can be used.
pub struct SecretValue {
    key: Key,
    text: Zeroizing<String>,
}

enum Key {
    Hmac(Zeroizing<Vec<u8>>),
    /// Wipes itself.
    Ed25519(Box<SigningKey>),
}

/// Shows the kind and nothing of the value.
impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretValue")
            .field("kind", &self.kind())
            .finish_non_exhaustive()
    }
}

impl SecretValue {
    /// Reads a secret as people and databases hand it over.
    ///
    /// # Errors
    /// Says whether it is too short or not a secret at all; never repeats it.
    pub fn parse(text: &str) -> Result<Self, SecretFault> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(SecretFault::Invalid);
        }
        let key = if let Some(encoded) = text.strip_prefix(HMAC_PREFIX) {
            hmac_key(encoded)?
        } else if let Some(encoded) = text.strip_prefix(ED25519_PREFIX) {
            ed25519_key(encoded)?
        } else {
            return Err(SecretFault::Invalid);
        };
        Ok(Self {
            key,
            text: Zeroizing::new(text.to_owned()),
        })
    }

    /// How it signs.
    #[must_use]
    pub const fn kind(&self) -> SecretKind {
        match &self.key {
            Key::Hmac(_) => SecretKind::Hmac,
            Key::Ed25519(_) => SecretKind::Ed25519,
        }
    }

    /// The only part that may be shown after it was stored.
    #[must_use]
    pub fn last_four(&self) -> &str {
        // Every accepted text ends in ASCII.
        &self.text[self.text.len() - 4..]
    }

    /// The text to seal and store; [`SecretValue::parse`] reads it again.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// The signature of one attempt, with its version in front.
    #[must_use]
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let head = format!("{id}.{timestamp}.");
        match &self.key {
            Key::Hmac(key) => {
                let mut mac =
                    Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of every length");
                mac.update(head.as_bytes());
                mac.update(body);
                format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
            }
            Key::Ed25519(key) => {
                // The algorithm hashes twice, so the message has to be in one piece.
                let mut message = head.into_bytes();
                message.extend_from_slice(body);
                format!("v1a,{}", STANDARD.encode(key.sign(&message).to_bytes()))
            }
        }
    }
}

fn hmac_key(encoded: &str) -> Result<Key, SecretFault> {
    let key = decoded(encoded)?;
    if key.len() < *HMAC_BYTES.start() {
        return Err(SecretFault::TooShort);
    }
    if key.len() > *HMAC_BYTES.end() {
        return Err(SecretFault::Invalid);
    }
    Ok(Key::Hmac(key))
}

fn ed25519_key(encoded: &str) -> Result<Key, SecretFault> {
    let bytes = decoded(encoded)?;
    let key = if let Ok(mut seed) = <[u8; 32]>::try_from(bytes.as_slice()) {
        let key = SigningKey::from_bytes(&seed);
        seed.zeroize();
        key
    } else if let Ok(mut pair) = <[u8; 64]>::try_from(bytes.as_slice()) {
        // The second half is the public key, and has to be the one that belongs to the first.
        let key = SigningKey::from_keypair_bytes(&pair);
        pair.zeroize();
        key.map_err(|_| SecretFault::Invalid)?
    } else {
        return Err(SecretFault::Invalid);
    };
    Ok(Key::Ed25519(Box::new(key)))
}

fn decoded(encoded: &str) -> Result<Zeroizing<Vec<u8>>, SecretFault> {
    STANDARD
        .decode(encoded)
        .map(Zeroizing::new)
        .map_err(|_| SecretFault::Invalid)
}

#[cfg(test)]
mod tests;
