//! The API as its clients see it: raw sockets on one side, rows in a real Postgres on the other.

#![cfg(test)] // helpers are test code, too

mod audit;
mod auth;
mod away;
mod batch;
mod enqueue;
mod hang_up;
mod idempotency;
mod json;
mod kit;
mod manage;
mod replay;
mod secrets;
mod shutdown;
mod targets;
mod wire;
