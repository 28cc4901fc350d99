//! `hook config`: judges the settings of this environment as the services would, without starting.

use anyhow::anyhow;
use clap::{Args, Subcommand};
use hook_common::{
    config::{BadSettings, Binary, command_line::Vars},
    start,
};
use serde_json::json;

use crate::{
    exit::{Failure, Kind},
    output::{Output, Table},
};

#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say for each service whether it would start with the settings of this environment.
    Check,
}

pub(crate) fn run(args: ConfigArgs, output: Output) -> Result<(), Failure> {
    match args.command {
        Command::Check => check(output),
    }
}

/// What each service says to these settings; `None` is nothing against them.
pub(crate) fn judged(vars: &Vars) -> [(&'static str, Option<String>); 3] {
    [
        (
            "hook-api",
            of(start::settings(
                Binary::Api,
                vars,
                hook_api::config::Config::read,
            )),
        ),
        (
            "hook-worker",
            of(start::settings(
                Binary::Worker,
                vars,
                hook_worker::Config::read,
            )),
        ),
        (
            "hook-janitor",
            of(start::settings(
                Binary::Janitor,
                vars,
                hook_janitor::Config::read,
            )),
        ),
    ]
}

fn check(output: Output) -> Result<(), Failure> {
    let judged = judged(&Vars::from_environment());
    let mut table = Table::new(["SERVICE", "SETTINGS"]);
    let mut services = serde_json::Map::new();
    let mut faults = String::new();
    for (name, fault) in &judged {
        let word = if fault.is_none() { "good" } else { "bad" };
        table.row([name.to_string(), word.to_owned()]);
        services.insert(
            (*name).to_owned(),
            json!({"good": fault.is_none(), "fault": fault}),
        );
        if let Some(fault) = fault {
            faults.push_str(&format!("\n{name}: {fault}"));
        }
    }
    output.result(&table.to_string(), &json!({"services": services}))?;
    if faults.is_empty() {
        return Ok(());
    }
    let error = anyhow!("a service would not start with these settings{faults}");
    Err(Failure::new(Kind::Usage, error))
}

/// What is wrong, in the words of the service itself.
fn of<T>(settings: Result<T, BadSettings>) -> Option<String> {
    settings.err().map(|bad| bad.to_string())
}
