//! Whole-system tests: real binaries, a real Postgres, raw sockets.

#![expect(
    clippy::print_stdout,
    reason = "seeds and figures are part of a test's report"
)]

mod canary;
mod clocks;
mod destinations;
mod examples;
mod holds;
mod kills;
mod kit;
mod poison;
mod retries;
mod tidy;
mod whole_path;
