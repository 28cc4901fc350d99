//! The worker: leases jobs, delivers them and records what came of each attempt.

pub mod address_guard;
pub mod classify;
pub mod client;
pub mod delivery;
pub mod egress_proxy;
mod outgoing;
mod resolver;
mod retry_after;
pub mod tls;
