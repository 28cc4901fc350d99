//! `hook receiver`: a receiver to send to, with knobs in its paths, and a memory of what arrived.
//! `hook dev` runs it beside the services.
//!
//! It is for trying things out: it keeps the last requests in memory, prints one line for each,
//! and never fails a request that it does not understand.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, Request, State},
    http::{HeaderMap, StatusCode, Uri},
    routing::{any, get},
};
use clap::Args;
use hook_common::lifecycle::{Signals, Stop};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::oneshot, task::JoinSet, time::Instant};
use tracing::warn;

use crate::{exit::Failure, output::Output};

/// Requests that are remembered.
const REMEMBERED_MAX: usize = 1000;

/// Bytes of a body that are remembered.
const BODY_BYTES_MAX: usize = 4096;

/// The longest that `/slow` waits; attempts end sooner.
const SLOW_MAX: Duration = Duration::from_secs(120);

/// Attempts of a job that `/flaky` fails.
const FLAKY_FAILURES: u32 = 2;

const HELP: &str = "\
A receiver to try things out with. Every path takes any method.
  /ok            answers 200
  /slow?ms=3000  answers 200 after 3 s
  /status/503    answers that status
  /flaky         fails the first two attempts of a job, then answers 200
  /received      what arrived, as JSON, newest last (GET); forget it (DELETE)
  /readyz        answers 200 and is not remembered, for hook health
";

#[derive(Args, Debug)]
pub(crate) struct ReceiverArgs {
    /// Where to listen; port 0 takes any free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:3380")]
    listen: SocketAddr,
}

/// Receives until a signal comes.
pub(crate) fn run(args: ReceiverArgs, output: Output) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime")?;
    runtime.block_on(async {
        let signals = Signals::install().context("catching signals")?;
        let listener = TcpListener::bind(args.listen).await;
        let listener = listener.with_context(|| format!("listening on {}", args.listen))?;
        let address = listener
            .local_addr()
            .context("asking for the own address")?;
        let stop = Stop::manual(Duration::ZERO);
        let receiver = Receiver::start(listener, output, stop.clone());
        let text = format!("listening on http://{address}; /received shows what arrived");
        output.show(&text, &json!({ "receiver": format!("http://{address}") }));
        tokio::select! {
            () = stop.draining() => {}
            () = signals.run(stop.clone()) => unreachable!("signals are awaited for ever"),
        }
        receiver.stop().await;
        Ok(())
    })
}

/// The running receiver.
pub(crate) struct Receiver {
    tasks: JoinSet<()>,
    close: oneshot::Sender<()>,
}

/// One request that arrived.
#[derive(Clone, Debug, Serialize)]
struct Arrival {
    /// Since the start of the receiver.
    at_ms: u128,
    method: String,
    path: String,
    id: Option<String>,
    attempt: Option<u32>,
    status: u16,
    headers: Vec<(String, String)>,
    bytes: usize,
    body: String,
}

#[derive(Clone)]
struct Shared {
    begun: Instant,
    arrivals: Arc<Mutex<VecDeque<Arrival>>>,
    output: Output,
    stop: Stop,
}

impl Receiver {
    /// Answers on `listener` until told to stop. Slow answers end early when `stop` drains.
    pub(crate) fn start(listener: TcpListener, output: Output, stop: Stop) -> Self {
        let shared = Shared {
            begun: Instant::now(),
            arrivals: Arc::default(),
            output,
            stop,
        };
        let router = Router::new()
            .route("/", get(|| async { HELP }))
            .route("/received", get(received).delete(forget))
            .route("/readyz", get(|| async { "ok\n" }))
            .route("/status/{code}", any(status))
            .route("/slow", any(slow))
            .route("/flaky", any(flaky))
            .fallback(any(ok))
            .with_state(shared);
        let (close, closed) = oneshot::channel::<()>();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let served = axum::serve(listener, router).with_graceful_shutdown(async {
                drop(closed.await);
            });
            if let Err(error) = served.await {
                warn!(%error, "the receiver ended");
            }
        });
        Self { tasks, close }
    }

    /// Stops listening; connections that still talk are cut.
    pub(crate) async fn stop(mut self) {
        drop(self.close);
        let graceful = self.tasks.join_next();
        if hook_common::lifecycle::within(Duration::from_millis(200), graceful)
            .await
            .is_none()
        {
            self.tasks.shutdown().await;
        }
    }
}

async fn ok(State(shared): State<Shared>, request: Request) -> StatusCode {
    shared.note(request, StatusCode::OK).await
}

async fn status(
    State(shared): State<Shared>,
    Path(code): Path<String>,
    request: Request,
) -> StatusCode {
    let code = code.parse().ok();
    let code = code.and_then(|code| StatusCode::from_u16(code).ok());
    // An interim status would not end the request.
    let code = code.filter(|code| !code.is_informational());
    shared
        .note(request, code.unwrap_or(StatusCode::BAD_REQUEST))
        .await
}

async fn slow(State(shared): State<Shared>, uri: Uri, request: Request) -> StatusCode {
    let ms = uri.query().and_then(|query| {
        let mut pairs = query.split('&');
        pairs.find_map(|pair| pair.strip_prefix("ms=")?.parse().ok())
    });
    let wait = Duration::from_millis(ms.unwrap_or(3000)).min(SLOW_MAX);
    shared.stop.pause(wait).await;
    shared.note(request, StatusCode::OK).await
}

async fn flaky(State(shared): State<Shared>, request: Request) -> StatusCode {
    let fails = attempt_of(request.headers()).is_none_or(|attempt| attempt <= FLAKY_FAILURES);
    let status = if fails {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    };
    shared.note(request, status).await
}

async fn received(State(shared): State<Shared>) -> Json<Value> {
    let arrivals: Vec<Arrival> = shared.lock().iter().cloned().collect();
    Json(json!({ "received": arrivals }))
}

async fn forget(State(shared): State<Shared>) -> StatusCode {
    shared.lock().clear();
    StatusCode::NO_CONTENT
}

impl Shared {
    /// Remembers and prints a request, and gives its answer.
    async fn note(&self, request: Request, status: StatusCode) -> StatusCode {
        let (head, body) = request.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await;
        let body = body.unwrap_or_else(|_| Bytes::new());
        let kept = &body[..body.len().min(BODY_BYTES_MAX)];
        let headers = head.headers.iter();
        let arrival = Arrival {
            at_ms: self.begun.elapsed().as_millis(),
            method: head.method.to_string(),
            path: head.uri.to_string(),
            id: text_of(&head.headers, "webhook-id"),
            attempt: attempt_of(&head.headers),
            status: status.as_u16(),
            headers: headers
                .map(|(name, value)| {
                    let value = String::from_utf8_lossy(value.as_bytes());
                    (name.to_string(), value.into_owned())
                })
                .collect(),
            bytes: body.len(),
            body: String::from_utf8_lossy(kept).into_owned(),
        };
        self.print(&arrival);
        let mut arrivals = self.lock();
        if arrivals.len() >= REMEMBERED_MAX {
            arrivals.pop_front();
        }
        arrivals.push_back(arrival);
        status
    }

    fn print(&self, arrival: &Arrival) {
        let attempt = arrival.attempt.map_or_else(
            || "no attempt number".to_owned(),
            |attempt| format!("attempt {attempt}"),
        );
        let text = format!(
            "received  {} {}  {}  {attempt}  {} bytes  → {}",
            arrival.method,
            arrival.path,
            arrival.id.as_deref().unwrap_or("-"),
            arrival.bytes,
            arrival.status
        );
        self.output.show(&text, &json!({ "received": arrival }));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Arrival>> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn attempt_of(headers: &HeaderMap) -> Option<u32> {
    text_of(headers, "hook-attempt")?.parse().ok()
}

fn text_of(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    Some(value.to_owned())
}
