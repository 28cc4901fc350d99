//! Finds or fetches Postgres and runs a private server on this machine.
//!
//! `hook dev` and every test need a real Postgres that nobody had to set up. This crate gives one,
//! as a handle that owns the server: when the owner goes, by whatever way, the server goes too.
//!
//! Everything here blocks and depends on no async runtime, so that one server can be shared by
//! tests on many runtimes. Async code calls it inside `tokio::task::spawn_blocking`.

mod account;
mod claim;
mod cluster;
mod directories;
pub mod fetch;
pub mod find;
mod freeze;
mod guard;
mod launch;
mod occupant;
pub mod options;
mod seed;
pub mod server;
mod wait;
