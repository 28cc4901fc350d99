//! The janitor's steps on a real Postgres. Nothing here waits for a timer: rows are aged by SQL,
//! and each test calls the steps itself.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests may fail loudly, as tests may"
)]

mod measure;
mod purge;
mod races;
mod reap;
mod replay;
mod support;
mod tally;
