//! The ground that every crate stands on: domain types, pure policies, the queue and process plumbing.

pub mod address;
pub mod headers;
pub mod job;
pub mod migrate;
pub mod problem;
pub mod queue;
pub mod target;
pub mod url_rules;
