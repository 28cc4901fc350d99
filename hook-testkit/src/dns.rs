//! A stub DNS server on loopback, over UDP and TCP.
//!
//! A test says what each name has, per lookup or over time, and sees how often it was asked for.
//! Only the wire format comes from a library. There is no cache, no recursion and no zone: a name
//! without a rule does not exist.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;

use crate::dns::answer::{UDP_BYTES_DEFAULT, build};
use crate::dns::zone::{Asked, Reply, Rule, Zone};
use crate::wait::pause;

mod answer;
pub mod zone;

#[cfg(test)]
mod tests;

/// Attempts to find a port that is free for UDP and for TCP.
const BIND_ATTEMPTS: usize = 20;

/// A running DNS server; dropping it stops it.
#[derive(Debug)]
pub struct Dns {
    address: SocketAddr,
    zone: Arc<Zone>,
    _tasks: JoinSet<()>,
}

impl Dns {
    /// Starts a server that knows no name.
    ///
    /// # Panics
    /// When no port can be bound.
    pub async fn start() -> Self {
        let (udp, tcp) = bind().await;
        let address = udp.local_addr().expect("a bound socket has an address");
        let zone = Arc::new(Zone::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_udp(udp, Arc::clone(&zone)));
        tasks.spawn(serve_tcp(tcp, Arc::clone(&zone)));
        Self {
            address,
            zone,
            _tasks: tasks,
        }
    }

    /// The address it answers on, for `HOOK_DNS_SERVERS`.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets what a name has from now on.
    pub fn set(&self, name: &str, rule: impl Into<Rule>) {
        self.zone.set(name, rule.into());
    }

    /// Sets what every name without a rule of its own has; nothing = it does not exist.
    pub fn set_others(&self, decide: impl Fn(&str) -> Option<Reply> + Send + Sync + 'static) {
        self.zone.set_others(Arc::new(decide));
    }

    /// How often a name was looked up; asking for both address families counts once.
    #[must_use]
    pub fn lookups(&self, name: &str) -> usize {
        self.zone.lookups(name)
    }

    /// Every question so far, in order.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        self.zone.asked()
    }
}

/// Binds both protocols to one port, as resolvers expect.
async fn bind() -> (UdpSocket, TcpListener) {
    for _ in 0..BIND_ATTEMPTS {
        let udp = UdpSocket::bind("127.0.0.1:0")
            .await
            .expect("loopback has a free port");
        let address = udp.local_addr().expect("a bound socket has an address");
        if let Ok(tcp) = TcpListener::bind(address).await {
            return (udp, tcp);
        }
    }
    panic!("no port was free for both UDP and TCP");
}

async fn serve_udp(socket: UdpSocket, zone: Arc<Zone>) {
    let socket = Arc::new(socket);
    let mut answers = JoinSet::new();
    let mut buffer = vec![0; usize::from(u16::MAX)];
    loop {
        tokio::select! {
            received = socket.recv_from(&mut buffer) => {
                // An error here is about an earlier answer whose asker has gone.
                let Ok((length, peer)) = received else { continue };
                let Ok(query) = Message::from_vec(&buffer[..length]) else { continue };
                let (socket, zone) = (Arc::clone(&socket), Arc::clone(&zone));
                answers.spawn(async move {
                    let bytes_max = query.edns.as_ref().map_or(UDP_BYTES_DEFAULT, |edns| {
                        usize::from(edns.max_payload()).max(UDP_BYTES_DEFAULT)
                    });
                    if let Some(bytes) = answer(&query, &zone, bytes_max).await {
                        drop(socket.send_to(&bytes, peer).await);
                    }
                });
            }
            Some(_) = answers.join_next() => {}
        }
    }
}

async fn serve_tcp(listener: TcpListener, zone: Arc<Zone>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(serve_connection(stream, Arc::clone(&zone)));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Answers one question after the other until the asker closes.
async fn serve_connection(mut stream: TcpStream, zone: Arc<Zone>) {
    while let Ok(length) = stream.read_u16().await {
        let mut bytes = vec![0; usize::from(length)];
        if stream.read_exact(&mut bytes).await.is_err() {
            return;
        }
        let Ok(query) = Message::from_vec(&bytes) else {
            return;
        };
        let Some(bytes) = answer(&query, &zone, usize::from(u16::MAX)).await else {
            continue;
        };
        let length = u16::try_from(bytes.len()).expect("an answer was cut to this size");
        let framed = [&length.to_be_bytes()[..], &bytes].concat();
        if stream.write_all(&framed).await.is_err() {
            return;
        }
    }
}

/// The bytes of the answer once its delay is over; nothing when the server stays silent.
async fn answer(query: &Message, zone: &Zone, bytes_max: usize) -> Option<Vec<u8>> {
    let Some(question) = query.queries.first() else {
        let refusal = Message::error_msg(
            query.metadata.id,
            query.metadata.op_code,
            ResponseCode::FormErr,
        );
        return refusal.to_vec().ok();
    };
    let found = zone.ask(question.name(), question.query_type());
    if found.delay > Duration::ZERO {
        pause(found.delay).await;
    }
    build(query, &found, bytes_max)
}
