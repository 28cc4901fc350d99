//! The `hook-worker` binary.

use std::process::ExitCode;

use hook_common::{config::Binary, start};

fn main() -> ExitCode {
    start::main(Binary::Worker, hook_worker::Config::read, hook_worker::run)
}
