//! What is made of answers, and of their absence.

use std::time::Duration;

use bytes::Bytes;
use hook_common::job::{ErrorKind, Outcome};
use hook_testkit::{
    sink::{
        Sink,
        answer::{Answer, BodyRead, End, Framing, Stage},
        body::Body,
        script::{Opening, OpeningAct, Script},
    },
    wait::wait_for,
};

use crate::kit::{
    ATTEMPT, SLACK, assert_delivered, assert_outcome, assert_retryable, attempt, client, deadlines,
    request,
};

/// One attempt against one answer.
async fn report_of(answer: Answer) -> hook_worker::delivery::Report {
    let sink = Sink::start(answer).await;
    attempt(&client(), sink.url("/")).await
}

#[tokio::test]
async fn del_03_rs_28_to_rs_40_the_status_line_decides() {
    let sink = Sink::start(Script::status_in_path()).await;
    let client = client();
    let http = Some(ErrorKind::HttpStatus);
    for (statuses, outcome, kind) in [
        (&[200, 201, 204, 226, 299][..], Outcome::Delivered, None),
        (
            &[301, 302, 303, 304, 307, 308],
            Outcome::Permanent,
            Some(ErrorKind::Redirect),
        ),
        (
            &[408, 425, 429, 500, 502, 503, 504, 511, 520, 529],
            Outcome::Retryable,
            http,
        ),
        (
            &[400, 401, 404, 410, 413, 418, 421, 451, 499],
            Outcome::Permanent,
            http,
        ),
        (&[600, 999], Outcome::Permanent, http),
    ] {
        for status in statuses {
            let report = attempt(&client, sink.url(&format!("/{status}"))).await;
            assert_outcome(&report, outcome, kind, Some(*status));
        }
    }
}

#[tokio::test]
async fn del_01_a_redirect_is_not_followed() {
    let sink = Sink::start(Script::by_path([
        (
            "/start",
            Script::always(Answer::status(302).header("location", "/end")),
        ),
        ("/end", Script::status(200)),
    ]))
    .await;
    let report = attempt(&client(), sink.url("/start")).await;
    assert_outcome(
        &report,
        Outcome::Permanent,
        Some(ErrorKind::Redirect),
        Some(302),
    );
    assert_eq!(sink.requests_at("/end").len(), 0);
    assert_eq!(sink.request_count(), 1);
}

#[tokio::test]
async fn del_09_rs_06_silence_is_a_timeout() {
    let sink = Sink::start(Answer::silence()).await;
    let limit = Duration::from_millis(400);
    let report = client()
        .deliver(request(sink.url("/")), deadlines(limit))
        .await;
    assert_retryable(&report, ErrorKind::Timeout);
    assert!(report.duration >= limit && report.duration < limit + SLACK);
}

#[tokio::test]
async fn rs_05_a_slow_head_is_a_timeout() {
    let sink = Sink::start(Answer::ok().head_gap(Duration::from_millis(200))).await;
    let limit = Duration::from_millis(700);
    let report = client()
        .deliver(request(sink.url("/")), deadlines(limit))
        .await;
    assert_retryable(&report, ErrorKind::Timeout);
    assert!(report.duration < limit + SLACK);
}

#[tokio::test]
async fn rs_03_a_slow_body_leaves_the_status_standing() {
    let slow = |status| {
        Answer::status(status)
            .body(Body::endless("x"))
            .framing(Framing::Nothing)
            .body_gap(Duration::from_millis(100))
    };
    let report = report_of(slow(500)).await;
    assert_outcome(
        &report,
        Outcome::Retryable,
        Some(ErrorKind::HttpStatus),
        Some(500),
    );
    assert!(report.duration < Duration::from_secs(1) + SLACK);
    assert!(report.response_excerpt.unwrap().starts_with(b"xxx"));
    assert_delivered(&report_of(slow(200)).await);
}

#[tokio::test]
async fn net_05_rs_01_an_endless_body_is_read_to_the_limit() {
    for (status, outcome) in [(200, Outcome::Delivered), (500, Outcome::Retryable)] {
        let answer = Answer::status(status)
            .body(Body::endless(vec![b'x'; 4096]))
            .framing(Framing::Nothing);
        let sink = Sink::builder(answer).send_buffer_bytes(4096).start().await;
        let report = attempt(&client(), sink.url("/")).await;
        assert_eq!(report.outcome, outcome, "{report:?}");
        assert!(report.response_truncated);
        assert_eq!(report.response_excerpt.unwrap().len(), 4096);
        let closed = wait_for(
            Duration::from_secs(5),
            async || sink.connections(),
            |connections| connections[0].closed.is_some(),
        );
        closed.await;
        assert_eq!(sink.connection_count(), 1);
    }
}

#[tokio::test]
async fn net_06_rs_16_a_compressed_body_is_not_inflated() {
    let answer = Answer::ok()
        .header("content-encoding", "gzip")
        .body(Body::repeat(vec![0x1f, 0x8b, 8, 0], 10 * 1024 * 1024));
    let report = report_of(answer).await;
    assert_delivered(&report);
    assert_eq!(report.note.as_deref(), Some("body_too_long"));
    assert!(report.response_excerpt.unwrap().starts_with(&[0x1f]));
}

#[tokio::test]
async fn net_07_rs_56_odd_bytes_are_kept_as_text_without_nul() {
    let answer = Answer::status(500)
        .reason(Bytes::from_static(&[0xA0, 0xA1]))
        .bytes(&b"a\x00b\xff\xfe"[..]);
    let report = report_of(answer).await;
    assert_eq!(report.response_status, Some(500));
    assert_eq!(
        String::from_utf8(report.response_excerpt.unwrap()).unwrap(),
        "a\u{FFFD}b\u{FFFD}\u{FFFD}"
    );
}

#[tokio::test]
async fn net_02_an_answer_before_the_body_was_read_is_seen() {
    for status in [413, 200] {
        let answer = Answer::status(status)
            .body_read(BodyRead::Never)
            .pause_before_end(Duration::from_millis(50));
        let sink = Sink::start(answer).await;
        let client = client();
        for _ in 0..20 {
            let mut request = request(sink.url("/"));
            request.body = Bytes::from(vec![b'x'; 1024 * 1024]);
            let report = client.deliver(request, deadlines(ATTEMPT)).await;
            assert_eq!(report.response_status, Some(status), "{report:?}");
        }
        assert_eq!(sink.request_count(), 20);
    }
}

#[tokio::test]
async fn net_02_an_answer_that_overtakes_a_reset_is_seen_too() {
    let answer = Answer::status(413)
        .body_read(BodyRead::Never)
        .then(End::Close);
    let sink = Sink::start(answer).await;
    let client = client();
    let mut seen = 0;
    for _ in 0..50 {
        let mut request = request(sink.url("/"));
        request.body = Bytes::from(vec![b'x'; 1024 * 1024]);
        let report = client.deliver(request, deadlines(ATTEMPT)).await;
        match report.response_status {
            Some(413) => seen += 1,
            _ => assert_retryable(&report, ErrorKind::Reset),
        }
        assert!(report.duration < Duration::from_secs(1), "{report:?}");
    }
    assert!(seen > 0);
}

#[tokio::test]
async fn net_08_http_1_0_answers_end_with_the_connection() {
    let sink = Sink::start(Answer::ok().http10().bytes("x".repeat(20))).await;
    let client = client();
    for _ in 0..50 {
        let report = attempt(&client, sink.url("/")).await;
        assert_delivered(&report);
        assert_eq!(report.response_excerpt.unwrap().len(), 20);
    }
    assert_eq!(sink.connection_count(), 50);
    assert_eq!(sink.request_count(), 50);
}

#[tokio::test]
async fn net_19_rs_11_interim_answers_do_not_shift_the_final_ones() {
    let script = Script::new(|request, _| {
        let status = if request.path == "/odd" { 200 } else { 404 };
        Answer::status(status).interim(100).interim(103)
    });
    let sink = Sink::start(script).await;
    let client = client();
    for number in 1..=20 {
        let (path, status) = if number % 2 == 1 {
            ("/odd", 200)
        } else {
            ("/even", 404)
        };
        let report = attempt(&client, sink.url(path)).await;
        assert_eq!(report.response_status, Some(status));
    }
    assert_eq!(sink.connection_count(), 1);
}

#[tokio::test]
async fn net_19_a_flood_of_interim_answers_ends_the_attempt() {
    let sink = Sink::start(Answer::ok().endless_interim(102)).await;
    let report = attempt(&client(), sink.url("/")).await;
    assert_retryable(&report, ErrorKind::InvalidResponse);
    assert!(report.duration < Duration::from_secs(1));
}

#[tokio::test]
async fn sixty_four_interim_answers_are_fine_and_one_more_is_not() {
    for (count, kind) in [(64, None), (65, Some(ErrorKind::InvalidResponse))] {
        // All in one piece or nearly so: the limit must not depend on how a peer's writes are cut.
        let mut answer = Answer::ok();
        for _ in 0..count {
            answer = answer.interim(102);
        }
        let sink = Sink::start(answer).await;
        let report = attempt(&client(), sink.url("/")).await;
        assert_eq!(report.error_kind, kind, "{count}: {report:?}");
    }
}

#[tokio::test]
async fn rs_12_switching_protocols_is_permanent() {
    let answer = Answer::status(101)
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .then(End::Hold);
    let sink = Sink::start(answer).await;
    let report = attempt(&client(), sink.url("/")).await;
    assert_outcome(
        &report,
        Outcome::Permanent,
        Some(ErrorKind::InvalidResponse),
        Some(101),
    );
    wait_for(
        Duration::from_secs(5),
        async || sink.connections(),
        |connections| connections[0].closed.is_some(),
    )
    .await;
}

#[tokio::test]
async fn rs_13_a_head_above_its_limits_is_invalid() {
    let mut many = Answer::ok();
    for number in 0..150 {
        many = many.header(format!("x-{number}"), "y");
    }
    assert_retryable(&report_of(many).await, ErrorKind::InvalidResponse);
    let long = Answer::ok().header("x", "y".repeat(64 * 1024));
    assert_retryable(&report_of(long).await, ErrorKind::InvalidResponse);
}

#[tokio::test]
async fn rs_25_what_is_not_http_is_invalid() {
    for bytes in [
        "SSH-2.0-OpenSSH_9.6\r\n",
        "HTTP/3.7 200 OK\r\n\r\n",
        "HTTP/1.1 2x0 OK\r\n\r\n",
        "220 mail.test ESMTP\r\n",
        "\u{0}\u{1}\u{2}",
        "<html>hello</html>\r\n\r\n",
    ] {
        let report = report_of(Answer::literal(bytes)).await;
        assert_retryable(&report, ErrorKind::InvalidResponse);
    }
    let banner = OpeningAct::Say(Bytes::from_static(b"SSH-2.0-x\r\n"), End::Hold);
    let sink = Sink::builder(200)
        .openings(move |_| Opening::act(banner.clone()))
        .start()
        .await;
    let report = attempt(&client(), sink.url("/")).await;
    assert_retryable(&report, ErrorKind::InvalidResponse);
}

#[tokio::test]
async fn rs_08_a_reset_at_once_is_a_failed_connection() {
    for end in [End::Reset, End::Close] {
        let sink = Sink::builder(200)
            .openings(move |_| Opening::act(OpeningAct::Finish(end)))
            .start()
            .await;
        let client = client();
        for _ in 0..20 {
            let report = attempt(&client, sink.url("/")).await;
            assert_retryable(&report, ErrorKind::Connect);
        }
    }
}

#[tokio::test]
async fn rs_09_a_closed_port_is_a_failed_connection() {
    let sink = Sink::start(200).await;
    let url = sink.url("/");
    drop(sink);
    let report = attempt(&client(), url).await;
    assert_retryable(&report, ErrorKind::Connect);
}

#[tokio::test]
async fn a_loss_between_request_and_answer_is_a_reset() {
    for stage in [Stage::HeadRead, Stage::BodyRead, Stage::MidHead(9)] {
        for end in [End::Close, End::Reset] {
            let report = report_of(Answer::ok().end_at(stage, end)).await;
            assert_retryable(&report, ErrorKind::Reset);
        }
    }
}

#[tokio::test]
async fn a_loss_inside_the_body_leaves_the_status_standing() {
    for end in [End::Close, End::Reset] {
        let cut = Answer::ok()
            .bytes("x".repeat(100))
            .end_at(Stage::MidBody(10), end);
        let report = report_of(cut).await;
        assert_delivered(&report);
        assert_eq!(report.note.as_deref(), Some("body_invalid"));
    }
}

#[tokio::test]
async fn rs_17_rs_18_rs_19_odd_chunks_do_not_undo_a_success() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let extension = format!("1;{}\r\nx\r\n", "e".repeat(4096));
    let trailer = "x-trailer: y\r\n";
    for (body, note) in [
        (Body::bytes("ZZ\r\n"), Some("body_invalid")),
        (Body::endless(extension), Some("body_invalid")),
        (
            Body::bytes("0\r\n").then(Body::repeat(trailer, 10_000 * trailer.len() as u64)),
            Some("body_invalid"),
        ),
    ] {
        let report = report_of(Answer::literal_body(Body::bytes(head).then(body))).await;
        assert_delivered(&report);
        assert_eq!(report.note.as_deref(), note);
    }
}

#[tokio::test]
async fn rs_42_to_rs_53_only_plain_hints_to_wait_count() {
    // The attempt of the test kit is made at 1,700,000,000, which is 2023-11-14 22:13:20 UTC.
    const YEAR_SECONDS: u64 = 365 * 24 * 60 * 60;
    for (value, expected) in [
        (&b"6"[..], Some(6)),
        (b"0", None),
        (b"99999999999", Some(YEAR_SECONDS)),
        (b"99999999999999999999999999", Some(YEAR_SECONDS)),
        (b"Tue, 14 Nov 2023 22:14:20 GMT", Some(60)),
        (b"Wed, 21 Oct 2015 07:28:00 GMT", None),
        (b"Sunday, 06-Nov-94 08:49:37 GMT", None),
        (b"Sun Nov  6 08:49:37 1994", None),
        (b"Sun Nov  6 08:49:37 2094", None),
        (b"inf", None),
        (b"NaN", None),
        (b"-1", None),
        (b"+1", None),
        (b"1.5", None),
        (b"", None),
        (b"\xff\xfe", None),
    ] {
        let answer = Answer::status(503).header("retry-after", Bytes::from_static(value));
        let report = report_of(answer).await;
        assert_eq!(report.response_status, Some(503));
        let expected = expected.map(Duration::from_secs);
        assert_eq!(report.retry_after, expected, "{}", value.escape_ascii());
    }
}

#[tokio::test]
async fn del_04_del_05_a_hint_counts_with_429_and_503_only() {
    for (status, expected) in [(429, Some(6)), (503, Some(6)), (500, None), (410, None)] {
        let report = report_of(Answer::status(status).header("retry-after", "6")).await;
        assert_eq!(report.retry_after, expected.map(Duration::from_secs));
    }
}

#[tokio::test]
async fn a_success_before_the_request_was_read_does_not_cut_the_request() {
    let answer = Answer::ok()
        .bytes("thanks")
        .body_read(BodyRead::Last)
        .pause_before_end(Duration::from_millis(10));
    let sink = Sink::start(answer).await;
    let client = client();
    for _ in 0..5 {
        let mut request = request(sink.url("/"));
        request.body = Bytes::from(vec![b'x'; 4 * 1024 * 1024]);
        assert_delivered(&client.deliver(request, deadlines(ATTEMPT)).await);
    }
    let requests = sink.requests();
    assert!(requests.iter().all(|request| request.body_complete));
    assert_eq!(sink.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_body_that_meets_the_deadline_of_the_attempt_leaves_the_status_standing() {
    let answer = Answer::ok()
        .body(Body::endless("x"))
        .framing(Framing::Nothing)
        .body_gap(Duration::from_millis(20));
    let sink = Sink::start(answer).await;
    let client = client();
    for _ in 0..10 {
        let limit = Duration::from_millis(150);
        let report = client
            .deliver(request(sink.url("/")), deadlines(limit))
            .await;
        assert_delivered(&report);
        assert!(report.duration < limit + SLACK);
    }
}

/// RS-60, RS-61: what an answer asks to be remembered is not: no cookie, no other place, no HTTPS.
/// RS-59: of its headers nothing is kept, neither in the excerpt nor in what is logged.
#[tokio::test]
async fn rs_59_rs_60_rs_61_nothing_of_an_answer_outlives_it_but_status_and_excerpt() {
    let elsewhere = Sink::start(200).await;
    let script = Script::sequence([
        Answer::status(500)
            .header("x", "10.1.2.3 internal")
            .header("set-cookie", "a=b; Path=/")
            .header("strict-transport-security", "max-age=31536000")
            .header("alt-svc", format!("h2=\":{}\"; ma=3600", elsewhere.port()))
            .header("location", elsewhere.url("/"))
            .bytes("the body"),
        Answer::ok(),
    ]);
    let sink = Sink::start(script).await;
    let client = client();
    let report = attempt(&client, sink.url("/")).await;
    assert_outcome(
        &report,
        Outcome::Retryable,
        Some(ErrorKind::HttpStatus),
        Some(500),
    );
    assert_eq!(report.response_excerpt.as_deref(), Some(&b"the body"[..]));
    assert!(!format!("{report:?}").contains("internal"));
    assert_delivered(&attempt(&client, sink.url("/")).await);
    let requests = sink.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[1].header("cookie"), None);
    assert_eq!(requests[1].header("host"), requests[0].header("host"));
    assert_eq!(elsewhere.connection_count(), 0);
}
