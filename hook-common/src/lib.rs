//! The ground that every crate stands on: domain types, pure policies, the queue and process plumbing.

pub mod address;
pub mod config;
pub mod db;
pub mod envelope;
pub mod gate;
pub mod headers;
pub mod job;
pub mod lifecycle;
pub mod logging;
pub mod metrics;
pub mod migrate;
pub mod ops;
pub mod periodic;
pub mod problem;
pub mod queue;
pub mod replays;
pub mod retry;
pub mod retry_after;
pub mod seal;
pub mod secret_value;
pub mod start;
pub mod target;
pub mod url_rules;
