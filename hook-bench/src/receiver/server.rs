//! The receiver's process: one thread, and a few microseconds for each request.
//!
//! `/ok`, `/delay/<ms>`, `/status/<code>` and `/hang` answer as they say; `/live/<name>` as was
//! last switched. `/control/…` is the driver's. Arrivals are kept in one array, so that noting one
//! allocates nothing.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::pending,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use bytes::Bytes;
use hook_common::lifecycle::Stop;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, Response, StatusCode, body::Incoming, server::conn::http1, service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::{BEFORE_NUMBER, Behaviour, Counts, NUMBER_DIGITS};
use crate::{clock, role};

type Reply = Response<Full<Bytes>>;

/// What is known; one lock, held for nanoseconds by one thread.
#[derive(Default)]
struct State {
    /// When each job arrived first; 0 if it did not.
    arrivals: Vec<u64>,
    counts: Counts,
    live: HashMap<String, Behaviour>,
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<State>>);

/// Counts a request as open for as long as it lives, also when its client gives up.
struct Open(Shared);

/// Serves on `addresses` addresses until `stop` drains.
pub(crate) async fn serve(addresses: u16, stop: Stop) -> anyhow::Result<()> {
    let shared = Shared::default();
    let mut tasks = JoinSet::new();
    let mut port = 0;
    for index in 0..addresses {
        let [high, low] = (index + 1).to_be_bytes();
        let address = SocketAddr::from((Ipv4Addr::new(127, 0, high, low), port));
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("listening on {address}"))?;
        let bound = listener
            .local_addr()
            .context("asking for the own address")?;
        if port == 0 {
            port = bound.port();
        }
        tasks.spawn(accept(listener, shared.clone()));
    }
    role::announce(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    stop.draining().await;
    tasks.shutdown().await;
    Ok(())
}

async fn accept(listener: TcpListener, shared: Shared) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(converse(stream, shared.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn converse(stream: TcpStream, shared: Shared) {
    // Without it only the last bytes of an answer wait a little longer.
    drop(stream.set_nodelay(true));
    let service = service_fn(|request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(shared.answer(request).await) }
    });
    // Clients come and go as they like.
    drop(
        http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .await,
    );
}

impl Shared {
    async fn answer(&self, request: Request<Incoming>) -> Reply {
        let (head, body) = request.into_parts();
        let path = head.uri.path().trim_start_matches('/');
        if let Some(order) = path.strip_prefix("control/") {
            return self.control(order);
        }
        let Ok(body) = body.collect().await else {
            return reply(StatusCode::BAD_REQUEST, Bytes::new());
        };
        self.note(&body.to_bytes());
        let _open = self.open();
        match self.behaviour(path) {
            Some(Behaviour::Ok) => reply(StatusCode::OK, Bytes::new()),
            Some(Behaviour::Delay(ms)) => {
                clock::pause(Duration::from_millis(ms)).await;
                reply(StatusCode::OK, Bytes::new())
            }
            Some(Behaviour::Status(code)) => {
                let status = StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_REQUEST);
                reply(status, Bytes::new())
            }
            Some(Behaviour::Hang) => pending().await,
            None => reply(StatusCode::NOT_FOUND, Bytes::new()),
        }
    }

    fn behaviour(&self, path: &str) -> Option<Behaviour> {
        match path.strip_prefix("live/") {
            Some(name) => Some(self.lock().live.get(name).copied().unwrap_or(Behaviour::Ok)),
            None => Behaviour::parse(path),
        }
    }

    /// Notes the arrival of the job whose number is in the body.
    fn note(&self, body: &[u8]) {
        let now = clock::now();
        let mut state = self.lock();
        let State {
            arrivals, counts, ..
        } = &mut *state;
        match number_in(body).and_then(|number| arrivals.get_mut(number)) {
            Some(arrival) if *arrival == 0 => {
                *arrival = now;
                counts.jobs += 1;
            }
            Some(_) => counts.repeats += 1,
            None => counts.strangers += 1,
        }
    }

    fn open(&self) -> Open {
        let counts = &mut self.lock().counts;
        counts.open += 1;
        counts.open_max = counts.open_max.max(counts.open);
        Open(self.clone())
    }

    fn control(&self, order: &str) -> Reply {
        let ok = |body: Vec<u8>| reply(StatusCode::OK, body.into());
        let mut state = self.lock();
        match order.split_once('/') {
            None if order == "counts" => ok(serde_json::to_vec(&state.counts).unwrap_or_default()),
            None if order == "arrivals" => {
                let bytes = state.arrivals.iter().flat_map(|nanos| nanos.to_le_bytes());
                ok(bytes.collect())
            }
            Some(("reset", jobs)) => {
                let Ok(jobs) = jobs.parse() else {
                    return reply(StatusCode::BAD_REQUEST, Bytes::new());
                };
                state.arrivals = vec![0; jobs];
                let open = state.counts.open;
                state.counts = Counts {
                    open,
                    open_max: open,
                    ..Counts::default()
                };
                ok(Vec::new())
            }
            Some(("switch", rest)) => {
                let order = rest.split_once('/');
                let order = order.and_then(|(name, path)| Some((name, Behaviour::parse(path)?)));
                let Some((name, behaviour)) = order else {
                    return reply(StatusCode::BAD_REQUEST, Bytes::new());
                };
                state.live.insert(name.to_owned(), behaviour);
                ok(Vec::new())
            }
            None | Some(_) => reply(StatusCode::NOT_FOUND, Bytes::new()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.lock().counts.open -= 1;
    }
}

fn number_in(body: &[u8]) -> Option<usize> {
    let digits = body.strip_prefix(BEFORE_NUMBER.as_bytes())?;
    let digits = digits.get(..NUMBER_DIGITS)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn reply(status: StatusCode, body: Bytes) -> Reply {
    let mut reply = Response::new(Full::new(body));
    *reply.status_mut() = status;
    reply
}
