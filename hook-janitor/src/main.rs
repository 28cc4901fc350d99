//! The `hook-janitor` binary.

use std::process::ExitCode;

use hook_common::{config::Binary, start};

fn main() -> ExitCode {
    start::main(
        Binary::Janitor,
        hook_janitor::Config::read,
        hook_janitor::run,
    )
}
