//! The `hook-api` binary.

fn main() {}
