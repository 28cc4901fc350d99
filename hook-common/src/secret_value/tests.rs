//! Secrets are judged, shown and used as Standard Webhooks wants it.

use ed25519_dalek::{Signature, Verifier, VerifyingKey};
use standardwebhooks::Webhook;

use super::*;

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn hmac_secret(bytes: usize) -> String {
    format!("{HMAC_PREFIX}{}", STANDARD.encode(vec![7; bytes]))
}

fn check(text: &str, expected: Result<SecretKind, SecretFault>) {
    let got = SecretValue::parse(text).map(|secret| secret.kind());
    assert_eq!(got, expected, "{text}");
}

#[test]
fn sg_01_an_hmac_key_has_24_to_64_bytes() {
    check(&hmac_secret(16), Err(SecretFault::TooShort));
    check(&hmac_secret(23), Err(SecretFault::TooShort));
    check(&hmac_secret(24), Ok(SecretKind::Hmac));
    check(&hmac_secret(64), Ok(SecretKind::Hmac));
    check(&hmac_secret(65), Err(SecretFault::Invalid));
    assert_eq!(SecretFault::TooShort.code().as_str(), "secret_too_short");
    assert_eq!(SecretFault::Invalid.code().as_str(), "secret_invalid");
}

#[test]
fn what_is_neither_form_is_invalid() {
    for text in [
        "",
        "whsec_",
        "secret",
        "whpk_AAAA",
        "whsec_not base64 at all, but long enough for a key",
        "whsk_AAAA",
        "WHSEC_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        &format!("whsec_{}", "A".repeat(10_000)),
    ] {
        let fault = SecretValue::parse(text).unwrap_err();
        let expected = if text == "whsec_" {
            SecretFault::TooShort
        } else {
            SecretFault::Invalid
        };
        assert_eq!(fault, expected, "{text}");
    }
}

#[test]
fn an_ed25519_key_is_a_seed_or_a_pair_that_belongs_together() {
    let key = SigningKey::from_bytes(&[9; 32]);
    let seed = format!("{ED25519_PREFIX}{}", STANDARD.encode([9; 32]));
    let pair = format!(
        "{ED25519_PREFIX}{}",
        STANDARD.encode(key.to_keypair_bytes())
    );
    check(&seed, Ok(SecretKind::Ed25519));
    check(&pair, Ok(SecretKind::Ed25519));
    let mut torn = key.to_keypair_bytes();
    torn[63] ^= 1;
    let torn = format!("{ED25519_PREFIX}{}", STANDARD.encode(torn));
    check(&torn, Err(SecretFault::Invalid));
    let by_seed = SecretValue::parse(&seed).unwrap().sign(ID, 1, b"x");
    let by_pair = SecretValue::parse(&pair).unwrap().sign(ID, 1, b"x");
    assert_eq!(by_seed, by_pair);
}

#[test]
fn sg_07_sg_08_v1_signatures_agree_with_the_reference() {
    let text = hmac_secret(32);
    let secret = SecretValue::parse(&text).unwrap();
    let reference = Webhook::new(&text).unwrap();
    for body in [&b""[..], b"{\"n\":1}", b"a\r\nb\0c", "h\u{e9}".as_bytes()] {
        assert_eq!(
            secret.sign(ID, 1_700_000_000, body),
            reference.sign(ID, 1_700_000_000, body).unwrap()
        );
    }
    // The reference refuses what is not UTF-8, which a receiver of raw bytes need not.
    let body = b"\xff\xfe\0\r\n";
    let mut mac = Hmac::<Sha256>::new_from_slice(&[7; 32]).unwrap();
    mac.update(format!("{ID}.1700000000.").as_bytes());
    mac.update(body);
    let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    assert_eq!(secret.sign(ID, 1_700_000_000, body), expected);
}

#[test]
fn sg_08_v1a_signatures_verify_over_the_raw_bytes() {
    let key = SigningKey::from_bytes(&[9; 32]);
    let text = format!("{ED25519_PREFIX}{}", STANDARD.encode([9; 32]));
    let secret = SecretValue::parse(&text).unwrap();
    let public: VerifyingKey = key.verifying_key();
    for body in [&b""[..], b"\xff\xfe\0\r\n"] {
        let signature = secret.sign(ID, 1_700_000_000, body);
        let encoded = signature.strip_prefix("v1a,").unwrap();
        let signature = Signature::from_slice(&STANDARD.decode(encoded).unwrap()).unwrap();
        let mut message = format!("{ID}.1700000000.").into_bytes();
        message.extend_from_slice(body);
        public.verify(&message, &signature).unwrap();
    }
}

#[test]
fn sg_10_sg_12_nothing_but_the_last_four_characters_is_shown() {
    let text = format!("{HMAC_PREFIX}{}", STANDARD.encode([0xA5; 33]));
    let secret = SecretValue::parse(&text).unwrap();
    assert_eq!(secret.last_four(), &text[text.len() - 4..]);
    assert_eq!(secret.expose(), text);
    let shown = format!("{secret:?} {secret:#?}");
    assert!(!shown.contains("paWl"), "{shown}");
    assert!(shown.contains("Hmac"));
    let fault = SecretValue::parse(&text[..20]).unwrap_err();
    assert!(!format!("{fault:?} {fault}").contains(&text[6..20]));
}
