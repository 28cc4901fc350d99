//! `hook-api`: the HTTP API that producers enqueue jobs with.

use std::process::ExitCode;

use hook_common::{config::Binary, start};

fn main() -> ExitCode {
    start::main(
        Binary::Api,
        hook_api::config::Config::read,
        hook_api::service::run,
    )
}
