//! What the services share, against a real Postgres and in processes of its own.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod db;
mod histograms;
mod queue;
