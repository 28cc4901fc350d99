use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use super::*;
use crate::lifecycle::Stop;

struct Up {
    ops: Ops,
    readiness: Readiness,
    heartbeats: Heartbeats,
    stop: Stop,
}

fn up() -> Up {
    let stop = Stop::manual(Duration::from_secs(25));
    let readiness = Readiness::new(stop.clone());
    let heartbeats = Heartbeats::new();
    let surface = Surface {
        binary: "hook-test",
        readiness: readiness.clone(),
        heartbeats: heartbeats.clone(),
        metrics: metrics::install(),
    };
    let ops = Ops::start("127.0.0.1:0".parse().unwrap(), surface).unwrap();
    Up {
        ops,
        readiness,
        heartbeats,
        stop,
    }
}

/// Sends raw bytes and reads until the other side closes.
fn talk(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let answer = talk(
        address,
        &format!("GET {path} HTTP/1.1\r\nhost: ops\r\n\r\n"),
    );
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, body.to_owned())
}

#[test]
fn readiness_waits_for_every_condition_and_names_what_is_missing() {
    let up = up();
    let address = up.ops.address();
    let (status, body) = get(address, "/readyz");
    assert_eq!(status, 503);
    assert!(body.contains("postgres: not reached yet"), "{body}");
    assert!(body.contains("start-up: not done yet"), "{body}");

    up.readiness.require("penalties");
    up.readiness.postgres_seen();
    up.readiness.prove(Readiness::START_UP);
    let (status, body) = get(address, "/readyz");
    assert_eq!((status, body.as_str()), (503, "penalties: not done yet\n"));

    up.readiness.prove("penalties");
    assert_eq!(get(address, "/readyz"), (200, "ok\n".to_owned()));

    up.readiness.lose("penalties", "gone");
    assert_eq!(get(address, "/readyz").1, "penalties: gone\n");
    up.readiness.require("penalties");
    up.readiness.prove("penalties");

    up.stop.drain();
    assert_eq!(get(address, "/readyz"), (503, "draining\n".to_owned()));
    assert_eq!(get(address, "/livez").0, 200, "draining is not being stuck");
}

#[tokio::test(start_paused = true)]
async fn postgres_may_be_away_for_five_seconds() {
    let stop = Stop::manual(Duration::from_secs(25));
    let readiness = Readiness::new(stop.clone());
    readiness.prove(Readiness::START_UP);
    readiness.postgres_away("connection refused");
    assert_eq!(
        readiness.reasons(),
        ["postgres: not reached yet (connection refused)"]
    );
    readiness.postgres_seen();
    assert!(readiness.is_ready());
    stop.pause(Duration::from_millis(4900)).await;
    assert!(readiness.is_ready());
    stop.pause(Duration::from_millis(200)).await;
    assert_eq!(
        readiness.reasons(),
        ["postgres: silent for 5 s (connection refused)"]
    );
    readiness.postgres_seen();
    assert!(readiness.is_ready());
}

#[test]
fn a_stuck_loop_is_named() {
    let up = up();
    let heartbeat = up.heartbeats.register("dequeue", Duration::from_millis(20));
    let begun = tokio::time::Instant::now();
    while up.heartbeats.stuck().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(5));
        std::thread::yield_now();
    }
    let (status, body) = get(up.ops.address(), "/livez");
    assert_eq!(status, 503);
    assert!(body.starts_with("loop dequeue silent for"), "{body}");
    drop(heartbeat);
    assert_eq!(get(up.ops.address(), "/livez").0, 200);
}

#[test]
fn metrics_are_text_with_the_state_of_the_process() {
    let up = up();
    let (status, body) = get(up.ops.address(), "/metrics");
    assert_eq!(status, 200);
    for line in [
        "# TYPE hook_ready gauge",
        "hook_ready{binary=\"hook-test\"} 0",
        "hook_process_open_fds ",
        "hook_process_max_fds ",
        "hook_process_resident_bytes ",
    ] {
        assert!(body.contains(line), "{line} is not in\n{body}");
    }
}

#[test]
fn other_routes_and_methods_are_refused() {
    let up = up();
    let address = up.ops.address();
    assert_eq!(get(address, "/").0, 404);
    assert_eq!(get(address, "/metrics/").0, 404);
    let answer = talk(
        address,
        "POST /livez HTTP/1.1\r\nhost: ops\r\ncontent-length: 0\r\n\r\n",
    );
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
    let answer = talk(address, "HEAD /livez HTTP/1.1\r\nhost: ops\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
    let answer = talk(address, "GET /livez?x=1 HTTP/1.0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    talk(address, "\x16\x03\x01 this is no HTTP\r\n\r\n");
    assert_eq!(get(address, "/livez").0, 200);
}

/// The shortest of three waits for an answer: what keeps answers back keeps back all of them, a
/// machine that is busy with other tests perhaps one.
fn quickest(address: SocketAddr, path: &str) -> Duration {
    let waits = (0..3).map(|_| {
        let begun = tokio::time::Instant::now();
        get(address, path);
        begun.elapsed()
    });
    waits.min().unwrap()
}

#[test]
fn silent_clients_do_not_keep_others_out() {
    let up = up();
    let address = up.ops.address();
    let silent: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /me").unwrap();
            stream
        })
        .collect();
    assert!(quickest(address, "/livez") < Duration::from_secs(1));
    assert_eq!(get(address, "/livez").0, 200);
    drop(silent);
}

#[test]
fn answers_come_while_the_rest_of_the_process_is_saturated() {
    let up = up();
    let address = up.ops.address();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let busy = Stop::manual(Duration::ZERO);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let busy = busy.clone();
        // A task that never yields holds its thread for good.
        tasks.spawn_on(
            async move {
                while !busy.is_draining() {
                    std::hint::spin_loop();
                }
            },
            runtime.handle(),
        );
    }
    for path in ["/livez", "/readyz", "/metrics"] {
        assert!(quickest(address, path) < Duration::from_secs(1), "{path}");
    }
    busy.drain();
    runtime.shutdown_timeout(Duration::from_secs(5));
}

#[test]
fn a_taken_port_is_said_with_the_setting() {
    let up = up();
    let address = up.ops.address();
    let surface = Surface {
        binary: "hook-test",
        readiness: up.readiness.clone(),
        heartbeats: up.heartbeats.clone(),
        metrics: metrics::install(),
    };
    let fault = Ops::start(address, surface).unwrap_err();
    let text = format!("{:#}", anyhow::Error::from(fault));
    assert!(text.contains("HOOK_OPS_LISTEN"), "{text}");
    assert!(text.contains(&address.to_string()), "{text}");
}

#[test]
fn nothing_listens_after_the_end() {
    let up = up();
    let address = up.ops.address();
    up.ops.close();
    assert!(TcpStream::connect(address).is_err());
}
