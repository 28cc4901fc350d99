//! Who may do what: bearer tokens, compared without telling how much of one was right.
//!
//! Both sides of a comparison are hashed first, so that its duration depends on neither the
//! content nor the length of a token, and every configured token is compared each time. A browser
//! cannot send a bearer token from its address bar, so HTTP Basic with the token as password is
//! taken as well.

use axum::http::{HeaderMap, HeaderValue, Method, header};
use base64::{Engine, engine::general_purpose::STANDARD};
use hook_common::{config::Secret, problem::Code};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::problem::Refusal;

const BEARER: HeaderValue = HeaderValue::from_static("Bearer");
const BASIC: HeaderValue = HeaderValue::from_static("Basic realm=\"hook\", charset=\"UTF-8\"");

/// What the sender of a request may do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Grant {
    /// Everything.
    All,
    /// Enqueue jobs, and nothing else.
    EnqueueOnly,
}

/// The tokens that are accepted, as digests.
#[derive(Debug)]
pub(crate) struct Tokens {
    all: Vec<[u8; 32]>,
    enqueue_only: Vec<[u8; 32]>,
}

impl Tokens {
    /// Takes the configured tokens; with none at all, everybody may do everything.
    pub(crate) fn new(all: &[Secret<String>], enqueue_only: &[Secret<String>]) -> Self {
        let digests = |tokens: &[Secret<String>]| {
            let tokens = tokens.iter();
            tokens
                .map(|token| digest(token.expose().as_bytes()))
                .collect()
        };
        Self {
            all: digests(all),
            enqueue_only: digests(enqueue_only),
        }
    }

    /// Judges the credentials of a request.
    pub(crate) fn judge(&self, method: &Method, headers: &HeaderMap) -> Result<Grant, Refusal> {
        if self.all.is_empty() && self.enqueue_only.is_empty() {
            return Ok(Grant::All);
        }
        let presented = headers.get(header::AUTHORIZATION).and_then(token_of);
        // A missing token is compared like any other; no digest is that of no token.
        let digest = presented.map_or([0; 32], |token| digest(&token));
        let is_full = is_among(&digest, &self.all);
        let is_enqueue = is_among(&digest, &self.enqueue_only);
        if bool::from(is_full) {
            Ok(Grant::All)
        } else if bool::from(is_enqueue) {
            Ok(Grant::EnqueueOnly)
        } else {
            Err(challenge(method, headers))
        }
    }
}

/// What tells the token of a request from others without being it; `None` without a token.
pub(crate) fn fingerprint(headers: &HeaderMap) -> Option<String> {
    let token = headers.get(header::AUTHORIZATION).and_then(token_of)?;
    let start = digest(&token);
    Some(
        start[..4]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect(),
    )
}

fn digest(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

fn is_among(digest: &[u8; 32], known: &[[u8; 32]]) -> Choice {
    known.iter().fold(Choice::from(0), |found, candidate| {
        found | candidate.as_slice().ct_eq(digest.as_slice())
    })
}

/// The token in an `authorization` header, if it has the form of one.
fn token_of(value: &HeaderValue) -> Option<Vec<u8>> {
    let value = value.as_bytes();
    if let Some(token) = after_scheme(value, b"bearer ") {
        return (!token.is_empty()).then(|| token.to_vec());
    }
    let credentials = STANDARD.decode(after_scheme(value, b"basic ")?).ok()?;
    let colon = credentials.iter().position(|byte| *byte == b':')?;
    let password = credentials.get(colon + 1..)?;
    (!password.is_empty()).then(|| password.to_vec())
}

fn after_scheme<'a>(value: &'a [u8], scheme: &[u8]) -> Option<&'a [u8]> {
    let (head, rest) = value.split_at_checked(scheme.len())?;
    head.eq_ignore_ascii_case(scheme).then_some(rest)
}

/// The refusal of a request without a valid token: always the same words.
fn challenge(method: &Method, headers: &HeaderMap) -> Refusal {
    let detail = "send a valid token as `Authorization: Bearer <token>`";
    let refusal = Refusal::new(Code::Unauthorized, detail).with(header::WWW_AUTHENTICATE, BEARER);
    let is_browser = *method == Method::GET
        && headers
            .get(header::ACCEPT)
            .is_some_and(|accept| accept.as_bytes().starts_with(b"text/html"));
    if is_browser {
        refusal.with(header::WWW_AUTHENTICATE, BASIC)
    } else {
        refusal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> Tokens {
        let secret = |text: &str| Secret::new(text.to_owned());
        Tokens::new(&[secret("one"), secret("two")], &[secret("three")])
    }

    fn judge(value: &[u8]) -> Option<Grant> {
        let mut headers = HeaderMap::new();
        headers.insert(
            header::AUTHORIZATION,
            HeaderValue::from_bytes(value).unwrap(),
        );
        tokens().judge(&Method::POST, &headers).ok()
    }

    #[test]
    fn every_configured_token_is_accepted() {
        assert_eq!(judge(b"Bearer one"), Some(Grant::All));
        assert_eq!(judge(b"bearer two"), Some(Grant::All));
        assert_eq!(judge(b"BEARER three"), Some(Grant::EnqueueOnly));
        let basic = format!("Basic {}", STANDARD.encode("anybody:two"));
        assert_eq!(judge(basic.as_bytes()), Some(Grant::All));
    }

    #[test]
    fn au_02_to_09_anything_else_is_not() {
        let others: [&[u8]; 12] = [
            b"",
            b"Bearer",
            b"Bearer ",
            b"Bearer wrong",
            b"Bearer  one",
            b"Bearer one ",
            b"Bearer a\xc3\xa9",
            b"one",
            b"Token one",
            b"Basic one",
            b"Basic b25l",
            b"Bearer one,two",
        ];
        for value in others {
            assert_eq!(judge(value), None, "{:?}", String::from_utf8_lossy(value));
        }
        assert!(tokens().judge(&Method::GET, &HeaderMap::new()).is_err());
    }

    #[test]
    fn without_tokens_everybody_may_do_everything() {
        let open = Tokens::new(&[], &[]);
        assert_eq!(
            open.judge(&Method::POST, &HeaderMap::new()).ok(),
            Some(Grant::All)
        );
    }
}
