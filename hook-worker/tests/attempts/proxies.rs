//! The operator's proxy is used for everything, and no other one for anything.

use std::sync::{Arc, Mutex};

use hook_common::job::ErrorKind;
use hook_testkit::{
    dns::{Dns, zone::Reply},
    sink::{Sink, tls::Tls},
};
use hook_worker::client::{Client, ClientConfig};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::{
    kit::{assert_delivered, assert_permanent, assert_retryable, attempt, config},
    tls::Trust,
};

/// A forward proxy that opens tunnels to one place, whatever is asked for.
struct TunnelProxy {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl TunnelProxy {
    async fn start(upstream: std::net::SocketAddr, answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port is free");
        let address = listener.local_addr().expect("a listener has an address");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let seen = Arc::clone(&seen);
                connections.spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(client.read_u8().await?);
                    }
                    let head = String::from_utf8_lossy(&head).into_owned();
                    seen.lock().expect("nobody panics with it").push(head);
                    client.write_all(answer.as_bytes()).await?;
                    let mut target = TcpStream::connect(upstream).await?;
                    copy_bidirectional(&mut client, &mut target).await
                });
            }
        });
        Self {
            port: address.port(),
            asked,
            _tasks: tasks,
        }
    }
}

fn config_through(port: u16) -> ClientConfig {
    ClientConfig {
        egress_proxy: format!("http://127.0.0.1:{port}").parse().ok(),
        ..config()
    }
}

#[tokio::test]
async fn sp_06_http_goes_to_the_proxy_with_its_whole_url() {
    // The sink stands for the proxy; the target does not even resolve.
    let proxy = Sink::start(200).await;
    let dns = Dns::start().await;
    let client = Client::new(ClientConfig {
        dns_servers: vec![dns.address()],
        ..config_through(proxy.port())
    })
    .unwrap();
    for path in ["/a?b=c", "/d"] {
        let report = attempt(&client, format!("http://victim.test:8080{path}")).await;
        assert_delivered(&report);
    }
    assert_delivered(&attempt(&client, "http://other.test/").await);
    let requests = proxy.requests();
    assert_eq!(requests[0].path, "http://victim.test:8080/a?b=c");
    assert_eq!(requests[0].header("host"), Some("victim.test:8080"));
    assert_eq!(requests[2].path, "http://other.test/");
    assert_eq!(
        proxy.connection_count(),
        1,
        "one connection for all targets"
    );
    assert_eq!(dns.asked().len(), 0, "the proxy resolves names");
}

#[tokio::test]
async fn sp_06_https_goes_through_a_tunnel() {
    let trust = Trust::start().await;
    let sink = Sink::builder(200)
        .tls(Tls::Serve(trust.authority.server(&["sink.test"])))
        .start()
        .await;
    let proxy = TunnelProxy::start(sink.address(), "HTTP/1.1 200 OK\r\nx: y\r\n\r\n").await;
    let client = Client::new(ClientConfig {
        egress_ca_file: Some(trust.authority.pem_file().to_owned()),
        ..config_through(proxy.port)
    })
    .unwrap();
    for _ in 0..3 {
        assert_delivered(&attempt(&client, sink.url_at("sink.test", "/")).await);
    }
    let asked = proxy.asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 1);
    let authority = format!("sink.test:{}", sink.port());
    assert!(asked[0].starts_with(&format!("CONNECT {authority} HTTP/1.1\r\n")));
    assert_eq!(
        sink.connections()[0].server_name.as_deref(),
        Some("sink.test")
    );
}

#[tokio::test]
async fn a_proxy_that_refuses_is_a_failed_connection() {
    let sink = Sink::start(200).await;
    let refusal = "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n";
    let proxy = TunnelProxy::start(sink.address(), refusal).await;
    let client = Client::new(config_through(proxy.port)).unwrap();
    let report = attempt(&client, "https://sink.test/").await;
    assert_retryable(&report, ErrorKind::Connect);
    assert_eq!(sink.request_count(), 0);
}

#[tokio::test]
async fn a_refused_literal_is_refused_before_the_proxy() {
    let proxy = Sink::start(200).await;
    let client = Client::new(config_through(proxy.port())).unwrap();
    for url in ["http://10.0.0.1/", "https://[fd00::1]/"] {
        assert_permanent(&attempt(&client, url).await, ErrorKind::BlockedAddress);
    }
    assert_eq!(proxy.connection_count(), 0);
}

#[tokio::test]
async fn the_proxy_stays_the_only_way_when_a_name_resolves() {
    let sink = Sink::start(200).await;
    let dns = Dns::start().await;
    dns.set("sink.test", Reply::loopback());
    let proxy = Sink::start(502).await;
    let client = Client::new(ClientConfig {
        dns_servers: vec![dns.address()],
        ..config_through(proxy.port())
    })
    .unwrap();
    let report = attempt(&client, sink.url_at("sink.test", "/")).await;
    assert_eq!(report.response_status, Some(502));
    assert_eq!(sink.connection_count(), 0);
}
