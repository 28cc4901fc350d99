//! What is sealed opens with the right key, for the right context, and not otherwise.

use super::*;

fn key(byte: u8) -> SealKey {
    SealKey::parse(&STANDARD.encode([byte; 32])).unwrap()
}

#[test]
fn a_sealed_value_opens_and_shows_nothing() {
    let sealer = Sealer::new(&key(1), &[]);
    let sealed = sealer.seal(b"whsec_abc", "orders").unwrap();
    assert!(!sealed.windows(5).any(|window| window == b"whsec"));
    assert_eq!(*sealer.open(&sealed, "orders").unwrap(), b"whsec_abc");
    let again = sealer.seal(b"whsec_abc", "orders").unwrap();
    assert_ne!(sealed, again, "each nonce is new");
    assert_eq!(format!("{:?}", key(1)), "SealKey(***)");
}

#[test]
fn a_value_moved_to_another_row_stays_closed() {
    let sealer = Sealer::new(&key(1), &[]);
    let sealed = sealer.seal(b"x", "orders").unwrap();
    assert_eq!(sealer.open(&sealed, "refunds"), Err(OpenError::Damaged));
}

#[test]
fn each_changed_byte_is_noticed() {
    let sealer = Sealer::new(&key(1), &[]);
    let sealed = sealer.seal(b"value", "orders").unwrap();
    for place in 0..sealed.len() {
        let mut changed = sealed.clone();
        changed[place] ^= 1;
        assert!(sealer.open(&changed, "orders").is_err(), "byte {place}");
    }
    for length in 0..sealed.len() {
        assert!(sealer.open(&sealed[..length], "orders").is_err());
    }
}

#[test]
fn keys_can_be_changed() {
    let before = Sealer::new(&key(1), &[]);
    let sealed = before.seal(b"value", "orders").unwrap();
    let after = Sealer::new(&key(2), &[key(1)]);
    assert_eq!(*after.open(&sealed, "orders").unwrap(), b"value");
    assert!(before.is_current(&sealed) && !after.is_current(&sealed));
    let forgotten = Sealer::new(&key(2), &[]);
    assert_eq!(
        forgotten.open(&sealed, "orders"),
        Err(OpenError::UnknownKey)
    );
}

#[test]
fn a_key_is_32_bytes_in_base64() {
    for text in [
        "",
        "short",
        &STANDARD.encode([0; 31]),
        &STANDARD.encode([0; 33]),
    ] {
        assert_eq!(SealKey::parse(text).unwrap_err(), NotAKey);
    }
}
