//! Settings: where they come from, how their text is read, and how wrong ones are reported.
//!
//! Every setting of every program stands in one table ([`settings::SETTINGS`]). From it come the
//! defaults, the flags, `--help`, the check for unknown `HOOK_…` variables and
//! `docs/configuration.md`. A [`Reader`] goes on after a bad value, so that one message names all
//! of them; nothing starts on a bad setting. This module holds no fields of any one binary, and
//! it is the only reader of the process environment.

use std::{net::SocketAddr, time::Duration};

use crate::logging;

pub mod command_line;
pub mod document;
pub mod parse;
pub mod secret;
pub mod settings;

mod reader;

#[cfg(test)]
mod tests;

pub use reader::{BadSettings, Reader};
pub use secret::Secret;
pub use settings::Binary;

/// The settings that the three services share.
#[derive(Clone, Debug)]
pub struct CommonConfig {
    /// Which service this is.
    pub binary: Binary,
    /// Where the queue is; may lead through a transaction pooler.
    pub database_url: Secret<String>,
    /// A way to Postgres past any pooler, for migrations and `LISTEN`.
    pub database_direct_url: Option<Secret<String>>,
    /// Connections of this process to Postgres.
    pub db_pool_max: usize,
    /// Postgres ends a statement that runs longer; the last net under our own deadlines.
    pub db_statement_timeout: Duration,
    /// Time for what is in hand, from the first signal on.
    pub shutdown_grace: Duration,
    /// How long to wait for Postgres and its schema at start; `None` is for ever.
    pub startup_timeout: Option<Duration>,
    /// Where `/livez`, `/readyz` and `/metrics` are.
    pub ops_listen: SocketAddr,
    /// What is logged.
    pub log: logging::Filter,
    /// How it looks; `None` decides by the terminal.
    pub log_format: Option<logging::Format>,
}

impl CommonConfig {
    /// Reads the shared settings; bad ones are left with the reader.
    pub fn read(reader: &mut Reader<'_>) -> Self {
        Self {
            binary: reader.binary(),
            database_url: reader.postgres_url("DATABASE_URL").unwrap_or_default(),
            database_direct_url: reader.postgres_url("HOOK_DATABASE_DIRECT_URL"),
            db_pool_max: reader.count("HOOK_DB_POOL_MAX", 1..=1000),
            db_statement_timeout: reader.duration("HOOK_DB_STATEMENT_TIMEOUT"),
            shutdown_grace: reader.duration_or_zero("HOOK_SHUTDOWN_GRACE"),
            startup_timeout: reader.optional_duration("HOOK_STARTUP_TIMEOUT"),
            ops_listen: reader.address("HOOK_OPS_LISTEN"),
            log: reader
                .parsed("HOOK_LOG", "", |text| {
                    logging::Filter::parse(text).map_err(|error| error.to_string())
                })
                .unwrap_or_default(),
            log_format: reader.parsed("HOOK_LOG_FORMAT", "", |text| {
                logging::Format::from_word(text).ok_or_else(|| "text or json".to_owned())
            }),
        }
    }
}
