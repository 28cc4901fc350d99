//! The operations page: one HTML shell, one script, one style sheet, all in this binary.
//!
//! The page asks the same routes as every other client. It holds no text of its own making from
//! outside: the script sets text only as text, and the policy below lets no script run but ours.

use axum::{
    body::Body,
    extract::{Request, State},
    response::Response,
};
use http::{HeaderName, HeaderValue, header};

use super::{Answer, Shared};
use crate::{admission::Access, app::App};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What every part of the page is sent with.
const HEADERS: [(HeaderName, &str); 4] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-cache"),
];

/// `GET /`
pub(super) async fn html(State(app): Shared, request: Request) -> Answer {
    part(
        &app,
        request,
        "text/html; charset=utf-8",
        include_str!("page/page.html"),
    )
}

/// `GET /page.js`
pub(super) async fn script(State(app): Shared, request: Request) -> Answer {
    part(
        &app,
        request,
        "text/javascript; charset=utf-8",
        include_str!("page/page.js"),
    )
}

/// `GET /page.css`
pub(super) async fn style(State(app): Shared, request: Request) -> Answer {
    part(
        &app,
        request,
        "text/css; charset=utf-8",
        include_str!("page/page.css"),
    )
}

fn part(app: &App, request: Request, kind: &'static str, text: &'static str) -> Answer {
    let _admitted = app.admission.without_body(request, Access::Manage)?;
    let mut answer = Response::new(Body::from(text));
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(answer)
}
