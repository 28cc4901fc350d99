//! What holds for every request, however odd.

use chrono::{DateTime, Utc};
use proptest::prelude::*;

use super::*;
use crate::job::Due;

/// Texts that are close enough to requests to get past the first checks.
fn odd_request() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        "\\u0000",
        "\\ud800",
        "\"url\":",
        "\"payload\":",
        "\"body\":",
        "\"headers\":",
        "\"metadata\":",
        "\"jobs\":",
        "\"parameters\":",
        "\"signing\":",
        "\"secrets\":",
        "\"http://sink.test/\"",
        "\"a\"",
        "1",
        "-",
        "0",
        "1e999",
        "null",
        "true",
        " ",
        "\n",
        "\t",
        "\r\n",
        "\u{0}",
        "é",
        "\"a\":1",
        "\"a\":{}",
        "\"url\":\"http://sink.test/\"",
        "{\"url\":\"http://sink.test/\"}",
        "{\"jobs\":[",
        "]}",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// JSON values with white space, odd escapes and odd numbers in them.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,5})?([eE][+-]?[0-9]{1,6})?",
        string(),
    ];
    let space = prop::sample::select(vec!["", " ", "\n", "\t \r\n"]);
    leaf.prop_recursive(5, 64, 6, move |inner| {
        let padded = (space.clone(), inner, space.clone())
            .prop_map(|(before, value, after)| format!("{before}{value}{after}"));
        let member = (string(), padded.clone()).prop_map(|(name, value)| format!("{name}:{value}"));
        prop_oneof![
            prop::collection::vec(padded, 0..6).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(member, 0..6)
                .prop_map(|items| format!("{{{}}}", items.join(","))),
        ]
    })
}

fn string() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[^\\x00-\\x1f\"\\\\]{0,4}",
        "\\\\[\"\\\\/bfnrt]",
        "\\\\u[0-9a-fA-F]{4}",
        Just("\\u0000".to_owned()),
        Just("a".to_owned()),
    ];
    prop::collection::vec(piece, 0..4).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

/// Whether metadata has neither a NUL nor a name twice, found out by reading it in full.
fn is_plain(value: &serde_json::Value, text: &str) -> bool {
    // A name that comes twice is lost on the way, so that fewer names come out than went in.
    !has_nul(value) && names(value) == names_in(text)
}

fn has_nul(value: &serde_json::Value) -> bool {
    use serde_json::Value;
    match value {
        Value::Object(map) => map
            .iter()
            .any(|(name, value)| name.contains('\0') || has_nul(value)),
        Value::Array(list) => list.iter().any(has_nul),
        Value::String(text) => text.contains('\0'),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn names(value: &serde_json::Value) -> usize {
    use serde_json::Value;
    match value {
        Value::Object(map) => map.len() + map.values().map(names).sum::<usize>(),
        Value::Array(list) => list.iter().map(names).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Counts the colons outside strings: one for each name.
fn names_in(text: &str) -> usize {
    let mut count = 0;
    let mut in_string = false;
    let mut escaped = false;
    for c in text.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => in_string = !in_string,
            ':' if !in_string => count += 1,
            _ => {}
        }
    }
    count
}

fn parse_all(request: &Bytes) {
    let limits = Limits::default();
    drop(parse_one(request, None, &limits));
    drop(parse_one(request, Some("key"), &limits));
    drop(parse_batch_json(request, &limits));
    drop(parse_batch_ndjson(request, &limits));
    drop(parse_legacy(request, None, &limits));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        parse_all(&bytes.into());
    }

    #[test]
    fn odd_requests_are_judged(text in odd_request()) {
        parse_all(&Bytes::from(text.clone()));
        if let Ok(job) = one(&text) {
            prop_assert!(serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok());
            // The worker judges what it finds once more, and must not come to another view.
            prop_assert_eq!(&crate::url_rules::check(&job.url).unwrap().url, &job.url);
            prop_assert_eq!(&crate::headers::check(job.headers.clone(), None).unwrap(), &job.headers);
            prop_assert!(text.contains(std::str::from_utf8(&job.body).unwrap()) || text.contains('\\'));
        }
    }

    #[test]
    fn a_payload_arrives_as_it_was_written(value in json()) {
        let job = accepted(&with("payload", &format!(" \n{value}\t")));
        prop_assert_eq!(job.body, value.trim_matches([' ', '\t', '\n', '\r']));
    }

    #[test]
    fn text_arrives_as_it_was_meant(text in any::<String>()) {
        let quoted = serde_json::to_string(&text).unwrap();
        prop_assert_eq!(accepted(&with("body", &quoted)).body, text);
    }

    #[test]
    fn bytes_arrive_as_they_were_meant(bytes in prop::collection::vec(any::<u8>(), 0..99)) {
        let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &bytes);
        prop_assert_eq!(accepted(&with("body_base64", &format!("\"{text}\""))).body, bytes);
    }

    #[test]
    fn metadata_is_refused_for_nul_and_names_given_twice_alone(value in json()) {
        let text = format!(r#"{{"m":{value}}}"#);
        let Ok(plain) = serde_json::from_str(&text) else {
            return Ok(());
        };
        let job = one(&with("metadata", &text));
        prop_assert_eq!(job.is_ok(), is_plain(&plain, &text), "{}", text);
    }

    #[test]
    fn every_time_that_can_be_written_is_read(seconds in 0..253_402_300_800_i64, offset in -1439..1439_i32) {
        let time: DateTime<Utc> = DateTime::from_timestamp(seconds, 0).unwrap();
        let zone = chrono::FixedOffset::east_opt(offset * 60).unwrap();
        let text = time.with_timezone(&zone).to_rfc3339();
        // At the ends of the range another zone's year has five digits, or is one too early.
        let can_be_written = text.len() == 25;
        let job = one(&with("scheduled_at", &format!("\"{text}\"")));
        prop_assert_eq!(job.ok().map(|job| job.due), can_be_written.then_some(Due::At(time)));
    }

    #[test]
    fn any_time_is_judged(text in "[0-9TtZz:+. -]{0,30}|\\PC{0,12}|[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9:.]{8,20}(Z|[+-][0-9:]{5})") {
        let time = super::schedule::time(&text);
        prop_assert!(time.is_none_or(|time| time.timestamp() >= 0));
    }
}
