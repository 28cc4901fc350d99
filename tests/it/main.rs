//! Whole-system tests: real binaries, a real Postgres, raw sockets.

#![expect(
    clippy::print_stdout,
    reason = "seeds and figures are part of a test's report"
)]

mod kills;
mod kit;
mod retries;
mod tidy;
mod whole_path;
