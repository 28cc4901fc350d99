//! The public listener: accepts connections, at most so many, and joins them all at the end.
//!
//! When every place is taken, the connection that has been idle for longest makes room; when none
//! is idle, the newcomer is answered 503. The listening socket closes with the start of the drain,
//! so that whoever connects later is refused by the system and tries another process.

use std::{collections::HashMap, io, sync::Arc, time::Duration};

use hook_common::{
    lifecycle::Stop,
    metrics::api::{CONNECTIONS, CONNECTIONS_CUT_TOTAL, CONNECTIONS_MAX},
    periodic::Heartbeats,
    problem::Code,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{Id, JoinSet},
};
use tracing::warn;

use crate::{
    audit::Remote,
    connection::{self, Clock},
    front::Front,
};

/// Connections that are being refused or evicted at one time; beyond these, they are just closed.
const SURPLUS_MAX: usize = 64;
/// How long accepting pauses when the system gives no descriptor.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(20);
/// The accept loop shows a sign of life at least this often.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// How connections are limited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections at one time.
    pub(crate) connections_max: usize,
    /// From the first byte of a head to its last, and from an answer to the next head.
    pub(crate) head_timeout: Duration,
}

/// Serves connections until `stop` drains and every one of them has ended.
pub(crate) async fn run(
    listener: TcpListener,
    front: Front,
    limits: Limits,
    heartbeats: Heartbeats,
    stop: Stop,
) {
    let heartbeat = heartbeats.register("listener", SILENCE_MAX);
    let mut connections = Connections::new(front, limits, stop.clone());
    loop {
        let next = heartbeat.while_waiting(async {
            tokio::select! {
                biased;
                () = stop.draining() => Next::Draining,
                ended = connections.next_ended() => Next::Ended(ended),
                accepted = listener.accept() => Next::Accepted(accepted),
            }
        });
        match next.await {
            Next::Draining => break,
            Next::Ended(id) => connections.forget(id),
            Next::Accepted(Ok((stream, _))) => connections.start(stream),
            Next::Accepted(Err(error)) => {
                if is_exhausted(&error) {
                    warn!(%error, "no descriptor for a new connection");
                    connections.evict_longest_idle();
                    stop.pause(EXHAUSTED_PAUSE).await;
                }
            }
        }
    }
    drop(listener);
    stop.join_all(connections.tasks).await;
    CONNECTIONS.gauge(&[]).set(0.0);
}

enum Next {
    Draining,
    Ended(Id),
    Accepted(io::Result<(TcpStream, std::net::SocketAddr)>),
}

/// The connections that are open.
struct Connections {
    tasks: JoinSet<()>,
    clocks: HashMap<Id, Arc<Clock>>,
    front: Front,
    limits: Limits,
    stop: Stop,
    open: metrics::Gauge,
}

impl Connections {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a process has far fewer than 2^52 connections"
    )]
    fn new(front: Front, limits: Limits, stop: Stop) -> Self {
        CONNECTIONS_MAX
            .gauge(&[])
            .set(limits.connections_max as f64);
        Self {
            tasks: JoinSet::new(),
            clocks: HashMap::new(),
            front,
            limits,
            stop,
            open: CONNECTIONS.gauge(&[]),
        }
    }

    fn start(&mut self, stream: TcpStream) {
        if self.tasks.len() >= self.limits.connections_max {
            if self.tasks.len() >= self.limits.connections_max + SURPLUS_MAX {
                CONNECTIONS_CUT_TOTAL.counter(&["limit"]).increment(1);
                return;
            }
            if !self.evict_longest_idle() {
                self.refuse(stream);
                return;
            }
        }
        // Without it a small answer may wait for the client's delayed acknowledgement.
        let Ok(remote) = stream.set_nodelay(true).and_then(|()| stream.peer_addr()) else {
            return;
        };
        let clock = Arc::new(Clock::start());
        let service = self
            .front
            .for_connection(Arc::clone(&clock), Remote(remote));
        let (stop, head_timeout) = (self.stop.clone(), self.limits.head_timeout);
        let running = Arc::clone(&clock);
        let task = self.tasks.spawn(async move {
            connection::serve(stream, service, running, head_timeout, &stop).await;
        });
        self.clocks.insert(task.id(), clock);
        self.open.increment(1.0);
    }

    fn refuse(&mut self, mut stream: TcpStream) {
        CONNECTIONS_CUT_TOTAL.counter(&["limit"]).increment(1);
        let detail = "as many connections are open as may be";
        let task = self.tasks.spawn(async move {
            connection::refuse(&mut stream, Code::Overloaded, detail).await;
        });
        // It is never idle, so nobody evicts it.
        let clock = Clock::start();
        clock.enter(connection::Phase::Serving);
        self.clocks.insert(task.id(), Arc::new(clock));
        self.open.increment(1.0);
    }

    /// Tells the connection that has been idle for longest to close; false when none is idle.
    fn evict_longest_idle(&self) -> bool {
        let idle = self.clocks.values();
        let longest = idle
            .filter_map(|clock| clock.idle_for().map(|time| (time, clock)))
            .max_by_key(|(time, _)| *time);
        longest.is_some_and(|(_, clock)| {
            clock.evict();
            true
        })
    }

    /// Waits for the end of a connection; for ever when there is none.
    ///
    /// # Cancel safety
    /// Loses nothing when it is dropped.
    async fn next_ended(&mut self) -> Id {
        match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => id,
            // The panic hook has counted and logged it.
            Some(Err(error)) => error.id(),
            None => std::future::pending().await,
        }
    }

    fn forget(&mut self, id: Id) {
        self.clocks.remove(&id);
        self.open.decrement(1.0);
    }
}

/// Whether the process or the system has no descriptor or memory left; other errors concern the
/// one connection that was not accepted.
fn is_exhausted(error: &io::Error) -> bool {
    // EMFILE, ENFILE, ENOBUFS, ENOMEM.
    matches!(error.raw_os_error(), Some(24 | 23 | 105 | 12))
}
