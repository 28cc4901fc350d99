//! Open connections that wait for their next exchange.
//!
//! Everything here is bounded: idle connections in all and per endpoint, their age and their
//! idleness. Since each attempt in flight holds at most one connection, the sockets of a worker
//! are at most its slots plus the idle cap. HTTP/1.1 connections are lent to one attempt at a
//! time, the most recently used first, so that surplus ones grow old and go. HTTP/2 connections
//! are shared, and stay listed while they are in use.
//!
//! The lock is held for a few map operations, never while something is awaited.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    client::{
        http1::Http1,
        http2::{Http2, Stream},
    },
    outgoing::Endpoint,
};

/// The bounds of the pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// Idle connections in all. Too small: more handshakes; too large: more open files.
    pub idle_max: usize,
    /// Idle connections to one endpoint. Too small: bursts to one target shake hands anew.
    pub idle_per_endpoint_max: usize,
    /// A connection is not used again after this. Too large: a change of DNS is followed late.
    pub age_max: Duration,
    /// An idle connection is closed after this. Too large: it meets peers that have closed it.
    pub idle_timeout: Duration,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self {
            idle_max: 128,
            idle_per_endpoint_max: 64,
            age_max: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(15),
        }
    }
}

/// Where a connection leads, which decides who may use it again.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Key {
    /// To the endpoint itself, or by a tunnel to it.
    Endpoint(Endpoint),
    /// To the egress proxy, in clear text, for any `http` endpoint.
    Proxy,
}

/// A connection that an attempt may use.
pub(crate) enum Pooled {
    /// For this attempt alone.
    Http1(Box<Http1>),
    /// Shared with others.
    Http2(Stream),
}

/// All idle HTTP/1.1 connections and all live HTTP/2 connections.
pub(crate) struct Pool {
    limits: PoolLimits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    shelves: HashMap<Key, Shelf>,
    /// Idle HTTP/1.1 connections by the order in which they came back, the oldest first.
    order: BTreeMap<u64, Key>,
    /// HTTP/2 connections by the order in which they were made, the oldest first.
    shared_order: VecDeque<(Key, Arc<Http2>)>,
    next_number: u64,
}

#[derive(Default)]
struct Shelf {
    idle: VecDeque<Idle>,
    shared: Vec<Arc<Http2>>,
}

struct Idle {
    number: u64,
    since: Instant,
    connection: Box<Http1>,
}

/// Connections that left the pool and are closed once its lock is released.
#[derive(Default)]
struct Evicted {
    http1: Vec<Idle>,
    http2: Vec<Arc<Http2>>,
}

impl Pool {
    /// Makes an empty pool.
    pub(crate) fn new(limits: PoolLimits) -> Self {
        Self {
            limits,
            state: Mutex::default(),
        }
    }

    /// Takes a connection that leads to one of `addresses` and can be used at once.
    ///
    /// An address that the name no longer has is not used again, however new the connection.
    pub(crate) fn take(&self, key: &Key, addresses: Option<&[SocketAddr]>) -> Option<Pooled> {
        let now = Instant::now();
        let leads_there =
            |peer: &SocketAddr| addresses.is_none_or(|addresses| addresses.contains(peer));
        loop {
            // Connections that are not fit any more are dropped after the lock is released.
            let mut idle = {
                let mut state = self.state();
                let shelf = state.shelves.get_mut(key)?;
                let shared = shelf.shared.iter().find_map(|connection| {
                    (leads_there(&connection.peer) && self.is_young(connection.made_at, now))
                        .then(|| connection.open_stream())
                        .flatten()
                });
                if let Some(stream) = shared {
                    return Some(Pooled::Http2(stream));
                }
                state.pop(key)?
            };
            let fits = leads_there(&idle.connection.peer)
                && self.is_young(idle.connection.made_at, now)
                && now.duration_since(idle.since) < self.limits.idle_timeout;
            if fits && idle.connection.is_usable() {
                return Some(Pooled::Http1(idle.connection));
            }
        }
    }

    /// Gives back a connection that is between two exchanges.
    pub(crate) fn put(&self, key: Key, connection: Box<Http1>) {
        let now = Instant::now();
        if !self.is_young(connection.made_at, now) {
            return;
        }
        // Whatever has to go is dropped after the lock is released: closing is a system call.
        let _evicted = {
            let mut state = self.state();
            state.push(key, connection, now, self.limits)
        };
    }

    /// Lists a new HTTP/2 connection, so that others can use it too.
    ///
    /// Attempts that began at the same time may each have made one. One is enough: as long as it
    /// has room, the others serve only the attempt that made them.
    pub(crate) fn share(&self, key: Key, connection: &Arc<Http2>) {
        let _evicted = {
            let mut state = self.state();
            let shelf = state.shelves.entry(key.clone()).or_default();
            if shelf.shared.iter().any(|other| other.has_room()) {
                return;
            }
            shelf.shared.push(Arc::clone(connection));
            state.shared_order.push_back((key, Arc::clone(connection)));
            state.make_room(self.limits)
        };
    }

    /// Drops what has been closed by its peer, has grown too old, or has been idle for too long.
    ///
    /// A worker without work calls this too, so that its sockets go away on time.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        // Declared before the guard, so that connections are closed after it is released.
        let mut evicted = Evicted::default();
        let mut guard = self.state();
        let state = &mut *guard;
        for shelf in state.shelves.values_mut() {
            for mut idle in std::mem::take(&mut shelf.idle) {
                let fits = self.is_young(idle.connection.made_at, now)
                    && now.duration_since(idle.since) < self.limits.idle_timeout
                    && idle.connection.is_usable();
                if fits {
                    shelf.idle.push_back(idle);
                } else {
                    state.order.remove(&idle.number);
                    evicted.http1.push(idle);
                }
            }
            shelf
                .shared
                .retain(|connection| self.is_worth_keeping(connection, now));
        }
        for (key, connection) in std::mem::take(&mut state.shared_order) {
            if self.is_worth_keeping(&connection, now) {
                state.shared_order.push_back((key, connection));
            } else {
                evicted.http2.push(connection);
            }
        }
        state
            .shelves
            .retain(|_, shelf| !shelf.idle.is_empty() || !shelf.shared.is_empty());
    }

    fn is_worth_keeping(&self, connection: &Http2, now: Instant) -> bool {
        connection.is_open()
            && self.is_young(connection.made_at, now)
            && !connection.is_idle_for(self.limits.idle_timeout, now)
    }

    /// How many connections are listed: idle ones, and HTTP/2 ones whether in use or not.
    pub(crate) fn count(&self) -> usize {
        let state = self.state();
        state.order.len() + state.shared_order.len()
    }

    fn is_young(&self, made_at: Instant, now: Instant) -> bool {
        now.duration_since(made_at) < self.limits.age_max
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes the idle connection that came back last.
    fn pop(&mut self, key: &Key) -> Option<Idle> {
        let shelf = self.shelves.get_mut(key)?;
        let idle = shelf.idle.pop_back()?;
        self.order.remove(&idle.number);
        self.tidy(key);
        Some(idle)
    }

    /// Adds an idle connection and returns those that had to make room.
    fn push(
        &mut self,
        key: Key,
        connection: Box<Http1>,
        since: Instant,
        limits: PoolLimits,
    ) -> Evicted {
        let number = self.next_number;
        self.next_number += 1;
        self.order.insert(number, key.clone());
        let shelf = self.shelves.entry(key).or_default();
        shelf.idle.push_back(Idle {
            number,
            since,
            connection,
        });
        let mut evicted = Evicted::default();
        if shelf.idle.len() > limits.idle_per_endpoint_max
            && let Some(oldest) = shelf.idle.pop_front()
        {
            self.order.remove(&oldest.number);
            evicted.http1.push(oldest);
        }
        let others = self.make_room(limits);
        evicted.http1.extend(others.http1);
        evicted.http2.extend(others.http2);
        evicted
    }

    /// Takes out connections until the rest is within the bound for all endpoints.
    ///
    /// The more numerous kind gives way first, so that neither starves the other. HTTP/2
    /// connections in use stay: each is accounted for by the attempts that hold its streams.
    fn make_room(&mut self, limits: PoolLimits) -> Evicted {
        let mut evicted = Evicted::default();
        while self.order.len() + self.shared_order.len() > limits.idle_max {
            let http2_first = self.shared_order.len() > self.order.len();
            let made = (http2_first && self.evict_http2(&mut evicted))
                || self.evict_http1(&mut evicted)
                || self.evict_http2(&mut evicted);
            if !made {
                break;
            }
        }
        evicted
    }

    fn evict_http1(&mut self, evicted: &mut Evicted) -> bool {
        let Some((_, key)) = self.order.pop_first() else {
            return false;
        };
        if let Some(shelf) = self.shelves.get_mut(&key) {
            // Within one endpoint, the front is always the one that came back first.
            evicted.http1.extend(shelf.idle.pop_front());
            self.tidy(&key);
        }
        true
    }

    fn evict_http2(&mut self, evicted: &mut Evicted) -> bool {
        let unused = |(_, connection): &(Key, Arc<Http2>)| !connection.is_in_use();
        let Some(place) = self.shared_order.iter().position(unused) else {
            return false;
        };
        if let Some((key, connection)) = self.shared_order.remove(place) {
            if let Some(shelf) = self.shelves.get_mut(&key) {
                shelf
                    .shared
                    .retain(|other| !Arc::ptr_eq(other, &connection));
            }
            self.tidy(&key);
            evicted.http2.push(connection);
        }
        true
    }

    /// Forgets an endpoint that has no connections left.
    fn tidy(&mut self, key: &Key) {
        if self
            .shelves
            .get(key)
            .is_some_and(|shelf| shelf.idle.is_empty() && shelf.shared.is_empty())
        {
            self.shelves.remove(key);
        }
    }
}
