//! Tests of the sink's HTTP/2, with a raw `h2` client.

use std::time::Duration;

use h2::client::SendRequest;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::*;
use crate::certs::{TestAuthority, provider};
use crate::sink::Sink;
use crate::sink::tls::Tls;
use crate::wait::wait_for;

const LIMIT: Duration = Duration::from_secs(10);

/// What carries the client's connections.
type Driver = JoinSet<Result<(), h2::Error>>;

async fn start(script: Http2Script) -> (Sink, TestAuthority) {
    let authority = TestAuthority::new();
    let tls = Tls::Serve(authority.server(&["a.test"]));
    let sink = Sink::builder(404).tls(tls).http2(script).start().await;
    (sink, authority)
}

async fn connect(
    sink: &Sink,
    authority: &TestAuthority,
    driver: &mut Driver,
) -> SendRequest<Bytes> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der()).unwrap();
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tcp = TcpStream::connect(sink.address()).await.unwrap();
    let name = ServerName::try_from("a.test").unwrap();
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, tcp)
        .await
        .unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    driver.spawn(connection);
    client.ready().await.unwrap()
}

/// One POST with the body `abc`; status and body of the answer, or the error.
async fn post(client: &mut SendRequest<Bytes>) -> Result<(u16, String), h2::Error> {
    let request = http::Request::post("https://a.test/x?y")
        .header("webhook-id", "j1")
        .body(())
        .unwrap();
    let (response, mut body) = client.send_request(request, false)?;
    // A stream that was refused already is told by the response.
    drop(body.send_data(Bytes::from("abc"), true));
    let response = response.await?;
    let status = response.status().as_u16();
    let mut received = response.into_body();
    let mut text = String::new();
    while let Some(data) = received.data().await {
        text.push_str(&String::from_utf8_lossy(&data?));
    }
    Ok((status, text))
}

#[tokio::test]
async fn requests_are_answered_and_recorded() {
    let answer = Answer::status(503).header("retry-after", "7").bytes("no");
    let (sink, authority) = start(Http2Script::new(move |_, nth| match nth {
        1 => Http2Answer::Answer(answer.clone()),
        _ => Http2Answer::Answer(Answer::status(204)),
    }))
    .await;
    let mut driver = JoinSet::new();
    let mut client = connect(&sink, &authority, &mut driver).await;
    assert_eq!(post(&mut client).await.unwrap(), (503, "no".into()));
    assert_eq!(post(&mut client).await.unwrap(), (204, String::new()));
    let request = &sink.requests()[0];
    assert_eq!(
        (request.method.as_str(), request.path.as_str()),
        ("POST", "/x?y")
    );
    assert_eq!(
        (request.version.as_str(), &request.body[..]),
        ("HTTP/2.0", &b"abc"[..])
    );
    assert_eq!(request.header(":authority"), Some("a.test"));
    assert_eq!(sink.connections()[0].protocols, ["h2"]);
    assert_eq!(sink.connection_count(), 1);
}

#[tokio::test]
async fn streams_can_be_refused_reset_or_left_alone() {
    let (sink, authority) = start(Http2Script::new(|_, nth| match nth {
        1 => Http2Answer::Refused,
        2 => Http2Answer::ResetAfterHead(Answer::ok()),
        3 => Http2Answer::Silence,
        _ => Http2Answer::Answer(Answer::ok()),
    }))
    .await;
    let mut driver = JoinSet::new();
    let mut client = connect(&sink, &authority, &mut driver).await;
    let refused = post(&mut client).await.unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::REFUSED_STREAM));
    let reset = post(&mut client).await.unwrap_err();
    assert_eq!(reset.reason(), Some(Reason::INTERNAL_ERROR));
    let silent = tokio::time::timeout(Duration::from_millis(100), post(&mut client)).await;
    assert!(silent.is_err());
    wait_for(
        LIMIT,
        async || sink.requests()[2].ended,
        |ended| ended.is_some(),
    )
    .await;
    assert_eq!(post(&mut client).await.unwrap().0, 200);
    assert_eq!(sink.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_connection_can_go_away() {
    let (sink, authority) = start(Http2Script::new(|_, nth| match nth {
        1 => Http2Answer::GoAway,
        _ => Http2Answer::LastAnswer(Answer::ok()),
    }))
    .await;
    let mut driver = JoinSet::new();
    let mut client = connect(&sink, &authority, &mut driver).await;
    post(&mut client).await.unwrap_err();
    let farewell = driver.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(farewell.is_go_away(), "{farewell:?}");
    assert_eq!(farewell.reason(), Some(Reason::ENHANCE_YOUR_CALM));
    let mut client = connect(&sink, &authority, &mut driver).await;
    assert_eq!(post(&mut client).await.unwrap().0, 200);
    let closed = wait_for(
        LIMIT,
        async || sink.connections(),
        |all| all.iter().all(|one| one.closed.is_some()),
    );
    assert_eq!(closed.await.len(), 2);
    assert!(post(&mut client).await.is_err());
}
