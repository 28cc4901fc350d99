//! A process that has used up its file descriptors still answers for its health. Alone in its
//! binary: the limit holds for the whole process.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    net::SocketAddr,
    time::Duration,
};

use hook_common::{
    lifecycle::Stop,
    metrics,
    ops::{Ops, Readiness, Surface},
    periodic::Heartbeats,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{net::TcpSocket, time::Instant};

/// Sends one request over a socket that was made before the descriptors ran out.
async fn ask(socket: TcpSocket, address: SocketAddr) -> String {
    let stream = socket.connect(address).await.expect("the backlog has room");
    let mut stream = stream.into_std().expect("it leaves the runtime");
    stream.set_nonblocking(false).expect("it can block");
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .expect("it takes a deadline");
    stream
        .write_all(b"GET /livez HTTP/1.1\r\nhost: ops\r\n\r\n")
        .expect("it can be written to");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is answered");
    answer
}

#[tokio::test]
async fn health_is_told_when_every_descriptor_is_used_up() {
    let readiness = Readiness::new(Stop::manual(Duration::from_secs(1)));
    let surface = Surface {
        binary: "hook-test",
        readiness,
        heartbeats: Heartbeats::new(),
        metrics: metrics::install(),
    };
    let ops = Ops::start("127.0.0.1:0".parse().unwrap(), surface).unwrap();
    let sockets: Vec<TcpSocket> = (0..5).map(|_| TcpSocket::new_v4().unwrap()).collect();
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = Some(128);
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    let mut held = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        held.push(file);
    }
    for socket in sockets {
        let begun = Instant::now();
        let answer = ask(socket, ops.address()).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(begun.elapsed() < Duration::from_secs(1));
        // What the answer freed is taken at once by the busy rest of the process.
        while let Ok(file) = File::open("/dev/null") {
            held.push(file);
        }
    }
}
