//! The `hook` command: everything that people do with the product from a shell.
//!
//! A thin shell over the crates: commands parse what was typed, call one function of ours or one
//! route of the API, and print. What was asked for goes to stdout, everything else to stderr.

#![expect(
    clippy::doc_markdown,
    reason = "the doc comments of arguments are what --help shows"
)]

use std::process::ExitCode;

use clap::Parser as _;

mod api;
mod bench;
mod cli;
mod config;
mod dev;
mod doctor;
mod enqueue;
mod exit;
mod health;
mod jobs;
mod migrate;
mod output;
mod pace;
mod progress;
mod queues;
mod receiver;
mod replays;
mod secrets;
mod settings;
mod tail;
mod targets;

fn main() -> ExitCode {
    match cli::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
