//! The `hook-worker` binary.

fn main() {}
