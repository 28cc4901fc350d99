use axum::routing::get;
use hook_common::{
    lifecycle::{Stop, within},
    periodic::Heartbeats,
};
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::*;
use crate::listener;

async fn boom() -> &'static str {
    panic!("on purpose: secret-value")
}

#[tokio::test]
async fn a_panic_is_answered_500_and_the_others_go_on() {
    let router = Router::new()
        .route("/boom", get(boom))
        .route("/fine", get(|| async { "fine" }));
    let front = Front::new(router, Tokens::new(&[], &[]));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = Stop::manual(Duration::from_secs(1));
    let limits = listener::Limits {
        connections_max: 10,
        head_timeout: Duration::from_secs(10),
    };
    let mut served = JoinSet::new();
    served.spawn(listener::run(
        listener,
        front,
        limits,
        Heartbeats::new(),
        stop.clone(),
    ));
    let ask = async |path: &str| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer);
        within(Duration::from_secs(10), read)
            .await
            .unwrap()
            .unwrap();
        answer
    };
    let answer = ask("/boom").await;
    assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    assert!(answer.contains(r#""code":"internal""#), "{answer}");
    assert!(!answer.contains("secret-value"), "{answer}");
    assert!(ask("/fine").await.ends_with("fine"));
    stop.drain();
    served.join_next().await.unwrap().unwrap();
}
