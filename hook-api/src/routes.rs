//! Which route is answered by which handler.
//!
//! A handler has three steps: what is asked, the call, the answer.

use std::sync::Arc;

use axum::{
    Router,
    extract::{MatchedPath, Request, State},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::post,
};
use hook_common::problem::Code;
use http::{HeaderValue, StatusCode, header};

use crate::{app::App, problem::Refusal};

mod enqueue;

/// What the handlers share.
type Shared = State<Arc<App>>;
/// What they answer.
type Answer = Result<Response, Refusal>;

/// Every route of the product.
pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/jobs", post(enqueue::one))
        .route("/v1/jobs/batch", post(enqueue::batch))
        .route("/webhook", post(enqueue::legacy))
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

/// An answer of JSON text.
fn json(status: StatusCode, text: impl Into<axum::body::Body>) -> Response {
    let mut answer = Response::new(text.into());
    *answer.status_mut() = status;
    let kind = const { HeaderValue::from_static("application/json") };
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer.into_response()
}
