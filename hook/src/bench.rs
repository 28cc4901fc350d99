//! `hook bench`: the scenarios of `hook-bench`, printed as every command prints.

use hook_bench::command::{self, BenchArgs};

use crate::{exit::Failure, output::Output};

pub(crate) fn run(args: BenchArgs, output: Output) -> Result<(), Failure> {
    match command::run(args)? {
        Some(report) => output.result(&report.to_string(), &report),
        None => Ok(()),
    }
}
