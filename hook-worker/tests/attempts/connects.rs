//! Connecting: several addresses, and none that answers.

use std::time::Duration;

use hook_common::job::ErrorKind;
use hook_testkit::{
    dns::{Dns, zone::Reply},
    sink::Sink,
};
use hook_worker::client::{Client, ClientConfig};
use tokio::net::{TcpSocket, TcpStream};

use crate::kit::{
    ATTEMPT, SLACK, assert_delivered, assert_retryable, attempt, client, config, deadlines, request,
};

/// A listener whose backlog is full: connections to it hang like those to a dead host.
struct DeadPort {
    _listener: tokio::net::TcpListener,
    _waiting: Vec<TcpStream>,
    port: u16,
}

impl DeadPort {
    async fn at(address: &str) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket can be made");
        let address = address.parse().expect("the address is one");
        socket.bind(address).expect("the address is free");
        let listener = socket.listen(1).expect("a bound socket listens");
        let address = listener.local_addr().expect("a listener has an address");
        let mut waiting = Vec::new();
        // The kernel takes a few more than it was told to.
        for _ in 0..64 {
            let connect = TcpStream::connect(address);
            match tokio::time::timeout(Duration::from_millis(50), connect).await {
                Ok(stream) => waiting.push(stream.expect("the backlog takes it")),
                Err(_) => break,
            }
        }
        Self {
            _listener: listener,
            _waiting: waiting,
            port: address.port(),
        }
    }
}

#[tokio::test]
async fn a_connection_that_cannot_be_made_in_time_is_a_timeout() {
    let dead = DeadPort::at("127.0.0.1:0").await;
    let mut deadlines = deadlines(ATTEMPT);
    deadlines.connect = Duration::from_millis(400);
    let url = format!("http://127.0.0.1:{}/", dead.port);
    let report = client().deliver(request(url), deadlines).await;
    assert_retryable(&report, ErrorKind::Timeout);
    assert!(report.duration >= Duration::from_millis(400));
    assert!(report.duration < Duration::from_millis(400) + SLACK);
}

#[tokio::test]
async fn a_dead_address_does_not_hide_a_live_one() {
    let dead = DeadPort::at("127.0.0.3:0").await;
    let sink = Sink::builder(200)
        .bind([127, 0, 0, 4])
        .port(dead.port)
        .start()
        .await;
    let dns = Dns::start().await;
    dns.set("pair.test", Reply::parse(&["127.0.0.3", "127.0.0.4"]));
    // Nobody listens there at all, which is told at once.
    dns.set(
        "trio.test",
        Reply::parse(&["127.0.0.5", "127.0.0.3", "127.0.0.4"]),
    );
    let client = Client::new(ClientConfig {
        dns_servers: vec![dns.address()],
        ..config()
    })
    .unwrap();
    for name in ["pair.test", "trio.test"] {
        let report = attempt(&client, sink.url_at(name, "/")).await;
        assert_delivered(&report);
        assert!(report.duration < Duration::from_secs(1), "{report:?}");
    }
    assert_eq!(sink.request_count(), 2);
}

#[tokio::test]
async fn ipv6_literals_are_reached_by_their_brackets() {
    let sink = Sink::builder(200)
        .bind(std::net::Ipv6Addr::LOCALHOST)
        .start()
        .await;
    assert_delivered(&attempt(&client(), sink.url("/")).await);
    assert_eq!(
        sink.requests()[0].header("host"),
        Some(&format!("[::1]:{}", sink.port())[..])
    );
}
