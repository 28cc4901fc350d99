//! A scripted receiver of webhooks on a raw socket.
//!
//! It can misbehave in every way that a real receiver was seen to, at every stage of a
//! connection, and it records what was really on the wire. It uses no HTTP server library for
//! HTTP/1.1, because such a library would repair, refuse or hide what a test must see.
//!
//! Files: `answer` (what one exchange does), `body` (bytes, possibly endless), `plan` (an answer
//! as steps), `script` (who decides), `reader` (strict request reader), `serve` (a connection),
//! `record` (the evidence), `tls` and `h2` (the same over TLS and HTTP/2), `odd` (ready-made
//! hostile answers).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::sink::h2::Http2Script;
use crate::sink::record::{Connection, Record, Request};
use crate::sink::script::{Opening, Openings, Script};
use crate::sink::tls::Tls;
use crate::wait::{pause, wait_for};

pub mod answer;
pub mod body;
pub mod h2;
pub mod odd;
mod plan;
mod reader;
pub mod record;
pub mod script;
mod serve;
pub mod tls;
mod wire;

#[cfg(test)]
mod tests;

/// A listening sink; dropping it closes the listener and every connection.
#[derive(Debug)]
pub struct Sink {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Holds the accept loop, which holds the connections.
    _tasks: JoinSet<()>,
}

/// How a sink is set up before it listens.
#[derive(Debug)]
pub struct SinkBuilder {
    address: SocketAddr,
    accept_pause: Duration,
    send_buffer_bytes: Option<usize>,
    shared: Shared,
}

/// What the connections of a sink have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    record: Record,
    script: Mutex<Script>,
    openings: Mutex<Openings>,
    tls: Option<Tls>,
    http2: Option<Http2Script>,
}

impl Shared {
    fn script(&self) -> Script {
        self.script
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn opening(&self, number: usize) -> Opening {
        let openings = self
            .openings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        (openings.0)(number)
    }
}

impl Sink {
    /// Listens on 127.0.0.1 and answers by `script`, which may be a plain status.
    pub async fn start(script: impl Into<Script>) -> Self {
        Self::builder(script).start().await
    }

    /// Begins the set-up of a sink.
    pub fn builder(script: impl Into<Script>) -> SinkBuilder {
        SinkBuilder {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            accept_pause: Duration::ZERO,
            send_buffer_bytes: None,
            shared: Shared {
                record: Record::default(),
                script: Mutex::new(script.into()),
                openings: Mutex::new(Openings(Arc::new(|_| Opening::serve()))),
                tls: None,
                http2: None,
            },
        }
    }

    /// The address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// A URL of this sink by its address; `path` begins with a slash.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        let scheme = self.scheme();
        format!("{scheme}://{}{path}", self.address)
    }

    /// A URL of this sink by a name that resolves to it.
    #[must_use]
    pub fn url_at(&self, host: &str, path: &str) -> String {
        let scheme = self.scheme();
        format!("{scheme}://{host}:{}{path}", self.port())
    }

    fn scheme(&self) -> &'static str {
        if self.shared.tls.is_some() {
            "https"
        } else {
            "http"
        }
    }

    /// Replaces the script; exchanges under way go on by the old one.
    pub fn set_script(&self, script: impl Into<Script>) {
        let mut own = self
            .shared
            .script
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *own = script.into();
    }

    /// Replaces what is done with new connections.
    pub fn set_openings(&self, decide: impl Fn(usize) -> Opening + Send + Sync + 'static) {
        let mut own = self
            .shared
            .openings
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *own = Openings(Arc::new(decide));
    }

    /// The requests so far, in the order in which their heads were complete.
    #[must_use]
    pub fn requests(&self) -> Vec<Arc<Request>> {
        self.shared.record.requests()
    }

    /// The requests so far that carry this `webhook-id`.
    #[must_use]
    pub fn requests_for(&self, id: &str) -> Vec<Arc<Request>> {
        let mut requests = self.requests();
        requests.retain(|request| request.id() == id);
        requests
    }

    /// The requests so far whose target begins with `path`.
    #[must_use]
    pub fn requests_at(&self, path: &str) -> Vec<Arc<Request>> {
        let mut requests = self.requests();
        requests.retain(|request| request.path.starts_with(path));
        requests
    }

    /// How many requests there were so far.
    #[must_use]
    pub fn request_count(&self) -> usize {
        self.shared.record.request_count()
    }

    /// The connections so far.
    #[must_use]
    pub fn connections(&self) -> Vec<Connection> {
        self.shared.record.connections()
    }

    /// How many connections there were so far.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.shared.record.connection_count()
    }

    /// Breaches of HTTP/1.1 by the peer, and panics of the script.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.shared.record.violations()
    }

    /// Waits until there were at least `count` requests and gives all of them.
    ///
    /// # Panics
    /// When there were fewer within `limit`.
    #[track_caller]
    pub fn wait_requests(
        &self,
        count: usize,
        limit: Duration,
    ) -> impl Future<Output = Vec<Arc<Request>>> {
        let reached = wait_for(
            limit,
            async || self.request_count(),
            move |seen| *seen >= count,
        );
        async move {
            reached.await;
            self.requests()
        }
    }
}

impl SinkBuilder {
    /// Listens on this address instead of 127.0.0.1: another of 127.0.0.0/8, `::1`, or 0.0.0.0
    /// for all of 127.0.0.0/8 at once.
    #[must_use]
    pub fn bind(mut self, address: impl Into<IpAddr>) -> Self {
        self.address.set_ip(address.into());
        self
    }

    /// Listens on this port instead of a free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.address.set_port(port);
        self
    }

    /// Waits before each accept, so that connections sit in the backlog of the kernel.
    #[must_use]
    pub fn accept_pause(mut self, pause: Duration) -> Self {
        self.accept_pause = pause;
        self
    }

    /// Bounds what the kernel takes of an answer before the peer reads it.
    #[must_use]
    pub fn send_buffer_bytes(mut self, bytes: usize) -> Self {
        self.send_buffer_bytes = Some(bytes);
        self
    }

    /// Decides what happens to each connection, by its number from 1, before its first byte.
    #[must_use]
    pub fn openings(mut self, decide: impl Fn(usize) -> Opening + Send + Sync + 'static) -> Self {
        self.shared.openings = Mutex::new(Openings(Arc::new(decide)));
        self
    }

    /// Speaks TLS.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.shared.tls = Some(tls);
        self
    }

    /// Offers HTTP/2 beside HTTP/1.1, answered by this script; only with TLS.
    #[must_use]
    pub fn http2(mut self, script: Http2Script) -> Self {
        self.shared.http2 = Some(script);
        self
    }

    /// Begins to listen.
    ///
    /// # Panics
    /// When the address cannot be bound, or HTTP/2 is to be spoken without TLS.
    pub async fn start(self) -> Sink {
        let listener = TcpListener::bind(self.address)
            .await
            .unwrap_or_else(|error| panic!("binding the sink to {}: {error}", self.address));
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let mut shared = self.shared;
        if shared.http2.is_some() {
            let tls = shared
                .tls
                .take()
                .expect("the sink speaks HTTP/2 only over TLS");
            shared.tls = Some(tls.offering_http2());
        }
        let shared = Arc::new(shared);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept_loop(
            listener,
            self.accept_pause,
            self.send_buffer_bytes,
            Arc::clone(&shared),
        ));
        Sink {
            address,
            shared,
            _tasks: tasks,
        }
    }
}

async fn accept_loop(
    listener: TcpListener,
    accept_pause: Duration,
    send_buffer_bytes: Option<usize>,
    shared: Arc<Shared>,
) {
    let mut connections = JoinSet::new();
    loop {
        if !accept_pause.is_zero() {
            pause(accept_pause).await;
        }
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    if let Some(bytes) = send_buffer_bytes {
                        // A smaller buffer is a wish that the kernel may round.
                        drop(SockRef::from(&stream).set_send_buffer_size(bytes));
                    }
                    connections.spawn(connection(stream, peer, Arc::clone(&shared)));
                }
                // Too many open files, or a peer that left the backlog: the next may work.
                Err(_) => pause(Duration::from_millis(10)).await,
            },
            Some(joined) = connections.join_next() => {
                if let Err(error) = joined {
                    shared.record.violation(format!("a connection of the sink failed: {error}"));
                }
            }
        }
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, shared: Arc<Shared>) {
    let Ok(local) = stream.local_addr() else {
        return;
    };
    // Small pieces must reach the peer one by one, as the script says.
    drop(stream.set_nodelay(true));
    let number = shared.record.open(peer, local);
    serve::serve(stream, number, &shared).await;
}
