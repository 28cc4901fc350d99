//! The accept loop of the ops listener.

use std::{
    collections::VecDeque, convert::Infallible, fs::File, io, net::TcpListener, sync::Arc,
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
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
/// How often recorded durations are folded into buckets.
const UPKEEP_EVERY: Duration = Duration::from_secs(2);

/// Answers until `closed` fires or its sender is gone.
pub(super) async fn serve(
    listener: TcpListener,
    surface: Surface,
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
    let mut spare = Spare::new();
    loop {
        tokio::select! {
            _ = &mut closed => return,
            _ = upkeep.tick() => {
                surface.metrics.upkeep();
                spare.refill();
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => connections.start(stream, &surface),
                // The process has used up its descriptors. Health must be told nevertheless: give
                // up the one kept in reserve, which lets the waiting connection in.
                Err(error) if is_out_of_descriptors(&error) => {
                    if !spare.give_up() {
                        within(Duration::from_millis(20), &mut closed).await;
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
    tasks: JoinSet<()>,
    order: VecDeque<AbortHandle>,
}

impl Connections {
    fn start(&mut self, stream: TcpStream, surface: &Arc<Surface>) {
        while self.tasks.try_join_next().is_some() {}
        self.order.retain(|handle| !handle.is_finished());
        if self.order.len() >= CONNECTIONS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            oldest.abort();
        }
        let surface = Arc::clone(surface);
        let handle = self.tasks.spawn(async move {
            // Whatever goes wrong on a connection concerns its client alone.
            drop(within(CONNECTION_LIMIT, converse(stream, surface)).await);
        });
        self.order.push_back(handle);
    }
}

async fn converse(stream: TcpStream, surface: Arc<Surface>) -> Result<(), hyper::Error> {
    let service = service_fn(move |request| {
        let answered = answer(&surface, &request);
        async move { Ok::<_, Infallible>(answered) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(CONNECTION_LIMIT)
        .keep_alive(false)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

/// A descriptor kept in reserve for the moment when the process has none left.
struct Spare(Option<File>);

impl Spare {
    fn new() -> Self {
        Self(File::open("/dev/null").ok())
    }

    fn give_up(&mut self) -> bool {
        self.0.take().is_some()
    }

    fn refill(&mut self) {
        if self.0.is_none() {
            *self = Self::new();
        }
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    // EMFILE and ENFILE on every Unix.
    matches!(error.raw_os_error(), Some(23 | 24))
}
