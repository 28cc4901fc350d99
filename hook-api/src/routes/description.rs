//! The OpenAPI document.

use axum::extract::{Request, State};
use http::StatusCode;

use super::{Answer, Shared, json};
use crate::{admission::Access, openapi};

/// `GET /openapi.json`
pub(super) async fn get(State(app): Shared, request: Request) -> Answer {
    let _admitted = app.admission.without_body(request, Access::Enqueue)?;
    Ok(json(StatusCode::OK, openapi::text()))
}
