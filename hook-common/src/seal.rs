//! Encrypts what must not lie readable in the database.
//!
//! AES-256-GCM with a fresh random nonce each time. A sealed value names the key that sealed it,
//! so that keys can be changed while old values stay readable, and it is bound to a context (the
//! secret's name), so that a row copied over another one does not open. The number of values is
//! in the thousands, far from where random nonces become a risk.
//!
//! Layout: one byte version, eight bytes key id, twelve bytes nonce, ciphertext with its tag.

use std::fmt;

use aes_gcm::{
    Aes256Gcm, KeyInit, Nonce,
    aead::{Aead, Payload},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use rand::{TryRngCore, rngs::OsRng};
use sha2::{Digest, Sha256};
use thiserror::Error;
use zeroize::Zeroizing;

const VERSION: u8 = 1;
const KEY_ID_BYTES: usize = 8;
const NONCE_BYTES: usize = 12;
const HEADER_BYTES: usize = 1 + KEY_ID_BYTES + NONCE_BYTES;

/// A key for sealing: 32 bytes.
#[derive(Clone)]
pub struct SealKey(Zeroizing<[u8; 32]>);

/// The setting is not a key.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("must be 32 bytes in base64")]
pub struct NotAKey;

/// Why a value could not be sealed.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum SealError {
    /// The operating system gave no randomness.
    #[error("no random numbers are available")]
    NoRandomness,
    /// The value is larger than the cipher can take.
    #[error("the value is too large to be sealed")]
    TooLarge,
}

/// Why a sealed value stays closed.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum OpenError {
    /// It was sealed with a key that is not configured.
    #[error("the value was sealed with a key that is not configured")]
    UnknownKey,
    /// It was changed, moved to another row, or is not a sealed value.
    #[error("the value is damaged")]
    Damaged,
}

/// Seals with one key and opens with that one and older ones.
#[derive(Clone)]
pub struct Sealer {
    current: OneKey,
    old: Vec<OneKey>,
}

#[derive(Clone)]
struct OneKey {
    id: [u8; KEY_ID_BYTES],
    cipher: Aes256Gcm,
}

impl SealKey {
    /// Reads a key from its base64 text.
    ///
    /// # Errors
    /// The text is not base64 or has another length.
    pub fn parse(text: &str) -> Result<Self, NotAKey> {
        let bytes = Zeroizing::new(STANDARD.decode(text.trim()).map_err(|_| NotAKey)?);
        let key = <[u8; 32]>::try_from(bytes.as_slice()).map_err(|_| NotAKey)?;
        Ok(Self(Zeroizing::new(key)))
    }
}

/// Shows nothing of the key.
impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(***)")
    }
}

/// Shows nothing of the keys but how many there are.
impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer")
            .field("old", &self.old.len())
            .finish_non_exhaustive()
    }
}

impl Sealer {
    /// Seals with `current`, and opens with `old` too.
    #[must_use]
    pub fn new(current: &SealKey, old: &[SealKey]) -> Self {
        Self {
            current: OneKey::new(current),
            old: old.iter().map(OneKey::new).collect(),
        }
    }

    /// Seals a value for `context`, which has to be the same when it is opened.
    ///
    /// # Errors
    /// The operating system gave no randomness.
    pub fn seal(&self, plain: &[u8], context: &str) -> Result<Vec<u8>, SealError> {
        let mut nonce = [0; NONCE_BYTES];
        OsRng
            .try_fill_bytes(&mut nonce)
            .map_err(|_| SealError::NoRandomness)?;
        let mut sealed = Vec::with_capacity(HEADER_BYTES + plain.len() + 16);
        sealed.push(VERSION);
        sealed.extend_from_slice(&self.current.id);
        sealed.extend_from_slice(&nonce);
        let payload = Payload {
            msg: plain,
            aad: context.as_bytes(),
        };
        let cipher_text = self
            .current
            .cipher
            .encrypt(Nonce::from_slice(&nonce), payload)
            .map_err(|_| SealError::TooLarge)?;
        sealed.extend_from_slice(&cipher_text);
        Ok(sealed)
    }

    /// Opens a value that was sealed for `context`.
    ///
    /// # Errors
    /// Tells a missing key from a damaged value: the first is cured by a setting.
    pub fn open(&self, sealed: &[u8], context: &str) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        let (header, cipher_text) = sealed
            .split_at_checked(HEADER_BYTES)
            .ok_or(OpenError::Damaged)?;
        if header[0] != VERSION {
            return Err(OpenError::Damaged);
        }
        let (id, nonce) = header[1..].split_at(KEY_ID_BYTES);
        let key = std::iter::once(&self.current)
            .chain(&self.old)
            .find(|key| key.id == id)
            .ok_or(OpenError::UnknownKey)?;
        let payload = Payload {
            msg: cipher_text,
            aad: context.as_bytes(),
        };
        key.cipher
            .decrypt(Nonce::from_slice(nonce), payload)
            .map(Zeroizing::new)
            .map_err(|_| OpenError::Damaged)
    }

    /// Whether a value was sealed with the current key, so that it need not be sealed anew.
    #[must_use]
    pub fn is_current(&self, sealed: &[u8]) -> bool {
        sealed
            .get(1..=KEY_ID_BYTES)
            .is_some_and(|id| id == self.current.id)
    }
}

impl OneKey {
    fn new(key: &SealKey) -> Self {
        // The id says which key it is and nothing about it.
        let digest = Sha256::new()
            .chain_update(b"hook seal key id")
            .chain_update(key.0.as_slice())
            .finalize();
        let mut id = [0; KEY_ID_BYTES];
        id.copy_from_slice(&digest[..KEY_ID_BYTES]);
        Self {
            id,
            cipher: Aes256Gcm::new(key.0.as_slice().into()),
        }
    }
}

#[cfg(test)]
mod tests;
