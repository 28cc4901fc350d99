use super::*;

mod properties;

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

fn refused(name: &str, value: &str, code: Code) {
    let problems = check(vec![pair(name, value)], None).unwrap_err();
    assert_eq!(problems.list()[0].code, code, "{name:?}: {value:?}");
    let mut pointer = String::from("/headers");
    push_token(&mut pointer, name);
    assert_eq!(problems.list()[0].pointer, pointer, "the header is named");
}

fn invalid(name: &str, value: &str) {
    refused(name, value, Code::HeaderInvalid);
}

fn reserved(name: &str, value: &str) {
    refused(name, value, Code::HeaderReserved);
    refused(&name.to_ascii_uppercase(), value, Code::HeaderReserved);
}

/// What is sent for `value`.
fn sent(value: &str, wire: &str) {
    let headers = check(vec![pair("X-A", value)], None).unwrap();
    assert_eq!(headers, [pair("X-A", wire)]);
}

/// Names a test after the id of the case that it holds.
macro_rules! cases {
    ($check:ident: $($id:ident $name:expr $(, $value:expr)*;)+) => {
        $(#[test] fn $id() { $check($name $(, $value)*); })+
    };
}

cases! { invalid:
    hd_01_line_break "X-A", "1\r\nX-Injected: 1";
    hd_04_nul "X-A", "a\u{0}b";
    hd_06_space_in_name "X A", "v";
    hd_07_colon_in_name "X:A", "v";
    hd_10_name_not_ascii "Ünï", "v";
    hd_11_value_not_ascii "X-A", "é";
    hd_36_value_too_long "X-Long", &"a".repeat(VALUE_BYTES_MAX + 1);
    line_feed_at_the_end "X-A", "v\n";
    line_break_at_the_start "X-A", "\r\nv";
    delete_character "X-A", "a\u{7f}b";
    empty_name "", "v";
    line_break_in_name "X-A\r\n", "v";
    tab_in_name "X-A\t", "v";
    not_ascii_space "X-A", "\u{a0}v";
}

cases! { reserved:
    hd_15_content_length "Content-Length", "3";
    hd_17_transfer_encoding "Transfer-Encoding", "chunked";
    hd_18_host "Host", "internal.svc";
    hd_21_proxy_connection "Proxy-Connection", "close";
    hd_22_upgrade "Upgrade", "h2c";
    hd_25_expect "Expect", "100-continue";
    hd_26_proxy_authorization "Proxy-Authorization", "Basic x";
    hd_28_pseudo_header ":authority", "x";
    hd_29_webhook_id "webhook-id", "msg_x";
    hd_30_webhook_timestamp "webhook-timestamp", "1";
    hd_34_metadata "Metadata", "true";
    hdr_02_connection "Connection", "close";
    hdr_02_te "TE", "trailers";
    hdr_02_trailer "Trailer", "x";
    keep_alive "Keep-Alive", "timeout=5";
    http2_settings "HTTP2-Settings", "x";
    webhook_signature "webhook-signature", "v1,x";
    hook_attempt "hook-attempt", "1";
    metadata_flavor "Metadata-Flavor", "Google";
    metadata_token "x-aws-ec2-metadata-token", "x";
    metadata_token_life "X-aws-ec2-metadata-token-ttl-seconds", "60";
    pseudo_header_alone ":", "x";
}

cases! { sent:
    hd_38_tab_inside "a\tb", "a\tb";
    hd_39_outer_white_space " lead and trail ", "lead and trail";
    hd_42_secret "Bearer SECRETHDR789", "Bearer SECRETHDR789";
    empty_value "", "";
    white_space_alone " \t ", "";
    all_visible_characters "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
    value_at_the_limit &"a".repeat(VALUE_BYTES_MAX), &"a".repeat(VALUE_BYTES_MAX);
}

#[test]
fn hdr_02_content_headers_are_the_callers_to_set() {
    for name in [
        "Content-Encoding",
        "User-Agent",
        "Content-Type",
        "Date",
        "Accept",
        "webhook",
    ] {
        assert!(check(vec![pair(name, "x")], None).is_ok(), "{name}");
    }
}

#[test]
fn hdr_04_a_name_comes_once_in_any_case() {
    let problems = check(vec![pair("X-Trace", "1"), pair("x-trace", "2")], None).unwrap_err();
    assert_eq!(problems.list().len(), 1);
    assert_eq!(problems.list()[0].code, Code::HeaderDuplicate);
    assert_eq!(problems.list()[0].pointer, "/headers/x-trace");
}

#[test]
fn hdr_04_order_and_spelling_are_kept() {
    let given = vec![pair("x-lower", "a"), pair("X-UPPER", "b")];
    assert_eq!(check(given.clone(), None).unwrap(), given);
}

#[test]
fn us_47_user_info_becomes_a_header_and_rules_out_a_second_one() {
    let headers = check(vec![pair("X-A", "1")], Some("Basic dTpw")).unwrap();
    assert_eq!(
        headers,
        [pair("X-A", "1"), pair("authorization", "Basic dTpw")]
    );
    let problems = check(vec![pair("Authorization", "Bearer x")], Some("Basic dTpw")).unwrap_err();
    assert_eq!(problems.list()[0].code, Code::HeaderDuplicate);
}

#[test]
fn count_and_total_are_bounded() {
    let many = |count| {
        (0..count)
            .map(|n| pair(&format!("x-{n}"), ""))
            .collect::<Vec<_>>()
    };
    assert!(check_new(many(COUNT_MAX), None).is_ok());
    let problems = check_new(many(COUNT_MAX + 1), None).unwrap_err();
    assert_eq!(problems.list()[0].pointer, "/headers");
    // Four names of two bytes, and values that fill the rest.
    let large = |last: usize| {
        let sizes = [VALUE_BYTES_MAX, VALUE_BYTES_MAX, VALUE_BYTES_MAX, last];
        let headers = sizes
            .iter()
            .zip('a'..)
            .map(|(size, c)| pair(&format!("x{c}"), &"v".repeat(*size)));
        check_new(headers.collect(), None)
    };
    assert!(large(VALUE_BYTES_MAX - 8).is_ok());
    assert_eq!(
        large(VALUE_BYTES_MAX - 7).unwrap_err().list()[0].pointer,
        "/headers"
    );
}

#[test]
fn every_fault_is_listed() {
    let given = vec![
        pair("X A", "1"),
        pair("Host", "2"),
        pair("X-B", "\n"),
        pair("X-C", "fine"),
    ];
    let codes: Vec<_> = check(given, None)
        .unwrap_err()
        .list()
        .iter()
        .map(|p| p.code)
        .collect();
    assert_eq!(
        codes,
        [
            Code::HeaderInvalid,
            Code::HeaderReserved,
            Code::HeaderInvalid
        ]
    );
}

#[test]
fn a_very_long_name_is_not_repeated() {
    let problems = check(vec![pair(&"n\n".repeat(9000), "v")], None).unwrap_err();
    assert!(problems.list().iter().all(|p| p.pointer == "/headers"));
}

#[test]
fn secrets_are_known_by_their_names() {
    for name in [
        "Authorization",
        "cookie",
        "X-Api-Key",
        "x-hub-signature-256",
        "X-Gitlab-Token",
        "My-SECRET",
    ] {
        assert!(is_secret(name), "{name}");
    }
    for name in ["content-type", "user-agent", "x-request-id"] {
        assert!(!is_secret(name), "{name}");
    }
}

#[test]
fn names_are_tokens_of_rfc_9110() {
    for byte in 0..=127_u8 {
        let expected = byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        assert_eq!(is_token(byte), expected, "{:?}", char::from(byte));
    }
}

#[test]
fn a_stored_job_has_room_for_the_headers_that_were_added() {
    let mut headers: Vec<_> = (0..COUNT_MAX)
        .map(|n| pair(&format!("x-{n}"), ""))
        .collect();
    headers.push(pair("content-type", "application/json"));
    assert!(check_new(headers.clone(), None).is_err());
    assert!(check(headers.clone(), Some("Basic dTpw")).is_ok());
    headers.push(pair("authorization", "Basic dTpw"));
    assert!(check(headers.clone(), None).is_ok());
    headers.push(pair("x-more", ""));
    assert!(check(headers, None).is_err());
}
