//! When a connection is used again, and what happens when it cannot be.

use std::time::Duration;

use hook_common::job::ErrorKind;
use hook_testkit::{
    sink::{
        Sink,
        answer::{Answer, End, Framing, Stage},
        body::Body,
        script::Script,
    },
    wait::pause,
};
use hook_worker::client::{Client, pool::PoolLimits};

use crate::kit::{
    ATTEMPT, assert_delivered, assert_retryable, attempt, client, config, deadlines, request,
};

#[tokio::test]
async fn a_connection_serves_attempt_after_attempt() {
    let sink = Sink::start(Answer::ok().bytes("thanks")).await;
    let client = client();
    for _ in 0..10 {
        assert_delivered(&attempt(&client, sink.url("/")).await);
    }
    assert_eq!(sink.connection_count(), 1);
    assert_eq!(client.pooled_connections(), 1);
}

#[tokio::test]
async fn a_connection_closed_while_idle_is_not_used() {
    let close_idle = Answer::ok().then(End::CloseIdle(Duration::from_millis(20)));
    let sink = Sink::start(close_idle).await;
    let client = client();
    for number in 1..=5 {
        assert_delivered(&attempt(&client, sink.url("/")).await);
        assert_eq!(sink.connection_count(), number);
        pause(Duration::from_millis(60)).await;
    }
    client.sweep();
    assert_eq!(client.pooled_connections(), 0);
    assert_eq!(sink.request_count(), 5);
}

#[tokio::test]
async fn a_reused_connection_that_dies_unanswered_costs_no_attempt() {
    for end in [End::Close, End::Reset] {
        // The first request of each connection is answered, the second is met by silence.
        let script = Script::new(move |request, _| {
            if request.path == "/second" && request.connection == 1 {
                Answer::ok().end_at(Stage::BodyRead, end)
            } else {
                Answer::ok()
            }
        });
        let sink = Sink::start(script).await;
        let client = client();
        assert_delivered(&attempt(&client, sink.url("/first")).await);
        assert_delivered(&attempt(&client, sink.url("/second")).await);
        let second = sink.requests_at("/second");
        assert_eq!(second.len(), 2);
        assert_eq!(second[0].attempt(), second[1].attempt());
        assert_eq!(second[1].connection, 2);
    }
}

#[tokio::test]
async fn the_repeat_is_made_once_and_only_before_a_byte_of_the_answer() {
    let script = Script::new(|request, _| match request.path.as_str() {
        "/first" => Answer::ok(),
        "/gone" => Answer::ok().end_at(Stage::BodyRead, End::Reset),
        _ => Answer::ok().end_at(Stage::MidHead(5), End::Reset),
    });
    let sink = Sink::start(script).await;
    for (path, requests) in [("/gone", 2), ("/cut", 1)] {
        let client = client();
        assert_delivered(&attempt(&client, sink.url("/first")).await);
        let report = attempt(&client, sink.url(path)).await;
        assert_retryable(&report, ErrorKind::Reset);
        assert_eq!(sink.requests_at(path).len(), requests, "{path}");
    }
}

#[tokio::test]
async fn rs_20_an_answer_with_two_framings_ends_its_connection() {
    let both =
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    let answer = Answer::literal(both).then(End::Hold);
    let sink = Sink::start(answer).await;
    let client = client();
    assert_delivered(&attempt(&client, sink.url("/")).await);
    assert_delivered(&attempt(&client, sink.url("/")).await);
    assert_eq!(sink.connection_count(), 2);
}

#[tokio::test]
async fn surplus_bytes_do_not_become_the_next_answer() {
    let smuggled = "HTTP/1.1 500 Smuggled\r\ncontent-length: 0\r\n\r\n";
    let sink = Sink::start(Answer::ok().surplus(smuggled)).await;
    let client = client();
    for _ in 0..5 {
        assert_delivered(&attempt(&client, sink.url("/")).await);
        pause(Duration::from_millis(10)).await;
    }
    assert_eq!(sink.connection_count(), 5);
}

#[tokio::test]
async fn a_body_that_was_not_read_to_its_end_ends_its_connection() {
    let answer = Answer::ok()
        .body(Body::repeat("x", 200 * 1024))
        .framing(Framing::Length);
    let sink = Sink::start(answer).await;
    let client = client();
    for _ in 0..3 {
        assert_delivered(&attempt(&client, sink.url("/")).await);
    }
    assert_eq!(sink.connection_count(), 3);
    assert_eq!(client.pooled_connections(), 0);
}

#[tokio::test]
async fn net_13_an_old_connection_is_replaced() {
    let sink = Sink::start(200).await;
    let mut config = config();
    config.pool.age_max = Duration::from_millis(100);
    let client = Client::new(config).unwrap();
    assert_delivered(&attempt(&client, sink.url("/")).await);
    assert_delivered(&attempt(&client, sink.url("/")).await);
    assert_eq!(sink.connection_count(), 1);
    pause(Duration::from_millis(120)).await;
    assert_delivered(&attempt(&client, sink.url("/")).await);
    assert_eq!(sink.connection_count(), 2);
    pause(Duration::from_millis(120)).await;
    client.sweep();
    assert_eq!(client.pooled_connections(), 0);
}

#[tokio::test]
async fn net_12_idle_connections_are_bounded_over_all_endpoints() {
    let sinks = Sink::builder(200).bind([0, 0, 0, 0]).start().await;
    let mut config = config();
    config.pool = PoolLimits {
        idle_max: 8,
        ..PoolLimits::default()
    };
    let client = Client::new(config).unwrap();
    for round in 0..2 {
        for host in 1..=40 {
            let url = format!("http://127.0.1.{host}:{}/", sinks.port());
            let report = client.deliver(request(url), deadlines(ATTEMPT)).await;
            assert_delivered(&report);
            assert!(client.pooled_connections() <= 8, "{round} {host}");
        }
    }
    assert_eq!(client.pooled_connections(), 8);
}

#[tokio::test]
async fn idle_connections_to_one_endpoint_are_bounded() {
    let sink = Sink::start(Answer::ok().pause_before_head(Duration::from_millis(100))).await;
    let mut config = config();
    config.pool.idle_per_endpoint_max = 3;
    let client = Client::new(config).unwrap();
    let attempts = (0..10).map(|_| attempt(&client, sink.url("/")));
    for report in futures_util::future::join_all(attempts).await {
        assert_delivered(&report);
    }
    assert_eq!(sink.connection_count(), 10);
    assert_eq!(client.pooled_connections(), 3);
}
