//! Whole-system tests: real binaries, a real Postgres, raw sockets.
