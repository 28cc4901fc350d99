//! The end of the process as clients see it (case OPS-05).

use std::time::Duration;

use hook_testkit::wait::pause;
use tokio::{net::TcpStream, task::JoinSet, time::Instant};

use super::kit::{Api, Client, URL};

fn request() -> String {
    let body = format!(r#"{{"url":"{URL}"}}"#);
    format!(
        "POST /v1/jobs HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ops_05_idle_slow_and_busy_clients() {
    let mut api = Api::with(&[("HOOK_SHUTDOWN_GRACE", "2s")]).await;
    let address = api.address;
    // A: idle connections, one that was used and one that never was.
    let mut used = Client::connect(address).await;
    used.send(request().as_bytes()).await;
    assert_eq!(used.answer().await.status, 202);
    let mut fresh = Client::connect(address).await;
    // B: a body that dribbles.
    let mut slow = Client::connect(address).await;
    slow.send(b"POST /v1/jobs HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{").await;
    // C: requests all the time, on connections that are kept.
    let mut busy = JoinSet::new();
    for _ in 0..10 {
        busy.spawn(async move {
            let mut stored = 0;
            let mut client = Client::connect(address).await;
            loop {
                client.send(request().as_bytes()).await;
                match client.try_answer().await {
                    Some(answer) if answer.status == 202 => stored += 1,
                    Some(answer) => {
                        assert_eq!(answer.status, 503, "{answer:?}");
                        return stored;
                    }
                    // Closed: others are refused by the system.
                    None => return stored,
                }
            }
        });
    }
    pause(Duration::from_millis(300)).await;
    let begun = Instant::now();
    api.stop.drain();
    used.closed_within(Duration::from_millis(500)).await;
    fresh.closed_within(Duration::from_millis(500)).await;
    let stored: i64 = busy.join_all().await.into_iter().sum();
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
    assert!(
        TcpStream::connect(address).await.is_err(),
        "the listener is still open"
    );
    slow.dribble(&[b' '; 3], Duration::from_millis(100)).await;
    slow.closed_within(Duration::from_millis(2500)).await;
    assert!(
        begun.elapsed() >= Duration::from_millis(1500),
        "{:?}",
        begun.elapsed()
    );
    api.served.join_next().await.unwrap().unwrap().unwrap();
    assert!(
        begun.elapsed() <= Duration::from_millis(2500 + 500),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(
        api.rows().await,
        stored + 1,
        "a row for each 202 and no other"
    );
}
