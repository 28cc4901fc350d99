//! `hook bench`: the scenarios of `hook-bench`, printed as every command prints.

use anyhow::Context as _;
use hook_bench::command::{self, BenchArgs};

use crate::{exit::Failure, output::Output};

pub(crate) fn run(args: BenchArgs, output: Output) -> Result<(), Failure> {
    let program = std::env::current_exe().context("finding our own executable")?;
    match command::run(args, program)? {
        Some(report) => output.result(&report.to_string(), &report),
        None => Ok(()),
    }
}
