//! Finds, fetches, starts, stops, kills and shares real Postgres servers.

mod fetch;
mod find;
mod owner;
mod running;
mod support;
