//! Fields of one job that are accepted, and faults that are listed together.

use std::time::Duration;

use super::*;
use crate::job::{Due, Expiry, Method};

#[test]
fn defaults_are_those_of_the_contract() {
    let job = accepted(r#" {"url":"http://Sink.test/x#y"} "#);
    assert_eq!(job.url, "http://sink.test/x");
    assert_eq!(job.target.as_str(), "sink.test");
    assert_eq!(job.method, Method::Post);
    assert!(job.headers.is_empty() && job.body.is_empty() && job.signing.is_empty());
    assert_eq!((job.due, job.expires), (Due::Now, Expiry::Never));
    assert!(job.metadata.is_none() && job.max_attempts.is_none() && job.timeout.is_none());
    assert!(job.idempotency.is_none());
}

#[test]
fn every_field_is_read() {
    let job = accepted(
        r#"{"url":"https://sink.test/","method":"pUt","headers":{"X-A":" 1 "},"payload":{"a": 1},
            "metadata":{"k": [1, "v"]},"target":"my target","delay_ms":1500,"ttl_ms":60000,
            "max_attempts":100,"timeout_ms":60000,"idempotency_key":"k-1",
            "signing":{"secrets":["new","old"]}}"#,
    );
    assert_eq!(job.method, Method::Put);
    assert_eq!(job.headers[0], ("X-A".to_owned(), "1".to_owned()));
    assert_eq!(job.body, r#"{"a": 1}"#);
    assert_eq!(job.metadata.as_deref(), Some(r#"{"k": [1, "v"]}"#));
    assert_eq!(job.target.as_str(), "my target");
    assert_eq!(job.due, Due::After(Duration::from_millis(1500)));
    assert_eq!(job.expires, Expiry::After(Duration::from_secs(60)));
    assert_eq!(job.max_attempts, Some(100));
    assert_eq!(job.timeout, Some(Duration::from_secs(60)));
    assert_eq!(job.idempotency.unwrap().key, "k-1");
    assert_eq!(job.signing, ["new", "old"]);
}

#[test]
fn all_methods_are_read_in_any_case() {
    for (word, method) in [
        ("post", Method::Post),
        ("Put", Method::Put),
        ("PATCH", Method::Patch),
        ("delete", Method::Delete),
        ("gEt", Method::Get),
    ] {
        assert_eq!(
            accepted(&with("method", &format!("\"{word}\""))).method,
            method
        );
    }
}

#[test]
fn all_faults_are_listed_at_once() {
    let rejection = rejected(
        r#"{"method":"TRACE","headers":{"Host":"x","X-A":1},"body":1,"target":"","surprise":1,
            "max_attempts":0,"signing":{"secrets":["ok","",1],"key":1}}"#,
    );
    assert_eq!(
        faults(&rejection),
        [
            (Code::UnknownField, "/surprise"),
            (Code::FieldInvalid, "/url"),
            (Code::FieldInvalid, "/method"),
            (Code::HeaderInvalid, "/headers/X-A"),
            (Code::HeaderReserved, "/headers/Host"),
            (Code::FieldInvalid, "/body"),
            (Code::FieldInvalid, "/target"),
            (Code::FieldInvalid, "/max_attempts"),
            (Code::UnknownField, "/signing/key"),
            (Code::FieldInvalid, "/signing/secrets/1"),
            (Code::FieldInvalid, "/signing/secrets/2"),
        ]
    );
}

#[test]
fn a_flood_of_unknown_fields_is_cut_short() {
    let many: String = (0..100_000).map(|n| format!(",\"x{n}\":{n}")).collect();
    let rejection = rejected(&format!(r#"{{"url":"http://sink.test/"{many}}}"#));
    assert!(rejection.problems().len() < 200);
    assert_eq!(rejection.code(), Code::UnknownField);
    let long = rejected(&format!(
        r#"{{"url":"http://sink.test/","{}":1}}"#,
        "x".repeat(10_000)
    ));
    assert_eq!(faults(&long), [(Code::UnknownField, "")]);
}

#[test]
fn a_flood_of_headers_is_cut_short() {
    let many: Vec<_> = (0..100_000).map(|n| format!("\"x{n}\":\"{n}\"")).collect();
    let rejection = rejected(&with("headers", &format!("{{{}}}", many.join(","))));
    assert_eq!(faults(&rejection), [(Code::HeaderInvalid, "/headers")]);
}

#[test]
fn headers_at_the_limit_can_be_stored_and_sent() {
    let value = "v".repeat(322);
    let many: Vec<_> = (100..200)
        .map(|n| format!("\"x-{n}\":\"{value}\""))
        .collect();
    let user = "u".repeat(4095);
    let url = format!("http://{user}@sink.test/");
    let headers = many.join(",");
    let job = accepted(&format!(
        r#"{{"url":"{url}","payload":1,"headers":{{{headers}}}}}"#
    ));
    assert_eq!(job.headers.len(), 102);
    // What the worker asks before it sends.
    assert_eq!(
        crate::headers::check(job.headers.clone(), None),
        Ok(job.headers)
    );
}

#[test]
fn a_job_may_not_end_before_it_starts() {
    let check = |fields: &str, expected: &[(Code, &str)]| {
        let text = format!(r#"{{"url":"http://sink.test/",{fields}}}"#);
        let found = one(&text);
        let found = found.as_ref().err().map(faults).unwrap_or_default();
        assert_eq!(found, expected, "{fields}");
    };
    let early = r#""scheduled_at":"2030-01-01T00:00:00Z""#;
    check(
        &format!(r#"{early},"expires_at":"2030-01-01T00:00:00Z""#),
        &[],
    );
    check(
        &format!(r#"{early},"expires_at":"2029-12-31T23:59:59Z""#),
        &[(Code::FieldInvalid, "/expires_at")],
    );
    check(r#""delay_ms":10,"ttl_ms":10"#, &[]);
    check(
        r#""delay_ms":10,"ttl_ms":9"#,
        &[(Code::FieldInvalid, "/ttl_ms")],
    );
    check(r#""ttl_ms":1"#, &[]);
    check(
        &format!(r#"{early},"delay_ms":1"#),
        &[(Code::FieldInvalid, "/delay_ms")],
    );
    check(
        r#""expires_at":"2030-01-01T00:00:00Z","ttl_ms":1"#,
        &[(Code::FieldInvalid, "/ttl_ms")],
    );
}

#[test]
fn secrets_are_one_to_ten_names() {
    let check = |secrets: &str, expected: &[(Code, &str)]| {
        let found = one(&with("signing", &format!(r#"{{"secrets":{secrets}}}"#)));
        let found = found.as_ref().err().map(faults).unwrap_or_default();
        assert_eq!(found, expected, "{secrets}");
    };
    let names = |count: usize| format!("[{}]", vec!["\"s\""; count].join(","));
    let all = [(Code::FieldInvalid, "/signing/secrets")];
    check(&names(1), &[]);
    check(&names(10), &[]);
    check(&names(11), &all);
    check(&names(100_000), &all);
    check("[]", &all);
    check("\"s\"", &all);
    check("null", &all);
    check(
        r#"["a\u0000"]"#,
        &[(Code::FieldInvalid, "/signing/secrets/0")],
    );
    let rejection = rejected(&with("signing", "{}"));
    assert_eq!(faults(&rejection), all);
}

#[test]
fn metadata_may_have_what_postgres_could_not_decode() {
    for metadata in [
        r#"{"a":"\ud800","b":{"a":1},"c":[{"a":1},{"a":1}]}"#,
        r#"{"a":"x","A":"a","b":["a","a"], "c" : {"b":"b","c":"c"}}"#,
        r#"{"\\u0000":"\\u0000"}"#,
        r#"{"a":"\\\\u0000\ud800"}"#,
    ] {
        let job = accepted(&with("metadata", metadata));
        assert_eq!(job.metadata.as_deref(), Some(metadata));
    }
    let edge = format!(r#"{{"a":"{}"}}"#, "x".repeat(16 * 1024 - 8));
    assert_eq!(edge.len(), 16 * 1024);
    assert_eq!(accepted(&with("metadata", &edge)).metadata, Some(edge));
}

#[test]
fn a_key_may_come_as_a_header() {
    let parse = |text: String, key| parse_one(&text.into(), key, &Limits::default());
    let plain = || r#"{"url":"http://sink.test/"}"#.to_owned();
    let as_header = parse(plain(), Some("k1")).unwrap().idempotency.unwrap();
    let as_field = parse(with("idempotency_key", r#""k1""#), None)
        .unwrap()
        .idempotency
        .unwrap();
    assert_eq!(as_header, as_field);
    assert!(parse(with("idempotency_key", r#""k1""#), Some("k1")).is_ok());
    for (text, key) in [
        (with("idempotency_key", r#""k1""#), "k2"),
        (with("idempotency_key", "1"), "k2"),
        (plain(), ""),
        (plain(), "a\tb"),
    ] {
        let rejection = parse(text, Some(key)).unwrap_err();
        assert_eq!(
            faults(&rejection),
            [(Code::FieldInvalid, "/idempotency_key")]
        );
    }
}

#[test]
fn the_digest_knows_one_request_from_another() {
    let digest = |text: &str| request_sha256(&accepted(text));
    let base = digest(&with("headers", r#"{"X-A":"1","X-B":"2"}"#));
    assert_eq!(
        base,
        digest(&with("headers", r#"{ "x-b":"2", "x-a":" 1" }"#))
    );
    assert_eq!(base, {
        let job = r#"{"headers":{"X-A":"1","X-B":"2"},"url":"HTTP://sink.test","metadata":{},"method":"post"}"#;
        digest(job)
    });
    let others = [
        ("headers", r#"{"X-A":"1"}"#),
        ("headers", r#"{"X-A":"1X-B2"}"#),
        ("headers", r#"{"X-A":"2","X-B":"1"}"#),
        ("method", r#""PUT""#),
        ("payload", "1"),
        ("payload", "2"),
        ("body_base64", r#""MQ==""#),
        ("metadata", r#"{"a":1}"#),
        ("target", r#""t""#),
        ("scheduled_at", r#""2030-01-01T00:00:00Z""#),
        ("expires_at", r#""2030-01-01T00:00:00Z""#),
        ("delay_ms", "1"),
        ("ttl_ms", "1"),
        ("max_attempts", "1"),
        ("timeout_ms", "1"),
        ("signing", r#"{"secrets":["a"]}"#),
        ("signing", r#"{"secrets":["a","b"]}"#),
        ("signing", r#"{"secrets":["ab"]}"#),
    ];
    let mut digests: Vec<_> = others
        .iter()
        .map(|(field, value)| digest(&with(field, value)))
        .collect();
    digests.push(base);
    digests.push(digest(r#"{"url":"http://sink.test/"}"#));
    digests.push(digest(r#"{"url":"http://sink.test/x"}"#));
    let count = digests.len();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), count);
}

#[test]
fn no_value_is_repeated_in_a_refusal() {
    for text in [
        r#"{"url":"http://u:SECRET@10.0.0.1/SECRET?SECRET"}"#,
        r#"{"url":"SECRET"}"#,
        r#"{"url":"http://a.test/SECRET SECRET"}"#,
        r#"{"url":"http://SECRET:x@a.test/","headers":{"authorization":"SECRET"}}"#,
        r#"{"url":"http://a.test/","headers":{"x":"SECRET\n","y":["SECRET"]},"body":["SECRET"]}"#,
        r#"{"url":"http://a.test/","method":"SECRET","metadata":"SECRET","target":"SECRET\n"}"#,
        r#"{"url":"http://a.test/","max_attempts":"SECRET","scheduled_at":"SECRET","ttl_ms":"SECRET"}"#,
        r#"{"url":"http://a.test/","signing":{"secrets":["SECRET\n"]},"idempotency_key":"SECRET\n"}"#,
        r#"{"url":"http://a.test/","body_base64":"SECRET!","x":"SECRET"}"#,
        r#"{"url":"http://a.test/","body":"SECRET}"#,
        r#"{"url":"http://a.test/","body":"SECRET" SECRET}"#,
        r#""SECRET""#,
        "SECRET",
    ] {
        let rejection = rejected(text);
        assert!(
            !format!("{rejection} {rejection:?}").contains("SECRET"),
            "{rejection:?}"
        );
    }
}
