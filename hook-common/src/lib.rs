//! The ground that every crate stands on: domain types, pure policies, the queue and process plumbing.

pub mod job;
pub mod migrate;
pub mod target;
