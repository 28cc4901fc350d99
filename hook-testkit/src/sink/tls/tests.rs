//! Tests of TLS in front of the sink, with a client that trusts one authority.

use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use super::*;
use crate::certs::{TestAuthority, provider, self_signed_server};
use crate::sink::Sink;
use crate::sink::answer::{Answer, End};
use crate::wait::wait_for;

const LIMIT: Duration = Duration::from_secs(20);

async fn start(tls: Tls) -> Sink {
    let answer = Answer::ok().then(End::Close);
    Sink::builder(answer).tls(tls).start().await
}

/// One request to `name`; the text of the answer or of the error.
async fn get(sink: &Sink, authority: &TestAuthority, name: &str) -> Result<String, String> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der()).unwrap();
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let tcp = TcpStream::connect(sink.address()).await.unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let talk = async {
        let mut stream = connector.connect(name, tcp).await?;
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            .await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    };
    talk.await.map_err(|error: io::Error| error.to_string())
}

#[tokio::test]
async fn a_good_certificate_works_and_the_name_is_recorded() {
    let authority = TestAuthority::new();
    let sink = start(Tls::Serve(authority.server(&["a.test", "127.0.0.1"]))).await;
    let text = get(&sink, &authority, "a.test").await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
    get(&sink, &authority, "127.0.0.1").await.unwrap();
    let connections = sink.connections();
    assert_eq!(connections[0].server_name.as_deref(), Some("a.test"));
    assert_eq!(connections[1].server_name, None);
    assert!(sink.url("/").starts_with("https://"));
}

#[tokio::test]
async fn bad_certificates_are_refused_before_a_byte_of_the_request() {
    let authority = TestAuthority::new();
    let names = &["a.test"];
    for (config, part) in [
        (authority.expired_server(names), "expired"),
        (self_signed_server(names), "invalid peer certificate"),
        (authority.server(&["b.test"]), "not valid for name"),
        (
            TestAuthority::new().server(names),
            "invalid peer certificate",
        ),
        (authority.huge_chain_server(names, 1024 * 1024), ""),
    ] {
        let sink = start(Tls::Serve(config)).await;
        let error = get(&sink, &authority, "a.test").await.unwrap_err();
        assert!(error.contains(part), "{error:?} has no {part:?}");
        assert_eq!(sink.request_count(), 0, "{error}");
        let noticed = wait_for(
            LIMIT,
            async || sink.connections(),
            |all| all[0].closed.is_some(),
        );
        assert!(noticed.await[0].tls_error.is_some(), "{error}");
    }
}

#[tokio::test]
async fn a_certificate_is_chosen_by_the_name_asked_for() {
    let authority = TestAuthority::new();
    let config = authority.server_by_name(&["a.test", "b.test"]);
    let sink = start(Tls::Serve(config)).await;
    for name in ["a.test", "b.test"] {
        get(&sink, &authority, name).await.unwrap();
    }
    get(&sink, &authority, "c.test").await.unwrap_err();
}

#[tokio::test]
async fn a_server_of_old_protocols_ends_the_handshake() {
    let authority = TestAuthority::new();
    let sink = start(Tls::tls10_only()).await;
    let error = get(&sink, &authority, "a.test").await.unwrap_err();
    assert!(error.contains("ProtocolVersion"), "{error}");
}

#[tokio::test]
async fn a_handshake_can_stall_or_crawl() {
    let authority = TestAuthority::new();
    let sink = start(Tls::Stall).await;
    let stalled = timeout(Duration::from_millis(200), get(&sink, &authority, "a.test")).await;
    assert!(stalled.is_err());
    let hello = wait_for(
        LIMIT,
        async || sink.connections(),
        |all| all[0].closed.is_some(),
    );
    assert_eq!(hello.await[0].server_name.as_deref(), Some("a.test"));

    let gap = Duration::from_millis(1);
    let sink = start(Tls::Drip(authority.server(&["a.test"]), gap)).await;
    let start = Instant::now();
    get(&sink, &authority, "a.test").await.unwrap();
    // A handshake has hundreds of bytes, even with a small certificate.
    assert!(start.elapsed() > gap * 300, "{:?}", start.elapsed());
}

#[tokio::test]
async fn plain_http_on_a_tls_port_is_no_handshake() {
    let authority = TestAuthority::new();
    let sink = Sink::start(200).await;
    let error = get(&sink, &authority, "a.test").await.unwrap_err();
    assert!(error.contains("corrupt message"), "{error}");
    assert_eq!(sink.request_count(), 0);
}
