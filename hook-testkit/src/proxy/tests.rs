//! Tests of the proxy with an echo server behind it.

use std::io::ErrorKind;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use super::*;
use crate::wait::wait_for;

const LIMIT: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(80);

/// An echo server that keeps everything it was sent.
struct Echo {
    address: SocketAddr,
    received: Arc<Mutex<Vec<u8>>>,
    _tasks: JoinSet<()>,
}

impl Echo {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        let kept = Arc::clone(&received);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let kept = Arc::clone(&kept);
                connections.spawn(async move {
                    let mut buffer = [0; 1024];
                    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                        kept.lock().unwrap().extend_from_slice(&buffer[..length]);
                        if stream.write_all(&buffer[..length]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self {
            address,
            received,
            _tasks: tasks,
        }
    }

    fn text(&self) -> String {
        String::from_utf8(self.received.lock().unwrap().clone()).unwrap()
    }
}

async fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(proxy.address()).await.unwrap()
}

async fn echo(stream: &mut TcpStream, text: &str) -> std::io::Result<String> {
    stream.write_all(text.as_bytes()).await?;
    let mut buffer = vec![0; text.len()];
    timeout(LIMIT, stream.read_exact(&mut buffer))
        .await
        .expect("the echo comes")?;
    Ok(String::from_utf8(buffer).unwrap())
}

async fn is_silent(stream: &mut TcpStream) -> bool {
    timeout(SHORT, stream.read_u8()).await.is_err()
}

#[tokio::test]
async fn bytes_pass_and_connections_are_counted() {
    let server = Echo::start().await;
    let proxy = Proxy::start(server.address);
    let mut one = connect(&proxy).await;
    let mut two = connect(&proxy).await;
    assert_eq!(echo(&mut one, "abc").await.unwrap(), "abc");
    assert_eq!(echo(&mut two, "def").await.unwrap(), "def");
    assert_eq!((proxy.accepted(), proxy.open()), (2, 2));
    // A half-closed connection still brings the rest.
    one.write_all(b"rest").await.unwrap();
    one.shutdown().await.unwrap();
    let mut rest = String::new();
    one.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "rest");
    wait_for(LIMIT, async || proxy.open(), |open| *open == 1).await;
}

#[tokio::test]
async fn a_freeze_holds_bytes_and_new_connections_until_it_ends() {
    let server = Echo::start().await;
    let proxy = Proxy::start(server.address);
    let mut old = connect(&proxy).await;
    echo(&mut old, "a").await.unwrap();
    proxy.set(Mode::Freeze);
    let mut new = connect(&proxy).await;
    old.write_all(b"b").await.unwrap();
    new.write_all(b"c").await.unwrap();
    assert!(is_silent(&mut old).await && is_silent(&mut new).await);
    assert_eq!(server.text(), "a");
    proxy.set(Mode::Pass);
    assert_eq!(old.read_u8().await.unwrap(), b'b');
    assert_eq!(new.read_u8().await.unwrap(), b'c');
}

#[tokio::test]
async fn a_cut_resets_what_is_open_and_nothing_else() {
    let server = Echo::start().await;
    let proxy = Proxy::start(server.address);
    for mode in [Mode::Pass, Mode::Freeze, Mode::HalfOpen] {
        let mut stream = connect(&proxy).await;
        proxy.set(mode);
        wait_for(LIMIT, async || proxy.open(), |open| *open == 1).await;
        proxy.cut();
        let error = stream.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{mode:?}");
        proxy.set(Mode::Pass);
        wait_for(LIMIT, async || proxy.open(), |open| *open == 0).await;
        let mut next = connect(&proxy).await;
        assert_eq!(echo(&mut next, "x").await.unwrap(), "x", "{mode:?}");
        drop(next);
        wait_for(LIMIT, async || proxy.open(), |open| *open == 0).await;
    }
}

#[tokio::test]
async fn a_refusal_is_a_real_one_and_ends() {
    let server = Echo::start().await;
    let proxy = Proxy::start(server.address);
    let mut old = connect(&proxy).await;
    echo(&mut old, "a").await.unwrap();
    proxy.set(Mode::Refuse);
    wait_for(
        LIMIT,
        async || {
            let refused = TcpStream::connect(proxy.address()).await;
            refused.err().map(|error| error.kind())
        },
        |error| *error == Some(ErrorKind::ConnectionRefused),
    )
    .await;
    assert_eq!(echo(&mut old, "b").await.unwrap(), "b");
    proxy.set(Mode::Pass);
    let connected = wait_for(
        LIMIT,
        async || TcpStream::connect(proxy.address()).await.ok(),
        Option::is_some,
    );
    let mut new = connected.await.unwrap();
    assert_eq!(echo(&mut new, "c").await.unwrap(), "c");
}

#[tokio::test]
async fn a_half_open_connection_swallows_everything() {
    let server = Echo::start().await;
    let proxy = Proxy::start(server.address);
    let mut stream = connect(&proxy).await;
    echo(&mut stream, "a").await.unwrap();
    proxy.set(Mode::HalfOpen);
    assert!(is_silent(&mut stream).await);
    stream.write_all(&vec![b'x'; 100_000]).await.unwrap();
    proxy.set(Mode::Pass);
    assert!(is_silent(&mut stream).await);
    assert_eq!(server.text(), "a");
}

#[tokio::test]
async fn a_delay_applies_both_ways() {
    let server = Echo::start().await;
    let proxy = Proxy::start(server.address);
    let mut stream = connect(&proxy).await;
    proxy.set(Mode::Delay(SHORT));
    let start = Instant::now();
    echo(&mut stream, "a").await.unwrap();
    assert!(start.elapsed() >= SHORT * 2);
}

#[tokio::test]
async fn certain_bytes_can_cut_before_or_after_they_arrive() {
    let server = Echo::start().await;
    let proxy = Proxy::start(server.address);
    for (point, arrived) in [(CutPoint::Before, "1"), (CutPoint::After, "11COMMIT")] {
        proxy.cut_on(point, |bytes| bytes.starts_with(b"COMMIT"));
        let mut stream = connect(&proxy).await;
        assert_eq!(echo(&mut stream, "1").await.unwrap(), "1");
        stream.write_all(b"COMMIT").await.unwrap();
        let error = stream.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        wait_for(LIMIT, async || server.text(), |text| text == arrived).await;
    }
    proxy.cut_on_nothing();
    let mut stream = connect(&proxy).await;
    assert_eq!(echo(&mut stream, "COMMIT").await.unwrap(), "COMMIT");
}

#[tokio::test]
async fn a_database_url_is_led_through_the_proxy() {
    let url = "postgres://user:p%40ss@127.0.0.1:5433/name?sslmode=disable";
    let proxy = Proxy::before(url);
    let port = proxy.address().port();
    let expected = format!("postgres://user:p%40ss@127.0.0.1:{port}/name?sslmode=disable");
    assert_eq!(proxy.url(url), expected);
}

#[tokio::test]
async fn a_closed_port_stays_closed() {
    let port = ClosedPort::new();
    for _ in 0..3 {
        let error = TcpStream::connect(port.address()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }
}
