//! Bodies arrive as they were written, and without a copy where that is possible.

use super::*;

fn check_payload(payload: &str) {
    let request = Bytes::from(with("payload", payload));
    let job = parse_one(&request, None, &Limits::default()).unwrap();
    assert_eq!(job.body, payload);
    assert!(is_part_of(&job.body, &request), "the payload is not copied");
}

fn is_part_of(part: &Bytes, whole: &Bytes) -> bool {
    whole.as_ptr_range().contains(&part.as_ptr())
}

#[test]
fn pay_02_surrogates_are_kept() {
    check_payload(r#"{"s":"\ud83d"}"#);
    check_payload(r#"{"s":"\ude00\ud83d"}"#);
    check_payload(r#"{"\ud83d":"\ude00"}"#);
    check_payload("{\"s\":\"\\ud83d\\ude00 \u{1f600}\"}");
}

#[test]
fn pay_03_numbers_are_kept() {
    check_payload(
        r#"{"a":50755254975729665,"b":9007199254740993,"c":18446744073709551615,"d":-9223372036854775808,"e":123456789012345678901234567890}"#,
    );
    check_payload("-0.0");
    check_payload("1E+2");
}

#[test]
fn any_value_is_a_payload() {
    for payload in [
        "null",
        "true",
        "0",
        "\"\"",
        "[]",
        "{}",
        "[ 1 ,\t2 ]",
        "{\"a\":1,\"a\":2}",
    ] {
        check_payload(payload);
    }
}

#[test]
fn pay_07_text_and_bytes_are_kept() {
    assert_eq!(accepted(r#"{"url":"http://sink.test/"}"#).body, "");
    assert_eq!(accepted(&with("body", r#""""#)).body, "");
    assert_eq!(
        accepted(&with("body", r#""plain text""#)).body,
        "plain text"
    );
    assert_eq!(accepted(&with("body", "\"\u{1f600}А\"")).body, "\u{1f600}А");
    assert_eq!(
        accepted(&with("body", r#""\ud83d\ude00\n\u0000""#)).body,
        "\u{1f600}\n\0"
    );
    let all: Vec<u8> = (0..=255).collect();
    let base64 = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &all);
    assert_eq!(
        accepted(&with("body_base64", &format!("\"{base64}\""))).body,
        all
    );
}

#[test]
fn pay_07_text_without_escapes_is_not_copied() {
    let request = Bytes::from(with("body", r#""a=1&b=%20""#));
    let job = parse_one(&request, None, &Limits::default()).unwrap();
    assert!(is_part_of(&job.body, &request));
}

#[test]
fn pay_08_nesting_is_bounded_inline_and_free_in_text() {
    for depth in [126, 127, 128, 129, 1000, 100_000] {
        let nested = "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(
            accepted(&with("body", &format!("\"{nested}\""))).body,
            nested
        );
        // The envelope is a level too.
        match one(&with("payload", &nested)) {
            Ok(job) => assert_eq!((job.body, depth < 128), (nested.into(), true)),
            Err(rejection) => {
                assert!(depth >= 128);
                assert_eq!(rejection.code(), Code::JsonInvalid);
                assert!(rejection.problems()[0].detail.contains("128 levels"));
            }
        }
    }
}

#[test]
fn brackets_in_strings_do_not_nest() {
    let brackets = "[{".repeat(500);
    check_payload(&format!(r#"["{brackets}","\"{brackets}","\\"]"#));
}

#[test]
fn a_text_body_has_a_content_type() {
    let types = |text: &str| -> Vec<String> {
        let headers = accepted(text).headers.into_iter();
        headers
            .map(|(name, value)| format!("{name}: {value}"))
            .collect()
    };
    assert_eq!(
        types(&with("payload", "1")),
        ["content-type: application/json"]
    );
    assert_eq!(
        types(&with("body", r#""""#)),
        ["content-type: application/json"]
    );
    assert!(types(&with("body_base64", r#""YQ==""#)).is_empty());
    assert!(types(r#"{"url":"http://sink.test/"}"#).is_empty());
    let own = r#"{"url":"http://sink.test/","payload":1,"headers":{"Content-TYPE":"text/x"}}"#;
    assert_eq!(types(own), ["Content-TYPE: text/x"]);
}

#[test]
fn one_body_at_most() {
    let check = |fields: &str, surplus: &str| {
        let rejection = rejected(&format!(r#"{{"url":"http://sink.test/",{fields}}}"#));
        assert_eq!(faults(&rejection), [(Code::FieldInvalid, surplus)]);
    };
    check(r#""payload":1,"body":"""#, "/body");
    check(r#""body_base64":"","body":"""#, "/body_base64");
    check(r#""payload":1,"body_base64":"""#, "/body_base64");
    check(r#""payload":1,"body_base64":"","body":"""#, "/body_base64");
}
