//! Whole-system tests: real binaries, a real Postgres, raw sockets.

mod kills;
mod kit;
mod retries;
mod tidy;
mod whole_path;
