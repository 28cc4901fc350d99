//! The OpenAPI document: what every route takes and answers.
//!
//! It is made from the table that the router is made from (`routes::all`), and from the tables of
//! codes and words of `hook-common`, so it cannot name a route, a code or a status that is not
//! there. `docs/openapi.json` is a copy, which a test keeps equal.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::routes;

pub(crate) mod operation;
pub(crate) mod parts;
mod schemas;

/// The document as it is served.
static TEXT: LazyLock<String> = LazyLock::new(|| {
    let mut text = format!("{:#}", document());
    text.push('\n');
    text
});

/// Returns the document as text.
#[must_use]
pub fn text() -> &'static str {
    &TEXT
}

fn document() -> Value {
    let mut paths = Map::new();
    for route in routes::all() {
        route.operation.add_to(&mut paths);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "hook",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Enqueue webhooks and look after them. Errors are problem documents \
                (RFC 9457) with a stable `code`. Times are RFC 3339 in UTC. After a 503 or a 429, \
                repeat with the same idempotency key.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        // Without tokens, everybody on loopback may do everything.
        "security": [{"bearer": []}, {"basic": []}, {}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {
                    "type": "http",
                    "scheme": "basic",
                    "description": "The token as password, for browsers; any user name.",
                },
            },
            "responses": operation::refusals(),
            "schemas": schemas::all(),
        },
    })
}
