//! What the sink saw, in the order in which it saw it.
//!
//! The record grows for as long as the sink lives and is never pruned: it is the evidence of a
//! test. Readers get snapshots, so that they never hold up the sockets.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::time::Instant;

use crate::sink::reader::{Head, values};

/// One request, from its first byte to the end of its exchange.
#[derive(Clone, Debug)]
pub struct Request {
    /// Number of the connection it came on, from 1.
    pub connection: usize,
    /// How many requests with the same `webhook-id` came before it and itself, from 1.
    pub nth: u32,
    /// The head's exact bytes, with the empty line; empty for HTTP/2.
    pub head: Bytes,
    /// The method as it was sent.
    pub method: String,
    /// The request target as it was sent.
    pub path: String,
    /// `HTTP/1.1`, `HTTP/1.0` or `HTTP/2.0`.
    pub version: String,
    /// Names in their own case and values, in order.
    pub headers: Vec<(String, String)>,
    /// The body without its framing; empty while a script decides, which is before it is read.
    pub body: Bytes,
    /// Whether the body arrived to its end.
    pub body_complete: bool,
    /// When its first byte was seen.
    pub started: Instant,
    /// When its head was complete.
    pub head_read: Instant,
    /// When the exchange was over: answered to the end, cut, or given up by the peer.
    pub ended: Option<Instant>,
    /// Bytes of the answer that the socket took.
    pub bytes_written: u64,
}

/// One TCP connection.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Its number, from 1.
    pub number: usize,
    /// The address that the peer connected from.
    pub peer: SocketAddr,
    /// The address that the peer connected to.
    pub local: SocketAddr,
    /// When it was accepted.
    pub opened: Instant,
    /// When it was over, whoever ended it.
    pub closed: Option<Instant>,
    /// Requests whose head was read.
    pub requests: usize,
    /// The server name that a TLS client asked for.
    pub server_name: Option<String>,
    /// The protocols that a TLS client offered.
    pub protocols: Vec<String>,
    /// Why the TLS handshake failed.
    pub tls_error: Option<String>,
}

impl Request {
    /// The first value of a header, whatever the case of its name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.header_values(name).next()
    }

    /// All values of a header, in order.
    pub fn header_values<'a, 'n>(
        &'a self,
        name: &'n str,
    ) -> impl Iterator<Item = &'a str> + use<'a, 'n> {
        values(&self.headers, name)
    }

    /// The `webhook-id`, or nothing at all as an empty text.
    #[must_use]
    pub fn id(&self) -> &str {
        self.header("webhook-id").unwrap_or_default()
    }

    /// The number in `hook-attempt`.
    #[must_use]
    pub fn attempt(&self) -> Option<u32> {
        self.header("hook-attempt")?.parse().ok()
    }
}

/// Everything that happened on one sink.
#[derive(Debug, Default)]
pub(super) struct Record {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    requests: Vec<Arc<Request>>,
    connections: Vec<Connection>,
    seen_by_id: HashMap<String, u32>,
    violations: Vec<String>,
}

/// Where a request is in the record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry(usize);

impl Record {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("nothing panics while it holds the record")
    }

    pub(super) fn open(&self, peer: SocketAddr, local: SocketAddr) -> usize {
        let mut state = self.lock();
        let number = state.connections.len() + 1;
        state.connections.push(Connection {
            number,
            peer,
            local,
            opened: Instant::now(),
            closed: None,
            requests: 0,
            server_name: None,
            protocols: Vec::new(),
            tls_error: None,
        });
        number
    }

    pub(super) fn update_connection(&self, number: usize, change: impl FnOnce(&mut Connection)) {
        change(&mut self.lock().connections[number - 1]);
    }

    /// Adds a request whose head was read and gives its place and a snapshot of it.
    pub(super) fn add(
        &self,
        connection: usize,
        started: Instant,
        head: Head,
    ) -> (Entry, Arc<Request>) {
        let mut request = Request {
            connection,
            nth: 0,
            head: head.raw,
            method: head.method,
            path: head.path,
            version: head.version,
            headers: head.headers,
            body: Bytes::new(),
            body_complete: false,
            started,
            head_read: Instant::now(),
            ended: None,
            bytes_written: 0,
        };
        let mut state = self.lock();
        let seen = state.seen_by_id.entry(request.id().to_owned()).or_default();
        *seen += 1;
        request.nth = *seen;
        let request = Arc::new(request);
        state.connections[connection - 1].requests += 1;
        state.requests.push(Arc::clone(&request));
        (Entry(state.requests.len() - 1), request)
    }

    pub(super) fn update(&self, entry: Entry, change: impl FnOnce(&mut Request)) {
        change(Arc::make_mut(&mut self.lock().requests[entry.0]));
    }

    pub(super) fn violation(&self, what: String) {
        self.lock().violations.push(what);
    }

    pub(super) fn requests(&self) -> Vec<Arc<Request>> {
        self.lock().requests.clone()
    }

    pub(super) fn request_count(&self) -> usize {
        self.lock().requests.len()
    }

    pub(super) fn connections(&self) -> Vec<Connection> {
        self.lock().connections.clone()
    }

    pub(super) fn connection_count(&self) -> usize {
        self.lock().connections.len()
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.lock().violations.clone()
    }
}

/// The largest number of these requests that were under way at one time.
///
/// A request that has not ended counts as under way until now.
#[must_use]
pub fn in_flight_peak<'a>(requests: impl IntoIterator<Item = &'a Arc<Request>>) -> usize {
    let mut changes: Vec<(Instant, i8)> = Vec::new();
    for request in requests {
        changes.push((request.started, 1));
        if let Some(ended) = request.ended {
            changes.push((ended, -1));
        }
    }
    // At equal times an end sorts before a start, so that back-to-back requests do not overlap.
    changes.sort_unstable();
    let mut now = 0_i64;
    let mut peak = 0_i64;
    for (_, change) in changes {
        now += i64::from(change);
        peak = peak.max(now);
    }
    usize::try_from(peak).expect("a peak starts at zero")
}
