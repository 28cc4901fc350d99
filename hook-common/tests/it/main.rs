//! What the services share, against a real Postgres.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod db;
mod queue;
