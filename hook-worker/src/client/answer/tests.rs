//! What is kept of a body.

use super::*;

fn check(bytes: &[u8], longer: bool, text: &str, truncated: bool) {
    let excerpt = Excerpt::of(bytes, longer);
    assert_eq!(excerpt.text, text);
    assert_eq!(excerpt.truncated, truncated);
    assert!(excerpt.text.len() <= EXCERPT_BYTES_MAX);
    assert!(!excerpt.text.contains('\0'));
}

#[test]
fn net_07_rs_56_odd_bytes_become_replacement_characters() {
    check(b"\x00A\x00", false, "\u{FFFD}A\u{FFFD}", false);
    check(b"\xFF\xFE\x80", false, "\u{FFFD}\u{FFFD}\u{FFFD}", false);
    check(b"\xE2\x5C\x78", false, "\u{FFFD}\\x", false);
    check(b"a\0b\xff\xfe", false, "a\u{FFFD}b\u{FFFD}\u{FFFD}", false);
}

#[test]
fn net_07_a_character_across_the_limit_is_left_out_whole() {
    let mut bytes = vec![b'x'; EXCERPT_BYTES_MAX - 2];
    bytes.extend("\u{1F600}".as_bytes());
    check(&bytes, false, &"x".repeat(EXCERPT_BYTES_MAX - 2), true);
    // The same behind bytes that are not UTF-8.
    bytes[0] = 0xFF;
    let excerpt = Excerpt::of(&bytes, false);
    assert!(excerpt.text.starts_with("\u{FFFD}xxx"));
    assert!(excerpt.text.ends_with('x'));
}

#[test]
fn a_text_that_grew_by_replacement_is_cut_again() {
    let excerpt = Excerpt::of(&[0; EXCERPT_BYTES_MAX], false);
    assert!(excerpt.truncated);
    assert!(excerpt.text.len() <= EXCERPT_BYTES_MAX);
    assert!(excerpt.text.chars().all(|c| c == '\u{FFFD}'));
}

#[test]
fn a_whole_short_body_is_kept_as_it_is() {
    check(b"", false, "", false);
    check("h\u{e9}".as_bytes(), false, "h\u{e9}", false);
    check(
        &[b'x'; EXCERPT_BYTES_MAX],
        false,
        &"x".repeat(EXCERPT_BYTES_MAX),
        false,
    );
    check(b"cut \xF0\x9F", false, "cut \u{FFFD}", false);
}

proptest::proptest! {
    /// Whatever a receiver sends, the text column takes it.
    #[test]
    fn any_bytes_become_a_storable_text(
        filling in 0_usize..EXCERPT_BYTES_MAX + 64,
        tail in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64),
        longer: bool,
    ) {
        let mut bytes = vec![b'x'; filling];
        bytes.extend(&tail);
        let excerpt = Excerpt::of(&bytes, longer);
        proptest::prop_assert!(excerpt.text.len() <= EXCERPT_BYTES_MAX);
        proptest::prop_assert!(!excerpt.text.contains('\0'));
        proptest::prop_assert_eq!(
            excerpt.truncated || String::from_utf8_lossy(&bytes).replace('\0', "\u{FFFD}") == excerpt.text,
            true
        );
    }
}
