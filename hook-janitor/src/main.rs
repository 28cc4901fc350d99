//! The `hook-janitor` binary.

fn main() {}
