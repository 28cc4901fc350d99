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
    pub(crate) fn share(&self, key: Key, connection: &Arc<Http2>) {
        self.state()
            .shelves
            .entry(key)
            .or_default()
            .shared
            .push(Arc::clone(connection));
    }

    /// Drops what has been closed by its peer, has grown too old, or has been idle for too long.
    ///
    /// A worker without work calls this too, so that its sockets go away on time.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        let mut dropped = Vec::new();
        let mut state = self.state();
        let State { shelves, order, .. } = &mut *state;
        shelves.retain(|_, shelf| {
            let (kept, gone) = std::mem::take(&mut shelf.idle)
                .into_iter()
                .partition::<VecDeque<_>, _>(|idle| {
                    self.is_young(idle.connection.made_at, now)
                        && now.duration_since(idle.since) < self.limits.idle_timeout
                });
            shelf.idle = kept;
            for mut idle in std::mem::take(&mut shelf.idle) {
                if idle.connection.is_usable() {
                    shelf.idle.push_back(idle);
                } else {
                    order.remove(&idle.number);
                    dropped.push(idle);
                }
            }
            for idle in gone {
                order.remove(&idle.number);
                dropped.push(idle);
            }
            shelf.shared.retain(|connection| {
                connection.is_open()
                    && self.is_young(connection.made_at, now)
                    && !connection.is_idle_for(self.limits.idle_timeout, now)
            });
            !shelf.idle.is_empty() || !shelf.shared.is_empty()
        });
    }

    /// How many idle HTTP/1.1 connections wait.
    pub(crate) fn idle_count(&self) -> usize {
        self.state().order.len()
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
        if shelf.idle.is_empty() && shelf.shared.is_empty() {
            self.shelves.remove(key);
        }
        self.order.remove(&idle.number);
        Some(idle)
    }

    /// Adds an idle connection and returns those that had to make room.
    fn push(
        &mut self,
        key: Key,
        connection: Box<Http1>,
        since: Instant,
        limits: PoolLimits,
    ) -> Vec<Idle> {
        let number = self.next_number;
        self.next_number += 1;
        self.order.insert(number, key.clone());
        let shelf = self.shelves.entry(key).or_default();
        shelf.idle.push_back(Idle {
            number,
            since,
            connection,
        });
        let mut evicted = Vec::new();
        if shelf.idle.len() > limits.idle_per_endpoint_max
            && let Some(oldest) = shelf.idle.pop_front()
        {
            self.order.remove(&oldest.number);
            evicted.push(oldest);
        }
        while self.order.len() > limits.idle_max {
            let Some((_, key)) = self.order.pop_first() else {
                break;
            };
            if let Some(shelf) = self.shelves.get_mut(&key) {
                // Within one endpoint, the front is always the one that came back first.
                evicted.extend(shelf.idle.pop_front());
                if shelf.idle.is_empty() && shelf.shared.is_empty() {
                    self.shelves.remove(&key);
                }
            }
        }
        evicted
    }
}
