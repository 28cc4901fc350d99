//! The first and the last code of ours that a request meets.
//!
//! On the way in: who sent it. On the way out: how long it took, and that even a panic is
//! answered. What lies between is the router's.

use std::{convert::Infallible, panic::AssertUnwindSafe, pin::Pin, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::MatchedPath,
    response::{IntoResponse, Response},
};
use futures_util::FutureExt as _;
use hook_common::problem::Code;
use http::{HeaderMap, HeaderName, HeaderValue, Request, header};
use hyper::{
    body::{Body as _, Incoming},
    service::Service,
};
use tokio::time::Instant;
use tower::Service as _;

use crate::{
    audit::Remote,
    auth::Tokens,
    connection::{Clock, Phase},
    observe::Requests,
    problem::Refusal,
};

/// Headers of which a second one would leave it open which of them counts.
const ONCE: [HeaderName; 5] = [
    header::AUTHORIZATION,
    header::CONTENT_ENCODING,
    header::CONTENT_TYPE,
    header::HOST,
    HeaderName::from_static("idempotency-key"),
];

/// What stands before the router; cheap to clone.
#[derive(Clone)]
pub(crate) struct Front {
    shared: Arc<Shared>,
}

struct Shared {
    router: Router,
    tokens: Tokens,
    requests: Requests,
}

/// The front as one connection sees it.
pub(crate) struct ConnectionFront {
    front: Front,
    clock: Arc<Clock>,
    remote: Remote,
}

impl Front {
    pub(crate) fn new(router: Router, tokens: Tokens) -> Self {
        Self {
            shared: Arc::new(Shared {
                router,
                tokens,
                requests: Requests::default(),
            }),
        }
    }

    /// The service of one connection from `remote`, which stamps `clock`.
    pub(crate) fn for_connection(&self, clock: Arc<Clock>, remote: Remote) -> ConnectionFront {
        ConnectionFront {
            front: self.clone(),
            clock,
            remote,
        }
    }

    async fn answer(self, remote: Remote, mut request: Request<Incoming>) -> Response {
        let begun = Instant::now();
        let shared = &*self.shared;
        let is_chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
        let mut answer = match shared.admit(&request) {
            // Nobody will read the body, so nothing can follow it.
            Err(refusal) if !request.body().is_end_stream() => refusal.closing().into_response(),
            Err(refusal) => refusal.into_response(),
            Ok(grant) => {
                request.extensions_mut().insert(grant);
                request.extensions_mut().insert(remote);
                let mut router = shared.router.clone();
                let routed = AssertUnwindSafe(router.call(request)).catch_unwind();
                match routed.await {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(never)) => match never {},
                    // The panic hook has counted and logged it.
                    Err(_) => Refusal::internal().closing().into_response(),
                }
            }
        };
        if is_chunked {
            // A proxy before us that believed a Content-Length beside it would see the rest of
            // the body as the next request. On a closed connection there is none.
            let close = const { HeaderValue::from_static("close") };
            answer.headers_mut().insert(header::CONNECTION, close);
        }
        let route = answer.extensions_mut().remove::<MatchedPath>();
        let label = route.as_ref().map_or("unmatched", MatchedPath::as_str);
        shared
            .requests
            .answered(label, answer.status(), begun.elapsed());
        answer
    }
}

impl Shared {
    /// What is judged before anything is done.
    fn admit(&self, request: &Request<Incoming>) -> Result<crate::auth::Grant, Refusal> {
        let headers = request.headers();
        refuse_duplicates(headers)?;
        let grant = self.tokens.judge(request.method(), headers)?;
        refuse_cross_site(request)?;
        Ok(grant)
    }
}

impl Service<Request<Incoming>> for ConnectionFront {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.clock.enter(Phase::Serving);
        let (front, clock) = (self.front.clone(), Arc::clone(&self.clock));
        let remote = self.remote;
        Box::pin(async move {
            let answer = front.answer(remote, request).await;
            clock.enter(Phase::Idle);
            Ok(answer)
        })
    }
}

fn refuse_duplicates(headers: &HeaderMap) -> Result<(), Refusal> {
    // Most requests have as many names as values, which costs nothing to see.
    if headers.len() == headers.keys_len() {
        return Ok(());
    }
    for name in &ONCE {
        if headers.get_all(name).iter().nth(1).is_some() {
            let detail = "a header that may come once came twice";
            return Err(Refusal::new(Code::DuplicateHeader, detail));
        }
    }
    Ok(())
}

/// Refuses requests that a browser sends on behalf of another site: it may add a password that
/// the user has typed for this one. Producers send none of these headers.
fn refuse_cross_site(request: &Request<Incoming>) -> Result<(), Refusal> {
    if request.method().is_safe() {
        return Ok(());
    }
    let headers = request.headers();
    let is_foreign = headers
        .get("sec-fetch-site")
        .is_some_and(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"));
    if is_foreign {
        let detail = "requests of other sites are not accepted";
        return Err(Refusal::new(Code::Forbidden, detail));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
