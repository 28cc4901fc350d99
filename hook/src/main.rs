//! The `hook` command.

fn main() {}
