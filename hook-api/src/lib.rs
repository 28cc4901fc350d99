//! The HTTP producer API: validate, insert, answer.
//!
//! A request's way: `listener` (accept, limits of the connection) → `front` (token, catch-all for
//! panics, metrics) → `routes` (extract, call, answer) → `group_commit` (many requests, one
//! statement) → `wake` (workers learn of new jobs). An answer `202` is sent only after the commit.
//!
//! Deliberately absent: any decision about deliveries, and state that another process would need.

mod admission;
mod app;
mod audit;
mod auth;
pub mod config;
mod connection;
mod depth;
mod fields;
mod front;
mod group_commit;
mod kept;
mod known_secrets;
mod listener;
mod observe;
pub mod openapi;
mod penalties;
mod problem;
mod query;
mod routes;
pub mod service;
mod view;
mod wake;
