//! What `hook dev` says once everything is ready.

use std::{net::SocketAddr, path::PathBuf};

use serde_json::json;

use crate::output::Output;

/// Where everything is.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub(super) api: SocketAddr,
    pub(super) receiver: SocketAddr,
    /// Of the API, the worker and the janitor.
    pub(super) ops: [SocketAddr; 3],
    pub(super) database_url: String,
    pub(super) data: PathBuf,
}

pub(super) fn show(places: &Places, output: Output) {
    let Places {
        api,
        receiver,
        ops: [api_ops, worker_ops, janitor_ops],
        database_url,
        data,
    } = places;
    let data = data.display().to_string();
    let text = format!(
        r#"
hook dev is ready. Ctrl-C ends all of it; the data stays in {data}

  page       http://{api}/   what waits, what fails, what to do
  API        http://{api}
  receiver   http://{receiver}   /ok  /slow?ms=3000  /status/503  /flaky  /received
  health     http://{api_ops}/readyz    (worker {worker_ops}, janitor {janitor_ops})
  Postgres   {database_url}

Send a job:

  curl -H 'content-type: application/json' \
    -d '{{"url": "http://{receiver}/ok", "payload": {{"hello": "world"}}}}' \
    http://{api}/v1/jobs
"#
    );
    let value = json!({
        "api": format!("http://{api}"),
        "receiver": format!("http://{receiver}"),
        "ops": {
            "api": format!("http://{api_ops}"),
            "worker": format!("http://{worker_ops}"),
            "janitor": format!("http://{janitor_ops}"),
        },
        "database_url": database_url,
        "data": data,
    });
    output.show(&text, &value);
}
