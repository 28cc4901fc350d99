//! HTTP/2, where several attempts share a connection.

use std::time::Duration;

use hook_common::job::{ErrorKind, Outcome};
use hook_testkit::{
    sink::{
        Sink,
        answer::Answer,
        h2::{Http2Answer, Http2Script},
        tls::Tls,
    },
    wait::wait_for,
};
use hook_worker::client::Client;

use crate::{
    kit::{
        ATTEMPT, JOB_ID, assert_delivered, assert_outcome, assert_retryable, attempt, deadlines,
        request,
    },
    tls::Trust,
};

async fn http2_sink(trust: &Trust, script: Http2Script) -> Sink {
    Sink::builder(200)
        .tls(Tls::Serve(trust.authority.server(&["sink.test"])))
        .http2(script)
        .start()
        .await
}

fn ok() -> Http2Answer {
    Http2Answer::Answer(Answer::ok().bytes("thanks"))
}

#[tokio::test]
async fn attempts_share_one_connection() {
    let trust = Trust::start().await;
    let sink = http2_sink(&trust, Http2Script::always(ok())).await;
    let client = trust.client();
    assert_delivered(&attempt(&client, sink.url_at("sink.test", "/a?b")).await);
    let attempts = (0..20).map(|_| attempt(&client, sink.url_at("sink.test", "/a?b")));
    for report in futures_util::future::join_all(attempts).await {
        assert_delivered(&report);
        assert_eq!(report.response_excerpt.as_deref(), Some(&b"thanks"[..]));
    }
    assert_eq!(sink.connection_count(), 1);
    let requests = sink.requests();
    assert_eq!(requests.len(), 21);
    let seen = &requests[0];
    assert_eq!((&seen.method[..], &seen.path[..]), ("POST", "/a?b"));
    let authority = format!("sink.test:{}", sink.port());
    assert_eq!(seen.header(":authority"), Some(&authority[..]));
    assert_eq!(seen.header("host"), None);
    assert_eq!(seen.header("content-length"), Some("7"));
    assert_eq!(seen.header("webhook-id"), Some(JOB_ID));
    assert_eq!(seen.body, "{\"n\":1}");
}

#[tokio::test]
async fn a_large_body_and_an_empty_one_arrive_whole() {
    let trust = Trust::start().await;
    let sink = http2_sink(&trust, Http2Script::always(ok())).await;
    let client = trust.client();
    for length in [0_usize, 1, 1024 * 1024] {
        let mut request = request(sink.url_at("sink.test", "/"));
        request.body = vec![b'x'; length].into();
        assert_delivered(&client.deliver(request, deadlines(ATTEMPT)).await);
        let requests = sink.requests();
        let seen = requests.last().unwrap();
        assert_eq!(seen.body.len(), length);
        assert_eq!(seen.header("content-length"), Some(&length.to_string()[..]));
    }
}

#[tokio::test]
async fn statuses_decide_as_on_http_1() {
    let trust = Trust::start().await;
    for (status, outcome, kind) in [
        (204, Outcome::Delivered, None),
        (302, Outcome::Permanent, Some(ErrorKind::Redirect)),
        (404, Outcome::Permanent, Some(ErrorKind::HttpStatus)),
        (503, Outcome::Retryable, Some(ErrorKind::HttpStatus)),
    ] {
        let answer = Answer::status(status).header("retry-after", "7");
        let script = Http2Script::always(Http2Answer::Answer(answer));
        let sink = http2_sink(&trust, script).await;
        let report = attempt(&trust.client(), sink.url_at("sink.test", "/")).await;
        assert_outcome(&report, outcome, kind, Some(status));
        let wait = (status == 503).then_some(Duration::from_secs(7));
        assert_eq!(report.retry_after, wait);
    }
}

#[tokio::test]
async fn rs_63_a_reset_after_the_head_of_a_success_changes_nothing() {
    let trust = Trust::start().await;
    let script = Http2Script::always(Http2Answer::ResetAfterHead(Answer::ok()));
    let sink = http2_sink(&trust, script).await;
    let report = attempt(&trust.client(), sink.url_at("sink.test", "/")).await;
    assert_delivered(&report);
    assert_eq!(report.note.as_deref(), Some("body_invalid"));
}

#[tokio::test]
async fn refused_streams_and_goaway_are_resets() {
    let trust = Trust::start().await;
    for answer in [Http2Answer::Refused, Http2Answer::GoAway] {
        let sink = http2_sink(&trust, Http2Script::always(answer)).await;
        let report = attempt(&trust.client(), sink.url_at("sink.test", "/")).await;
        assert_retryable(&report, ErrorKind::Reset);
    }
}

#[tokio::test]
async fn a_shared_connection_that_refuses_is_replaced_within_the_attempt() {
    let trust = Trust::start().await;
    for refusal in [Http2Answer::Refused, Http2Answer::GoAway] {
        let script = Http2Script::new(move |request, _| {
            if request.path == "/second" && request.connection == 1 {
                refusal.clone()
            } else {
                ok()
            }
        });
        let sink = http2_sink(&trust, script).await;
        let client = trust.client();
        assert_delivered(&attempt(&client, sink.url_at("sink.test", "/first")).await);
        assert_delivered(&attempt(&client, sink.url_at("sink.test", "/second")).await);
        assert_eq!(sink.requests_at("/second").len(), 2);
    }
}

#[tokio::test]
async fn a_peer_that_says_goodbye_gets_its_next_request_on_a_new_connection() {
    let trust = Trust::start().await;
    let script = Http2Script::always(Http2Answer::LastAnswer(Answer::ok()));
    let sink = http2_sink(&trust, script).await;
    let client = trust.client();
    for _ in 0..3 {
        assert_delivered(&attempt(&client, sink.url_at("sink.test", "/")).await);
    }
    assert!(sink.connection_count() >= 2);
}

#[tokio::test]
async fn net_11_a_connection_is_not_poisoned_by_timeouts() {
    let trust = Trust::start().await;
    let script = Http2Script::new(|request, _| {
        if request.path == "/silent" {
            Http2Answer::Silence
        } else {
            ok()
        }
    });
    let sink = http2_sink(&trust, script).await;
    let client = trust.client();
    for _ in 0..11 {
        let attempts = (0..100).map(|_| {
            let request = request(sink.url_at("sink.test", "/silent"));
            client.deliver(request, deadlines(Duration::from_millis(400)))
        });
        for report in futures_util::future::join_all(attempts).await {
            assert_retryable(&report, ErrorKind::Timeout);
        }
    }
    for _ in 0..50 {
        assert_delivered(&attempt(&client, sink.url_at("sink.test", "/ok")).await);
    }
}

#[tokio::test]
async fn net_12_connections_to_many_http2_hosts_are_bounded() {
    let trust = Trust::start().await;
    let names: Vec<String> = (0..40).map(|number| format!("n{number}.test")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let sink = Sink::builder(200)
        .tls(Tls::Serve(trust.authority.server(&names)))
        .http2(Http2Script::always(ok()))
        .start()
        .await;
    let mut config = trust.config();
    config.pool.idle_max = 8;
    let client = Client::new(config).unwrap();
    for name in names {
        assert_delivered(&attempt(&client, sink.url_at(name, "/")).await);
        assert!(client.pooled_connections() <= 8);
    }
    let open = || {
        sink.connections()
            .iter()
            .filter(|c| c.closed.is_none())
            .count()
    };
    wait_for(ATTEMPT, async || open(), |open| *open <= 8).await;
}

#[tokio::test]
async fn attempts_that_begin_together_leave_one_connection() {
    let trust = Trust::start().await;
    let sink = http2_sink(&trust, Http2Script::always(ok())).await;
    let client = trust.client();
    let attempts = (0..10).map(|_| attempt(&client, sink.url_at("sink.test", "/")));
    for report in futures_util::future::join_all(attempts).await {
        assert_delivered(&report);
    }
    assert_eq!(client.pooled_connections(), 1);
}
