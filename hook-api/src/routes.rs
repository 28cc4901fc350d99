//! Which route is answered by which handler.
//!
//! A handler has three steps: what is asked, the call, the answer.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{MatchedPath, Path, Request, State, rejection::PathRejection},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
};
use hook_common::problem::{Code, Problem};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::Value;
use tracing::error;

use crate::{app::App, problem::Refusal};

mod audit;
mod description;
mod enqueue;
mod jobs;
mod overview;
mod page;
mod queues;
mod replays;
mod secrets;
mod table;
mod targets;

pub(crate) use replays::{REPLAY_JOBS, REPLAY_JOBS_MAX, REPLAY_RATE, REPLAY_RATE_MAX};
use table::Route;
pub(crate) use table::all;

const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// What the handlers share.
type Shared = State<Arc<App>>;
/// What they answer.
type Answer = Result<Response, Refusal>;

/// Every route of the product.
pub(crate) fn router(app: Arc<App>) -> Router {
    let serve =
        |router: Router<Arc<App>>, route: Route| router.route(route.operation.path, route.handler);
    all()
        .into_iter()
        .fold(Router::new(), serve)
        .route_layer(from_fn(keep_pattern))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .with_state(app)
}

/// Leaves the route's pattern with the answer, for the metrics.
async fn keep_pattern(matched: MatchedPath, request: Request, next: Next) -> Response {
    let mut answer = next.run(request).await;
    answer.extensions_mut().insert(matched);
    answer
}

async fn not_found() -> Refusal {
    Refusal::not_found("there is no such route").closing()
}

async fn method_not_allowed() -> Refusal {
    let detail = "the route exists, but not with this method";
    Refusal::new(Code::MethodNotAllowed, detail).closing()
}

/// The part of the path that stands for a name.
fn segment(path: Result<Path<String>, PathRejection>) -> Result<String, Refusal> {
    // It is refused when its escapes are not UTF-8, and no name has such a spelling.
    path.map(|Path(segment)| segment)
        .map_err(|_| Refusal::not_found("there is nothing of this name"))
}

/// The `Idempotency-Key` header, if there is one.
fn key_of(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else {
        return Ok(None);
    };
    let key = std::str::from_utf8(value.as_bytes()).map_err(|_| {
        let detail = "the Idempotency-Key header must be UTF-8";
        Problem::new(Code::FieldInvalid, "/idempotency_key", detail)
    })?;
    Ok(Some(key))
}

/// What a request asked for, once it was found to be good.
fn asked(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_default()
}

/// An answer without a body.
fn empty(status: StatusCode) -> Response {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = status;
    answer
}

/// An answer with a value of ours as JSON.
fn json_of(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => json(status, text),
        Err(error) => {
            error!(%error, "an answer cannot be written as JSON");
            Refusal::internal().into_response()
        }
    }
}

/// An answer of JSON text.
fn json(status: StatusCode, text: impl Into<Body>) -> Response {
    let mut answer = Response::new(text.into());
    *answer.status_mut() = status;
    let kind = const { HeaderValue::from_static("application/json") };
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}
