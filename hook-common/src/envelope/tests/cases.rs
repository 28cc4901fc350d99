//! The cases of the collection of bad inputs, each under its id.

use super::*;

/// Names a test after the id of the case that it holds.
macro_rules! cases {
    ($check:ident: $($id:ident $input:expr $(, $more:expr)*;)+) => {
        $(#[test] fn $id() { $check($input $(, $more)*); })+
    };
}

cases! { check_json_invalid:
    js_03_array "[1,]", "(line 1, column 4)";
    js_04_trailing_text "{} x", "(line 1, column 4)";
    js_06_single_quotes "{'a':1}", "(line 1, column 2)";
    js_09_field_given_twice r#"{"url":"http://sink.test/","url":"http://x.test/"}"#, "(line 1, column 32)";
    js_10_null "null", "(line 1, column 1)";
    js_13_number "1", "(line 1, column 1)";
    js_14_boolean "true", "(line 1, column 1)";
    js_16_too_deep &"[".repeat(100_000), "deeper than 128 levels (line 1, column 129)";
    // Further ones of the same kinds.
    nothing "", "(line 1, column 1)";
    white_space_alone " \n\t", "(line 2, column 1)";
    string "\"x\"", "(line 1, column 1)";
    open_object "{", "(line 1, column 1)";
    trailing_comma "{\"url\":1,}", "(line 1, column 10)";
    comment "{/**/}", "(line 1, column 2)";
    not_a_number "{\"url\":NaN}", "(line 1, column 8)";
    leading_zero "{\"url\":01}", "(line 1, column 9)";
    raw_line_break_in_string "{\"url\":\"a\nb\"}", "(line 1, column 9)";
    raw_nul_in_string "{\"url\":\"a\u{0}b\"}", "(line 1, column 9)";
    bad_escape "{\"url\":\"\\x\"}", "(line 1, column 10)";
    byte_order_mark "\u{feff}{}", "(line 1, column 1)";
    on_a_later_line "{\n  \"url\": \"x\",\n  \"url\": 1}", "(line 3, column 7)";
    same_name_by_escape r#"{"url":"http://sink.test/","\u0075rl":1}"#, "given twice";
    half_surrogate_in_name r#"{"url":"http://sink.test/","\ud800":1}"#, "(line 1, column ";
    header_given_twice r#"{"url":"http://sink.test/","headers":{"X-A":"1","X-A":"2"}}"#, "(line 1, column 53)";
    unknown_field_given_twice r#"{"x":1,"x":1}"#, "given twice";
    two_objects "{}{}", "(line 1, column 3)";
    metadata_name_twice r#"{"url":"http://sink.test/","metadata":{"a":{"b":1,"b":2}}}"#, "twice";
}

#[test]
fn js_17_unknown_field_is_named() {
    let rejection = rejected(r#"{"url":"http://sink.test/","surprise":1}"#);
    assert_eq!(faults(&rejection), [(Code::UnknownField, "/surprise")]);
}

cases! { check_refused:
    js_18_url_null "url", "null";
    js_20_url_array "url", "[]";
    js_21_url_object "url", "{}";
    js_22_method_trace "method", r#""TRACE""#;
    js_23_method_connect "method", r#""CONNECT""#;
    js_25_method_empty "method", r#""""#;
    js_27_no_attempts "max_attempts", "0";
    js_31_attempts_as_text "max_attempts", r#""3""#;
    js_33_timeout_zero "timeout_ms", "0";
    js_34_timeout_too_long "timeout_ms", "600001";
    js_35_scheduled_at_infinity "scheduled_at", r#""infinity""#;
    js_37_scheduled_on_no_day "scheduled_at", r#""2026-02-30T00:00:00Z""#;
    js_45_key_too_long "idempotency_key", &format!("\"{}\"", "k".repeat(256));
    js_46_key_with_control_character "idempotency_key", r#""a\nb""#;
    // API-04 wants 400 for these; the contract says 422 for values out of range.
    api_04_year_10000 "scheduled_at", r#""+10000-01-01T00:00:00Z""#;
    api_04_year_294277 "scheduled_at", r#""+294277-01-01T00:00:00Z""#;
    api_04_year_1 "scheduled_at", r#""0001-01-01T00:00:00Z""#;
    // Further ones of the same kinds.
    attempts_too_many "max_attempts", "101";
    attempts_negative "max_attempts", "-1";
    attempts_fraction "max_attempts", "1.5";
    attempts_fraction_of_zero "max_attempts", "3.0";
    attempts_exponent "max_attempts", "1e1";
    attempts_huge "max_attempts", "99999999999999999999";
    attempts_null "max_attempts", "null";
    timeout_above_the_limit "timeout_ms", "60001";
    method_number "method", "1";
    method_null "method", "null";
    method_padded "method", r#"" POST""#;
    method_long_s "method", r#""PO\u017fT""#;
    metadata_array "metadata", "[]";
    metadata_text "metadata", r#""{}""#;
    metadata_null "metadata", "null";
    metadata_with_nul r#"metadata"#, r#"{"a":["\u0000"]}"#;
    metadata_with_nul_in_name r#"metadata"#, r#"{"a\u0000":1}"#;
    metadata_with_nul_beside_half_a_pair r#"metadata"#, r#"{"a":"\ud800\u0000"}"#;
    metadata_too_long "metadata", &format!(r#"{{"a":"{}"}}"#, "x".repeat(16 * 1024));
    headers_array "headers", "[]";
    headers_null "headers", "null";
    target_empty "target", r#""""#;
    target_too_long "target", &format!("\"{}\"", "t".repeat(256));
    target_with_control_character "target", r#""a\u0000""#;
    target_number "target", "1";
    key_empty "idempotency_key", r#""""#;
    key_number "idempotency_key", "1";
    scheduled_at_number "scheduled_at", "1700000000";
    scheduled_at_without_zone "scheduled_at", r#""2026-02-03T00:00:00""#;
    scheduled_at_with_space "scheduled_at", r#""2026-02-03 00:00:00Z""#;
    scheduled_at_date_alone "scheduled_at", r#""2026-02-03""#;
    scheduled_at_year_10000_in_utc "scheduled_at", r#""9999-12-31T23:59:59-01:00""#;
    expires_at_minus_infinity "expires_at", r#""-infinity""#;
    delay_negative "delay_ms", "-1";
    delay_beyond_a_century "delay_ms", "9999999999999";
    ttl_zero "ttl_ms", "0";
    body_number "body", "1";
    body_half_surrogate "body", r#""\ud800""#;
    base64_number "body_base64", "1";
    base64_other_alphabet "body_base64", r#""_-8=""#;
    base64_line_break "body_base64", r#""YQ==\n""#;
    signing_array "signing", r#"["a"]"#;
}

#[test]
fn js_39_queue_is_not_a_field() {
    // The case wants `field_invalid`; the contract has no such field, and refuses unknown ones.
    let rejection = rejected(&with("queue", r#""x'; DROP TABLE job_queue; --""#));
    assert_eq!(faults(&rejection), [(Code::UnknownField, "/queue")]);
}

#[test]
fn js_49_numbers_in_metadata_are_kept_as_written() {
    let job = accepted(&with("metadata", r#"{"n":1e130000}"#));
    assert_eq!(job.metadata.as_deref(), Some(r#"{"n":1e130000}"#));
}

#[test]
fn js_50_a_payload_is_opaque() {
    let payload =
        r#"{"a":"\u0000","b":"\ud800","c":1e400,"d":123456789012345678901234567890,"d":2}"#;
    let job = accepted(&with("payload", &format!(" {payload} ")));
    assert_eq!(job.body, payload);
    // As a string with the space that the case has at its end.
    let text = serde_json::to_string(&format!("{payload} ")).unwrap();
    assert_eq!(accepted(&with("body", &text)).body, format!("{payload} "));
}

#[test]
fn js_52_a_body_at_the_limit_is_accepted() {
    let limits = Limits {
        job_body_max: 10,
        ..Limits::default()
    };
    let check = |field: &str, value: &str, fits: bool| {
        let result = parse_one(&with(field, value).into(), None, &limits);
        let faults = result.as_ref().err().map(faults);
        let pointer = format!("/{field}");
        let too_large = vec![(Code::BodyTooLarge, pointer.as_str())];
        assert_eq!(faults, (!fits).then_some(too_large), "{field} {value}");
    };
    check("payload", r#""12345678""#, true);
    check("payload", r#""123456789""#, false);
    check("body", r#""1234567890""#, true);
    check("body", r#""12345678901""#, false);
    check("body", r#""\u0031234567890""#, true);
    check("body", r#""\u00312345678901""#, false);
    check("body_base64", r#""MTIzNDU2Nzg5MA==""#, true);
    check("body_base64", r#""MTIzNDU2Nzg5MA""#, true);
    check("body_base64", r#""MTIzNDU2Nzg5MDE=""#, false);
    check("body_base64", &format!("\"{}\"", "M".repeat(1000)), false);
}

#[test]
fn tl_10_clear_text_can_be_ruled_out() {
    let limits = Limits {
        https_only: true,
        ..Limits::default()
    };
    let check = |url: &str| {
        let request = Bytes::from(format!(r#"{{"url":"{url}"}}"#));
        parse_one(&request, None, &limits)
            .err()
            .map(|rejection| rejection.code())
    };
    assert_eq!(check("http://sink.test/"), Some(Code::HttpsRequired));
    assert_eq!(check("https://sink.test/"), None);
    assert_eq!(check("ftp://sink.test/"), Some(Code::SchemeForbidden));
}

fn check_header(headers: &str, code: Code, pointer: &str) {
    let rejection = rejected(&with("headers", headers));
    assert_eq!(faults(&rejection), [(code, pointer)], "{headers}");
}

cases! { check_header:
    hd_01_line_break r#"{"X-A":"1\r\nX-Injected: 1"}"#, Code::HeaderInvalid, "/headers/X-A";
    hd_12_number r#"{"X-A":7}"#, Code::HeaderInvalid, "/headers/X-A";
    hd_13_null r#"{"X-A":null}"#, Code::HeaderInvalid, "/headers/X-A";
    hd_15_content_length r#"{"Content-Length":"3"}"#, Code::HeaderReserved, "/headers/Content-Length";
    hdr_04_two_cases r#"{"X-Trace":"1","x-trace":"2"}"#, Code::HeaderDuplicate, "/headers/x-trace";
    half_surrogate r#"{"X-A":"\ud800"}"#, Code::HeaderInvalid, "/headers/X-A";
    slash_in_name r#"{"a/b":"1"}"#, Code::HeaderInvalid, "/headers/a~1b";
}

#[test]
fn us_47_user_info_becomes_a_header() {
    let job = accepted(r#"{"url":"http://u:s3cr3t@sink.test/p"}"#);
    assert_eq!(job.url, "http://sink.test/p");
    assert_eq!(job.target.as_str(), "sink.test");
    let header = ("authorization".to_owned(), "Basic dTpzM2NyM3Q=".to_owned());
    assert_eq!(job.headers, [header]);
}

#[test]
fn sl_14_a_refused_address_is_named_by_pointer() {
    let rejection = rejected(r#"{"url":"http://0.0.0.0:8080/"}"#);
    assert_eq!(faults(&rejection), [(Code::TargetForbidden, "/url")]);
}

#[test]
fn api_04_times_within_bounds_are_accepted() {
    for time in [
        "9999-12-31T23:59:59Z",
        "1970-01-01T00:00:00Z",
        "2026-01-01t00:00:00.123456789+02:00",
    ] {
        let job = accepted(&with("scheduled_at", &format!("\"{time}\"")));
        assert!(matches!(job.due, crate::job::Due::At(_)), "{time}");
    }
}

#[test]
fn api_06_invalid_utf_8_is_refused_with_its_position() {
    let request = Bytes::from_static(b"{\"url\":\n\"http://sink.test/\xff\"}");
    let rejection = parse_one(&request, None, &Limits::default()).unwrap_err();
    assert_eq!(rejection.code(), Code::JsonInvalid);
    assert!(
        rejection.problems()[0]
            .detail
            .contains("not UTF-8 (line 2, column 19)")
    );
}
