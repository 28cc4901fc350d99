//! The queue against a real Postgres: every statement, every race, and the plans they run on.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod kit;
mod lifecycle;
mod looks;
mod migrations;
mod orphans;
mod outbox;
mod plans;
mod properties;
mod races;
mod rehearsals;
mod targets;
