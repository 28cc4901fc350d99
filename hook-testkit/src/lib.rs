//! What the tests of this workspace are built from.
//!
//! Everything here is a real thing on a loopback socket or a real process: a scripted receiver,
//! a stub DNS server, a proxy before Postgres, the product's own binaries. There are no mocks, so
//! that a test survives a rewrite of what it tests. Nothing waits without a bound.

pub mod browser;
pub mod certs;
pub mod db;
pub mod dns;
pub mod documents;
pub mod history;
pub mod process;
pub mod prometheus;
pub mod proxy;
pub mod raw;
pub mod rng;
pub mod sink;
pub mod skew;
pub mod stack;
pub mod wait;
