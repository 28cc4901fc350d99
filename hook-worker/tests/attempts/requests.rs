//! What is sent.

use bytes::Bytes;
use hook_common::job::{ErrorKind, Method};
use hook_testkit::sink::Sink;
use hook_worker::client::{Cleartext, Client, http1::HeaderCase};

use crate::kit::{
    ATTEMPT, JOB_ID, assert_delivered, assert_permanent, attempt, client, config, deadlines,
    request,
};

#[tokio::test]
async fn del_10_the_headers_of_an_attempt_are_ours() {
    let sink = Sink::start(200).await;
    let client = client();
    for number in [1, 2] {
        let mut request = request(sink.url("/hooks?a=b"));
        request.attempt = number;
        request.signatures = Some("v1,abc v1a,def".into());
        assert_delivered(&client.deliver(request, deadlines(ATTEMPT)).await);
    }
    let requests = sink.requests();
    assert_eq!(requests.len(), 2);
    for (seen, number) in requests.iter().zip(["1", "2"]) {
        assert_eq!(seen.method, "POST");
        assert_eq!(seen.path, "/hooks?a=b");
        assert_eq!(seen.header("host"), Some(&sink.address().to_string()[..]));
        assert_eq!(seen.header("webhook-id"), Some(JOB_ID));
        assert_eq!(seen.header("webhook-timestamp"), Some("1700000000"));
        assert_eq!(seen.header("hook-attempt"), Some(number));
        assert_eq!(seen.header("webhook-signature"), Some("v1,abc v1a,def"));
        assert_eq!(
            seen.header("user-agent"),
            Some(concat!("hook/", env!("CARGO_PKG_VERSION")))
        );
        assert_eq!(seen.body, "{\"n\":1}");
        for absent in ["accept-encoding", "cookie", "expect", "accept", "te"] {
            assert_eq!(seen.header(absent), None, "{absent}");
        }
    }
    assert_eq!(sink.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn net_09_every_body_has_exactly_one_content_length() {
    let sink = Sink::start(200).await;
    let client = client();
    for length in [0_usize, 1, 65_536, 1_048_576] {
        for method in Method::ALL {
            let mut request = request(sink.url("/"));
            request.method = *method;
            request.body = Bytes::from(vec![b'x'; length]);
            assert_delivered(&client.deliver(request, deadlines(ATTEMPT)).await);
            let requests = sink.requests();
            let seen = requests.last().unwrap();
            assert_eq!(seen.method, method.as_str());
            assert_eq!(seen.body.len(), length);
            let lengths: Vec<_> = seen.header_values("content-length").collect();
            assert_eq!(lengths, [length.to_string()], "{method} {length}");
            assert_eq!(seen.header("transfer-encoding"), None);
        }
    }
    assert_eq!(sink.violations(), Vec::<String>::new());
    assert_eq!(sink.connection_count(), 1, "all of them on one connection");
}

#[tokio::test]
async fn hdr_02_reserved_headers_of_a_row_made_by_sql_are_refused() {
    let sink = Sink::start(200).await;
    let client = client();
    for (name, value) in [
        ("Content-Length", "1"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "close"),
        ("Host", "other.test"),
        ("Expect", "100-continue"),
        ("Upgrade", "h2c"),
        ("TE", "trailers"),
        ("Trailer", "x"),
        ("Webhook-Id", "x"),
        ("x", "a\r\nb: c"),
        ("x y", "a"),
        ("", "a"),
    ] {
        let mut request = request(sink.url("/"));
        request.headers = vec![(name.into(), value.into())];
        let report = client.deliver(request, deadlines(ATTEMPT)).await;
        assert_permanent(&report, ErrorKind::InvalidRequest);
    }
    assert_eq!(sink.connection_count(), 0);
}

#[tokio::test]
async fn hdr_02_the_callers_own_headers_are_sent_once() {
    let sink = Sink::start(200).await;
    let mut request = request(sink.url("/"));
    request.headers = vec![
        ("User-Agent".into(), "mine/1".into()),
        ("Content-Type".into(), "text/plain".into()),
        ("Content-Encoding".into(), "gzip".into()),
    ];
    assert_delivered(&client().deliver(request, deadlines(ATTEMPT)).await);
    let requests = sink.requests();
    for (name, value) in [
        ("user-agent", "mine/1"),
        ("content-type", "text/plain"),
        ("content-encoding", "gzip"),
    ] {
        let values: Vec<_> = requests[0].header_values(name).collect();
        assert_eq!(values, [value]);
    }
}

#[tokio::test]
async fn hdr_04_names_can_be_sent_in_title_case() {
    let sink = Sink::start(200).await;
    let mut config = config();
    config.header_case = HeaderCase::Title;
    let mut request = request(sink.url("/"));
    request.headers = vec![
        ("x-lower".into(), "a".into()),
        ("X-UPPER".into(), "b".into()),
        ("content-type".into(), "text/plain".into()),
    ];
    let client = Client::new(config).unwrap();
    assert_delivered(&client.deliver(request, deadlines(ATTEMPT)).await);
    let requests = sink.requests();
    let names: Vec<_> = requests[0]
        .headers
        .iter()
        .map(|(name, _)| &name[..])
        .collect();
    for name in [
        "Host",
        "Content-Length",
        "Content-Type",
        "User-Agent",
        "X-Lower",
        "X-Upper",
    ] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
}

#[tokio::test]
async fn hdr_04_a_name_twice_in_a_row_made_by_sql_is_refused() {
    let sink = Sink::start(200).await;
    let mut request = request(sink.url("/"));
    request.headers = vec![
        ("X-Trace".into(), "1".into()),
        ("x-trace".into(), "2".into()),
    ];
    let report = client().deliver(request, deadlines(ATTEMPT)).await;
    assert_permanent(&report, ErrorKind::InvalidRequest);
    assert_eq!(sink.connection_count(), 0);
}

#[tokio::test]
async fn url_02_user_info_becomes_a_header_and_is_shown_nowhere() {
    let sink = Sink::start(500).await;
    let url = format!("http://hookuser:s3cr3t@{}/p", sink.address());
    let report = attempt(&client(), url).await;
    let requests = sink.requests();
    assert_eq!(
        requests[0].header("authorization"),
        Some("Basic aG9va3VzZXI6czNjcjN0")
    );
    assert_eq!(requests[0].path, "/p");
    assert_eq!(
        requests[0].header("host"),
        Some(&sink.address().to_string()[..])
    );
    let shown = format!("{report:?}");
    assert!(!shown.contains("s3cr3t") && !shown.contains("aG9va3VzZXI6czNjcjN0"));
}

#[tokio::test]
async fn del_12_urls_that_no_client_can_send_are_refused() {
    let client = client();
    for url in [
        "http://a\"b.test/",
        "http://sink.test:99999/",
        "ftp://sink.test/",
        "//sink.test/",
        "not a url",
        "http://ex ample.test/",
        "",
        "javascript:1",
        "http://sink.test:22/",
        "http://:s@/",
    ] {
        let report = attempt(&client, url).await;
        assert_permanent(&report, ErrorKind::InvalidRequest);
    }
}

#[tokio::test]
async fn sd_20_sd_22_sd_23_sd_25_inner_names_are_refused_without_a_lookup() {
    let client = Client::new(Default::default()).unwrap();
    for url in [
        "http://localhost/",
        "http://LOCALHOST/",
        "http://foo.localhost/",
        "http://metadata.google.internal/",
        "http://\u{24db}ocalhost/",
        "http://intranet/",
        "http://127.0.0.1/",
        "http://0x7f000001/",
        "http://[::1]/",
        "http://169.254.169.254/",
    ] {
        let report = attempt(&client, url).await;
        assert_permanent(&report, ErrorKind::BlockedAddress);
        let note = report.note.unwrap();
        assert!(
            !note.contains("127.0.0.1") && !note.contains("169.254"),
            "{note}"
        );
    }
}

#[tokio::test]
async fn odd_but_legal_paths_arrive_as_they_are() {
    let sink = Sink::start(200).await;
    let client = client();
    for path in [
        "/a%20b?q=%F0%9F%98%80",
        "/a|b^c",
        "/a?b=[1]&c={x}",
        "/a?b='c'",
        "/~a;b=c,d/!$&()*+",
        "/?",
    ] {
        assert_delivered(&attempt(&client, sink.url(path)).await);
    }
    assert_eq!(sink.violations(), Vec::<String>::new());
    assert_eq!(sink.request_count(), 6);
}

#[tokio::test]
async fn tl_10_clear_text_can_be_forbidden() {
    let sink = Sink::start(200).await;
    let mut config = config();
    config.cleartext = Cleartext::Refused;
    let client = Client::new(config).unwrap();
    let report = attempt(&client, sink.url("/")).await;
    assert_permanent(&report, ErrorKind::InvalidRequest);
    assert_eq!(sink.connection_count(), 0);
}
