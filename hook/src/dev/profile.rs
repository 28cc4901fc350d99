//! The settings of the services under `hook dev`: the environment's, with defaults for a machine
//! on which somebody tries things out.

use std::time::Duration;

use hook_common::{
    config::{Binary, Reader, command_line::Vars, parse},
    logging::{Filter, Format},
};

use super::banner::Places;
use crate::exit::Failure;

/// Settings that hold unless the environment says otherwise.
const DEFAULTS: &[(&str, &str)] = &[
    // The receiver, and whatever else somebody runs here.
    ("HOOK_ALLOW_NETS", "127.0.0.0/8,::1/128"),
    // Retries within the patience of somebody who watches.
    ("HOOK_RETRY_SCHEDULE", "1s,2s,5s,10s,30s,1m"),
    ("HOOK_PENALTY_REFRESH", "5s"),
    ("HOOK_JANITOR_INTERVAL", "5s"),
    ("HOOK_DB_POOL_MAX", "8"),
];

/// Time for what is in hand after Ctrl-C: nobody wants to wait for a slow demo.
const GRACE: &str = "5s";

/// Warnings and errors only: what arrives at the receiver is what somebody wants to see.
const LOG: &str = "warn";

/// The settings of one service.
pub(super) fn vars(base: &Vars, binary: Binary, places: &Places, secret_key: &str) -> Vars {
    let mut vars = base.clone();
    let [api, worker, janitor] = places.ops;
    let ops = match binary {
        Binary::Api | Binary::Hook => api,
        Binary::Worker => worker,
        Binary::Janitor => janitor,
    };
    vars.set("HOOK_OPS_LISTEN", ops.to_string());
    vars.set("HOOK_API_LISTEN", places.api.to_string());
    vars.set("DATABASE_URL", places.database_url.clone());
    // Another database's, if it is set.
    vars.set("HOOK_DATABASE_DIRECT_URL", "");
    let ours = [
        ("HOOK_SECRET_KEY", secret_key),
        ("HOOK_SHUTDOWN_GRACE", GRACE),
    ];
    for (name, text) in DEFAULTS.iter().chain(&ours) {
        if is_unset(&vars, name) {
            vars.set(*name, *text);
        }
    }
    vars
}

/// What is logged, and how it looks.
pub(super) fn log(vars: &Vars) -> Result<(Filter, Format), Failure> {
    let mut reader = Reader::new(Binary::Hook, |name| {
        let set = vars.get(name).filter(|text| !text.is_empty());
        set.or_else(|| (name == "HOOK_LOG").then(|| LOG.to_owned()))
    });
    let filter = reader.parsed("HOOK_LOG", "", |text| {
        Filter::parse(text).map_err(|error| error.to_string())
    });
    let format = reader.parsed("HOOK_LOG_FORMAT", "", |text| {
        Format::from_word(text).ok_or_else(|| "text or json".to_owned())
    });
    reader.finish()?;
    Ok((
        filter.unwrap_or_default(),
        format.unwrap_or_else(Format::for_this_terminal),
    ))
}

/// Time for what is in hand after the first signal.
pub(super) fn grace(vars: &Vars) -> Result<Duration, Failure> {
    let text = vars.get("HOOK_SHUTDOWN_GRACE");
    let text = text.filter(|text| !text.is_empty());
    let text = text.unwrap_or_else(|| GRACE.to_owned());
    parse::duration(&text)
        .map_err(|form| Failure::usage(format!("HOOK_SHUTDOWN_GRACE = {text:?}: expected {form}")))
}

fn is_unset(vars: &Vars, name: &str) -> bool {
    vars.get(name).is_none_or(|text| text.is_empty())
}
