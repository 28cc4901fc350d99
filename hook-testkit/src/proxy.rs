//! A TCP proxy that can behave like a bad network before Postgres.
//!
//! It forwards bytes and knows no protocol. Its state is a level that a test sets; every
//! connection follows it at once, the ones under way and the new ones alike.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::wait::pause;

mod link;

#[cfg(test)]
mod tests;

/// Connections that the kernel keeps before they are accepted.
const BACKLOG: i32 = 1024;

/// How the proxy treats connections.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// Forwards both ways.
    Pass,
    /// Forwards each piece after this time.
    Delay(Duration),
    /// Forwards nothing and closes nothing; new connections are taken and left alone. What was
    /// held back is forwarded when this ends.
    Freeze,
    /// The far side is gone without a word: what clients send is swallowed, and nobody tells
    /// them. A connection that was in this state stays in it.
    HalfOpen,
    /// Refuses new connections; the ones under way go on.
    Refuse,
}

/// When a cut on certain bytes happens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CutPoint {
    /// Instead of forwarding them: the server never gets them.
    Before,
    /// After forwarding them: the server works on them, and the client never hears of it.
    After,
}

/// A running proxy; dropping it closes everything.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

/// What all connections look at.
#[derive(Debug)]
struct Shared {
    upstream: Mutex<SocketAddr>,
    mode: watch::Sender<Mode>,
    /// Rises with each cut, so that no connection misses one.
    cuts: watch::Sender<usize>,
    trigger: Mutex<Option<Trigger>>,
    accepted: AtomicUsize,
    open: AtomicUsize,
}

#[derive(Clone)]
struct Trigger {
    point: CutPoint,
    matches: Arc<Matches>,
}

type Matches = dyn Fn(&[u8]) -> bool + Send + Sync;

impl fmt::Debug for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trigger({:?})", self.point)
    }
}

impl Proxy {
    /// Starts to forward to `upstream`.
    ///
    /// # Panics
    /// When no port can be bound. It must be called inside a tokio runtime.
    #[must_use]
    pub fn start(upstream: SocketAddr) -> Self {
        let reserved = ClosedPort::new();
        let address = reserved.address();
        let shared = Arc::new(Shared {
            upstream: Mutex::new(upstream),
            mode: watch::Sender::new(Mode::Pass),
            cuts: watch::Sender::new(0),
            trigger: Mutex::new(None),
            accepted: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
        });
        let listener = reserved.listen();
        let mut tasks = JoinSet::new();
        tasks.spawn(accept_loop(reserved, listener, Arc::clone(&shared)));
        Self {
            address,
            shared,
            _tasks: tasks,
        }
    }

    /// Starts a proxy before the server of a database URL.
    ///
    /// # Panics
    /// When the URL has no address and port.
    #[must_use]
    pub fn before(database_url: &str) -> Self {
        Self::start(server_of(database_url))
    }

    /// Leads new connections to the server of another database URL, as a name does that is moved
    /// to another primary.
    ///
    /// # Panics
    /// When the URL has no address and port.
    pub fn lead_to(&self, database_url: &str) {
        let upstream = self.shared.upstream.lock();
        *upstream.unwrap_or_else(PoisonError::into_inner) = server_of(database_url);
    }

    /// The same database URL, through this proxy.
    ///
    /// # Panics
    /// When it is not a URL.
    #[must_use]
    pub fn url(&self, database_url: &str) -> String {
        let mut url = parse(database_url);
        let host = self.address.ip().to_string();
        url.set_host(Some(&host)).expect("an address is a host");
        url.set_port(Some(self.address.port()))
            .expect("a database URL may have a port");
        url.into()
    }

    /// The address that clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes how connections are treated.
    pub fn set(&self, mode: Mode) {
        self.shared.mode.send_replace(mode);
    }

    /// Resets every connection that is open now, on both sides. New ones are not affected.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Cuts each connection whose client sends a piece that `matches` accepts.
    pub fn cut_on(&self, point: CutPoint, matches: impl Fn(&[u8]) -> bool + Send + Sync + 'static) {
        self.set_trigger(Some(Trigger {
            point,
            matches: Arc::new(matches),
        }));
    }

    /// Ends what [`Self::cut_on`] began.
    pub fn cut_on_nothing(&self) {
        self.set_trigger(None);
    }

    fn set_trigger(&self, trigger: Option<Trigger>) {
        let mut own = self
            .shared
            .trigger
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *own = trigger;
    }

    /// Connections that were accepted since the start.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// Connections that are open now.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn upstream(&self) -> SocketAddr {
        let upstream = self.upstream.lock();
        *upstream.unwrap_or_else(PoisonError::into_inner)
    }

    /// The point at which these bytes of a client cut its connection.
    fn cut_point(&self, bytes: &[u8]) -> Option<CutPoint> {
        let trigger = self
            .trigger
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()?;
        (trigger.matches)(bytes).then_some(trigger.point)
    }
}

async fn accept_loop(reserved: ClosedPort, listener: TcpListener, shared: Arc<Shared>) {
    let mut listener = Some(listener);
    let mut mode = shared.mode.subscribe();
    let mut links = JoinSet::new();
    loop {
        let refuses = *mode.borrow_and_update() == Mode::Refuse;
        match (refuses, &listener) {
            (true, _) => listener = None,
            (false, None) => listener = Some(reserved.listen()),
            (false, Some(_)) => {}
        }
        tokio::select! {
            accepted = accept(listener.as_ref()) => {
                shared.accepted.fetch_add(1, Ordering::Relaxed);
                links.spawn(link::run(accepted, Arc::clone(&shared)));
            }
            changed = mode.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            Some(_) = links.join_next() => {}
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            // Too many open files, or a peer that left the backlog: the next may work.
            Err(_) => pause(Duration::from_millis(10)).await,
        }
    }
}

fn server_of(database_url: &str) -> SocketAddr {
    let url = parse(database_url);
    let host = url
        .host_str()
        .expect("the URL of a test's server has a host");
    let host = host.replace("localhost", "127.0.0.1").parse();
    let host = host.expect("the server of a test is given by its address");
    let port = url.port().expect("the URL of a test's server has a port");
    SocketAddr::new(host, port)
}

fn parse(database_url: &str) -> reqwest::Url {
    reqwest::Url::parse(database_url).expect("a test has a proper database URL")
}

/// A port that is taken but refuses connections, for as long as this lives.
///
/// A port that was merely free a moment ago may belong to another test by now.
#[derive(Debug)]
pub struct ClosedPort {
    socket: Socket,
}

impl ClosedPort {
    /// Takes a port of 127.0.0.1.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "each one takes another port, which a default value would hide"
    )]
    pub fn new() -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Self { socket: bound(any) }
    }

    /// The address that refuses connections.
    ///
    /// # Panics
    /// Never: a bound socket has an address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        let address = self.socket.local_addr().ok();
        address
            .and_then(|address| address.as_socket())
            .expect("a bound socket has an address")
    }

    /// Listens on this port until the listener is dropped.
    fn listen(&self) -> TcpListener {
        let socket = bound(self.address());
        socket.listen(BACKLOG).expect("nobody else listens here");
        TcpListener::from_std(socket.into()).expect("the socket does not block")
    }
}

/// A socket that shares its address with others of its kind, of which one may listen.
fn bound(address: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("sockets can be made");
    socket
        .set_reuse_address(true)
        .and_then(|()| socket.set_nonblocking(true))
        .and_then(|()| socket.bind(&address.into()))
        .unwrap_or_else(|error| panic!("binding {address}: {error}"));
    socket
}
