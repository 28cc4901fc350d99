//! Tests of the sink with a raw client, stage by stage.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::answer::{Answer, BodyRead, End, Framing, Stage};
use super::body::Body;
use super::record::in_flight_peak;
use super::script::{Opening, OpeningAct, Script};
use super::*;

const LIMIT: Duration = Duration::from_secs(10);
const POST: &str = "POST /a HTTP/1.1\r\nHost: x\r\nWebhook-Id: j1\r\nContent-Length: 3\r\n\r\nabc";

async fn connect(sink: &Sink) -> TcpStream {
    TcpStream::connect(sink.address()).await.unwrap()
}

async fn send(sink: &Sink, request: &str) -> TcpStream {
    let mut stream = connect(sink).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Reads until the sink closes; the error is there when it resets.
async fn read_all(stream: &mut TcpStream) -> (String, io::Result<()>) {
    let mut bytes = Vec::new();
    let read = timeout(LIMIT, stream.read_to_end(&mut bytes))
        .await
        .expect("the sink ends the connection");
    (
        String::from_utf8_lossy(&bytes).into_owned(),
        read.map(|_| ()),
    )
}

/// One exchange on a fresh connection that the sink ends.
async fn exchange(answer: Answer) -> (String, io::Result<()>) {
    let sink = Sink::start(answer).await;
    read_all(&mut send(&sink, POST).await).await
}

/// Reads one answer with this body from a connection that stays open.
async fn read_answer(stream: &mut TcpStream, body: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(&format!("\r\n\r\n{body}")) {
        let byte = timeout(LIMIT, stream.read_u8()).await.unwrap().unwrap();
        text.push(char::from(byte));
    }
    text
}

#[tokio::test]
async fn a_request_is_recorded_as_it_was_on_the_wire() {
    let sink = Sink::start(200).await;
    let mut stream = send(&sink, POST).await;
    let answer = read_answer(&mut stream, "").await;
    assert_eq!(answer, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let requests = sink.wait_requests(1, LIMIT).await;
    let request = &requests[0];
    assert_eq!(&request.head[..], &POST.as_bytes()[..POST.len() - 3]);
    assert_eq!(
        (request.method.as_str(), request.path.as_str()),
        ("POST", "/a")
    );
    assert_eq!(request.headers[1], ("Webhook-Id".into(), "j1".into()));
    assert_eq!(&request.body[..], b"abc");
    assert!(request.body_complete);
    assert_eq!(
        (request.connection, request.nth, request.id()),
        (1, 1, "j1")
    );
    assert_eq!(request.bytes_written, answer.len() as u64);
    assert!(sink.violations().is_empty());
}

#[tokio::test]
async fn a_connection_serves_many_requests_also_chunked_ones() {
    let sink = Sink::start(Script::statuses([503, 204])).await;
    let mut stream = send(&sink, POST).await;
    assert!(
        read_answer(&mut stream, "")
            .await
            .starts_with("HTTP/1.1 503 ")
    );
    let chunked = "PUT /b HTTP/1.1\r\nhost: x\r\nwebhook-id: j1\r\ntransfer-encoding: chunked\r\n\r\n\
        2\r\nde\r\n1\r\nf\r\n0\r\n\r\n";
    stream.write_all(chunked.as_bytes()).await.unwrap();
    assert_eq!(
        read_answer(&mut stream, "").await,
        "HTTP/1.1 204 No Content\r\n\r\n"
    );
    let requests = sink.requests_for("j1");
    assert_eq!(&requests[1].body[..], b"def");
    assert_eq!((requests[1].nth, requests[1].connection), (2, 1));
    assert_eq!(sink.connection_count(), 1);
}

#[tokio::test]
async fn a_breach_of_the_protocol_is_a_violation() {
    let sink = Sink::start(200).await;
    let twice = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\na";
    let (answer, _) = read_all(&mut send(&sink, twice).await).await;
    assert!(answer.starts_with("HTTP/1.1 400 "));
    assert!(sink.violations()[0].contains("unclear framing"));
    assert_eq!(sink.request_count(), 0);
}

#[tokio::test]
async fn each_stage_can_close_or_reset() {
    let with_body = || Answer::ok().bytes("0123456789");
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n";
    for (stage, seen) in [
        (Stage::HeadRead, String::new()),
        (Stage::BodyRead, String::new()),
        (Stage::MidHead(9), head[..9].to_owned()),
        (Stage::MidBody(4), format!("{head}0123")),
        (Stage::Answered, format!("{head}0123456789")),
    ] {
        let answer = with_body().end_at(stage, End::Close);
        let (text, end) = exchange(answer).await;
        assert_eq!(text, seen, "{stage:?}");
        // The kernel turns a close into a reset where bytes of the request were left unread.
        assert_eq!(end.is_ok(), stage != Stage::HeadRead, "{stage:?}");

        let answer = with_body().end_at(stage, End::Reset);
        let (_, end) = exchange(answer).await;
        let kind = end.unwrap_err().kind();
        assert_eq!(kind, io::ErrorKind::ConnectionReset, "{stage:?}");
    }
}

#[tokio::test]
async fn a_connection_can_end_before_its_first_byte() {
    let sink = Sink::builder(200)
        .openings(|number| match number {
            1 => Opening::act(OpeningAct::Finish(End::Close)),
            2 => Opening::act(OpeningAct::Finish(End::Reset)),
            3 => Opening::act(OpeningAct::Say(Bytes::from("SSH-2.0-x\r\n"), End::Close)),
            _ => Opening::serve().after(Duration::from_millis(60)),
        })
        .start()
        .await;
    let (text, end) = read_all(&mut connect(&sink).await).await;
    assert!(text.is_empty() && end.is_ok());
    let (_, end) = read_all(&mut connect(&sink).await).await;
    assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    let (text, _) = read_all(&mut connect(&sink).await).await;
    assert_eq!(text, "SSH-2.0-x\r\n");
    let start = Instant::now();
    read_answer(&mut send(&sink, POST).await, "").await;
    assert!(start.elapsed() >= Duration::from_millis(60));
    let closed = wait_for(
        LIMIT,
        async || sink.connections(),
        |all| all.iter().filter(|one| one.closed.is_some()).count() >= 3,
    );
    assert_eq!(closed.await.len(), 4);
}

#[tokio::test]
async fn an_answer_can_be_early_while_the_body_is_unread() {
    let answer = Answer::status(413)
        .body_read(BodyRead::Never)
        .pause_before_end(Duration::from_millis(50));
    let sink = Sink::start(answer).await;
    let mut stream = connect(&sink).await;
    let head = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nabc";
    stream.write_all(head.as_bytes()).await.unwrap();
    let text = read_answer(&mut stream, "").await;
    assert!(text.starts_with("HTTP/1.1 413 "));
    let (_, end) = read_all(&mut stream).await;
    assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    let request = &sink.requests()[0];
    assert!(!request.body_complete && request.body.is_empty());
}

#[tokio::test]
async fn an_answer_before_the_body_can_keep_the_connection() {
    let sink = Sink::start(Answer::ok().body_read(BodyRead::Last)).await;
    let mut stream = connect(&sink).await;
    let (head, body) = POST.split_at(POST.len() - 3);
    stream.write_all(head.as_bytes()).await.unwrap();
    read_answer(&mut stream, "").await;
    stream.write_all(body.as_bytes()).await.unwrap();
    stream.write_all(POST.as_bytes()).await.unwrap();
    read_answer(&mut stream, "").await;
    assert_eq!(sink.requests()[0].body, "abc");
}

#[tokio::test]
async fn every_part_of_an_exchange_can_be_slow() {
    let step = Duration::from_millis(30);
    for answer in [
        Answer::ok().pause_before_read(step),
        Answer::ok().pause_before_head(step),
        Answer::ok().bytes("x").pause_before_body(step),
        Answer::ok().pause_before_end(step),
        Answer::ok().head_gap(Duration::from_millis(1)),
        Answer::ok()
            .bytes("123456")
            .body_gap(Duration::from_millis(6)),
    ] {
        let start = Instant::now();
        let (text, _) = exchange(answer.clone().then(End::Close)).await;
        assert!(text.starts_with("HTTP/1.1 200 OK"), "{answer:?}");
        assert!(start.elapsed() >= step, "{answer:?}");
    }
}

#[tokio::test]
async fn an_idle_connection_can_be_closed_after_a_while() {
    let sink = Sink::start(Answer::ok().then(End::CloseIdle(Duration::from_millis(80)))).await;
    let mut stream = send(&sink, POST).await;
    read_answer(&mut stream, "").await;
    stream.write_all(POST.as_bytes()).await.unwrap();
    read_answer(&mut stream, "").await;
    let start = Instant::now();
    let (text, end) = read_all(&mut stream).await;
    assert!(text.is_empty() && end.is_ok());
    assert!(start.elapsed() >= Duration::from_millis(60));
}

#[tokio::test]
async fn odd_answers_are_written_byte_by_byte_as_given() {
    let raw = Answer::status(200)
        .reason(&b"\xa0\xa1"[..])
        .header("Retry-After", &b"\xff"[..])
        .then(End::Close);
    let sink = Sink::start(raw).await;
    let mut stream = send(&sink, POST).await;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    let expected = b"HTTP/1.1 200 \xa0\xa1\r\nRetry-After: \xff\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(bytes, expected);

    let (text, _) = exchange(Answer::ok().http10().bytes("body")).await;
    assert_eq!(text, "HTTP/1.0 200 OK\r\n\r\nbody");
    let (text, _) = exchange(Answer::ok().surplus("HTTP/1.1 500 X\r\n").then(End::Close)).await;
    assert!(text.ends_with("\r\n\r\nHTTP/1.1 500 X\r\n"));
    let (text, _) = exchange(Answer::ok().interim(100).interim(103).then(End::Close)).await;
    let interim = "HTTP/1.1 100 Interim\r\n\r\nHTTP/1.1 103 Interim\r\n\r\nHTTP/1.1 200 OK\r\n";
    assert!(text.starts_with(interim), "{text}");
    let chunked = Answer::ok().bytes("abc").framing(Framing::Chunked);
    let (text, _) = exchange(chunked.then(End::Close)).await;
    assert!(text.ends_with("transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"));
    let lie = Answer::ok().bytes("abc").framing(Framing::Declared(9));
    let (text, _) = exchange(lie.then(End::Close)).await;
    assert!(text.ends_with("content-length: 9\r\n\r\nabc"));
    let (text, _) = exchange(Answer::status(999).then(End::Close)).await;
    assert!(text.starts_with("HTTP/1.1 999 Scripted\r\n"));
    let (text, _) = exchange(Answer::literal("SSH-2.0-OpenSSH_9\r\n")).await;
    assert_eq!(text, "SSH-2.0-OpenSSH_9\r\n");
}

#[tokio::test]
async fn an_endless_answer_ends_when_the_peer_leaves_and_its_bytes_are_counted() {
    for answer in [
        Answer::ok().body(Body::endless("zero")),
        Answer::ok().endless_interim(102),
    ] {
        let sink = Sink::builder(answer)
            .send_buffer_bytes(16 * 1024)
            .start()
            .await;
        let mut stream = send(&sink, POST).await;
        let mut read = vec![0; 1_000_000];
        stream.read_exact(&mut read).await.unwrap();
        drop(stream);
        let requests = wait_for(
            LIMIT,
            async || sink.requests(),
            |requests| requests[0].ended.is_some(),
        );
        assert!(requests.await[0].bytes_written >= 1_000_000);
    }
}

#[tokio::test]
async fn a_repeated_body_has_exactly_its_length() {
    let answer = Answer::ok().body(Body::repeat("abc", 200_000));
    let sink = Sink::start(answer.then(End::Close)).await;
    let (text, end) = read_all(&mut send(&sink, POST).await).await;
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.ends_with("content-length: 200000") && end.is_ok());
    assert_eq!(body.len(), 200_000);
    assert!(
        body.as_bytes()
            .chunks(3)
            .all(|chunk| b"abc".starts_with(chunk))
    );
}

#[tokio::test]
async fn a_silent_sink_sees_when_the_peer_gives_up() {
    let stages = [Stage::BodyRead, Stage::HeadRead];
    for answer in stages.map(|stage| Answer::ok().end_at(stage, End::Hold)) {
        let sink = Sink::start(answer).await;
        let stream = send(&sink, POST).await;
        sink.wait_requests(1, LIMIT).await;
        assert_eq!(sink.requests()[0].ended, None);
        drop(stream);
        wait_for(
            LIMIT,
            async || sink.requests()[0].ended,
            |ended| ended.is_some(),
        )
        .await;
    }
    // A scripted pause ends early too.
    let sink = Sink::start(Answer::ok().pause_before_head(Duration::from_secs(600))).await;
    let stream = send(&sink, POST).await;
    sink.wait_requests(1, LIMIT).await;
    drop(stream);
    wait_for(
        LIMIT,
        async || sink.requests()[0].ended,
        |ended| ended.is_some(),
    )
    .await;
}

#[tokio::test]
async fn a_script_chooses_by_path_and_can_be_replaced() {
    let sink = Sink::start(Script::by_path([
        ("/a", Script::status(201)),
        ("/", Script::status_in_path()),
    ]))
    .await;
    let get = async |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let (text, _) = read_all(&mut send(&sink, &request).await).await;
        text[9..12].to_owned()
    };
    assert_eq!(get("/a/b").await, "201");
    assert_eq!(get("/429/x").await, "429");
    assert_eq!(get("/x").await, "404");
    sink.set_script(500);
    assert_eq!(get("/a").await, "500");
    assert_eq!(sink.requests_at("/a").len(), 2);
    assert_eq!(in_flight_peak(&sink.requests()), 1);
}

#[tokio::test]
async fn a_sink_listens_on_any_loopback_address() {
    for address in ["127.0.0.9", "::1", "0.0.0.0"] {
        let address: IpAddr = address.parse().unwrap();
        let sink = Sink::builder(200).bind(address).start().await;
        let to: IpAddr = match sink.address().ip() {
            ip if ip.is_unspecified() => "127.200.3.4".parse().unwrap(),
            ip => ip,
        };
        let mut stream = TcpStream::connect((to, sink.port())).await.unwrap();
        stream.write_all(POST.as_bytes()).await.unwrap();
        read_answer(&mut stream, "").await;
        assert_eq!(sink.connections()[0].local.ip(), to);
    }
}

#[tokio::test]
async fn a_script_that_panics_is_noticed() {
    let sink = Sink::start(Script::new(|_, _| panic!("on purpose"))).await;
    let (text, _) = read_all(&mut send(&sink, POST).await).await;
    assert!(text.is_empty());
    wait_for(LIMIT, async || sink.violations(), |all| !all.is_empty()).await;
}
