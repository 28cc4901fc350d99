//! The accept loop of the ops listener.

use std::{
    collections::VecDeque, convert::Infallible, fs::File, io, net::TcpListener, os::fd::OwnedFd,
    sync::Arc, time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::{
    io::AsyncWriteExt as _,
    net::TcpStream,
    sync::oneshot,
    task::{AbortHandle, JoinSet},
    time::{MissedTickBehavior, interval},
};
use tracing::warn;

use super::{Surface, answer::answer};
use crate::lifecycle::within;

/// Connections at one time; the oldest is cut to make room for a new one.
const CONNECTIONS_MAX: usize = 64;
/// From accept to the last byte of the answer.
const CONNECTION_LIMIT: Duration = Duration::from_secs(5);
/// Descriptors in reserve: more than one, because another thread may be faster.
const SPARES: usize = 4;
/// How soon a client is looked for again while there are no descriptors.
const RETRY_EVERY: Duration = Duration::from_millis(20);
/// How often recorded durations are folded into buckets.
const UPKEEP_EVERY: Duration = Duration::from_secs(1);

/// Answers until `closed` fires or its sender is gone.
pub(super) async fn serve(
    listener: TcpListener,
    surface: Surface,
    mut spare: Spare,
    mut closed: oneshot::Receiver<()>,
) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            warn!(%error, "the ops listener cannot be polled");
            return;
        }
    };
    let surface = Arc::new(surface);
    let mut connections = Connections::default();
    let mut upkeep = interval(UPKEEP_EVERY);
    upkeep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = &mut closed => return,
            _ = upkeep.tick() => {
                surface.metrics.upkeep();
                spare.refill();
            }
            Some(ended) = connections.tasks.join_next() => spare.keep(ended.ok().flatten()),
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => connections.start(stream, &surface),
                // The process has used up its descriptors. Health must be told nevertheless: one
                // that is kept in reserve lets the waiting connection in. Linux says so also when
                // none waits, and then the reserve is not touched.
                Err(error) if is_out_of_descriptors(&error) => {
                    let let_in = is_awaited(&listener) && spare.give_up();
                    if !let_in && within(RETRY_EVERY, &mut closed).await.is_some() {
                        return;
                    }
                }
                Err(_) => {}
            },
        }
    }
}

/// The connections that are open, oldest first.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<Option<TcpStream>>,
    order: VecDeque<AbortHandle>,
}

impl Connections {
    fn start(&mut self, stream: TcpStream, surface: &Arc<Surface>) {
        self.order.retain(|handle| !handle.is_finished());
        if self.order.len() >= CONNECTIONS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            oldest.abort();
        }
        let surface = Arc::clone(surface);
        let handle = self.tasks.spawn(async move {
            // Whatever goes wrong on a connection concerns its client alone.
            within(CONNECTION_LIMIT, converse(stream, surface)).await?
        });
        self.order.push_back(handle);
    }
}

/// Answers one request and ends the connection, whose descriptor is given back still open.
async fn converse(stream: TcpStream, surface: Arc<Surface>) -> Option<TcpStream> {
    let service = service_fn(move |request| {
        let answered = answer(&surface, &request);
        async move { Ok::<_, Infallible>(answered) }
    });
    let ended = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(CONNECTION_LIMIT)
        .keep_alive(false)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service)
        .without_shutdown()
        .await;
    let mut stream = ended.ok()?.io.into_inner();
    stream.shutdown().await.ok()?;
    Some(stream)
}

/// Descriptors kept in reserve for the moment when the process has none left.
///
/// An answered connection goes back into the reserve without being closed in between: a busy
/// process would take what is free at once.
pub(super) struct Spare(Vec<OwnedFd>);

impl Spare {
    pub(super) fn new() -> Self {
        let mut spare = Self(Vec::with_capacity(SPARES));
        spare.refill();
        spare
    }

    fn give_up(&mut self) -> bool {
        self.0.pop().is_some()
    }

    fn keep(&mut self, answered: Option<TcpStream>) {
        if self.0.len() < SPARES
            && let Some(stream) = answered
        {
            self.0.extend(stream.into_std().map(OwnedFd::from));
        }
    }

    fn refill(&mut self) {
        while self.0.len() < SPARES
            && let Ok(file) = File::open("/dev/null")
        {
            self.0.push(file.into());
        }
    }
}

/// Whether a client waits to be let in.
fn is_awaited(listener: &tokio::net::TcpListener) -> bool {
    let mut asked = [PollFd::new(listener, PollFlags::IN)];
    poll(&mut asked, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    // EMFILE and ENFILE on every Unix.
    matches!(error.raw_os_error(), Some(23 | 24))
}
