//! `hook secrets`: stores signing secrets, shows what may be known about them, deletes them.
//!
//! A secret is read from stdin and never from the command line, where other users of the machine and the
//! shell's history would see it.

use std::io::{self, Read as _};

use anyhow::Context as _;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::{
    api::{ApiArgs, segment},
    exit::Failure,
    output::{Output, Table, cell},
};

/// Bytes of a secret that is made here.
const MADE_BYTES: usize = 32;

/// More is not read from stdin.
const SECRET_BYTES_MAX: u64 = 4096;

#[derive(Args, Debug)]
pub(crate) struct SecretsArgs {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Store or replace a secret, read from stdin (whsec_… or whsk_…).
    Set {
        /// The name that jobs use.
        name: String,
        /// Make a new one instead, and print it: the receiver needs it, too.
        #[arg(long)]
        generate: bool,
    },
    /// Show a secret's name, kind, age and last four characters.
    Show {
        /// The name that jobs use.
        name: String,
    },
    /// Delete a secret; jobs that are to be signed with it fail.
    Delete {
        /// The name that jobs use.
        name: String,
    },
}

pub(crate) fn run(args: SecretsArgs, output: Output) -> Result<(), Failure> {
    let api = args.api.api()?;
    let route = |name: &str| format!("/v1/secrets/{}", segment(name));
    match args.command {
        Command::Set { name, generate } => {
            let secret = if generate { made() } else { read()? };
            let mut stored = api.put(&route(&name), &json!({ "secret": secret }))?;
            let mut text = table(&stored);
            if generate {
                stored["secret"] = secret.clone().into();
                text = format!("{secret}\n{text}");
            }
            output.result(&text, &stored)
        }
        Command::Show { name } => {
            let secret = api.get(&route(&name))?;
            output.result(&table(&secret), &secret)
        }
        Command::Delete { name } => {
            api.delete(&route(&name))?;
            output.result(&format!("{name} is deleted"), &json!({ "deleted": name }))
        }
    }
}

fn made() -> String {
    let bytes: [u8; MADE_BYTES] = rand::random();
    format!("whsec_{}", BASE64_STANDARD.encode(bytes))
}

fn read() -> Result<String, Failure> {
    let mut text = String::new();
    let mut stdin = io::stdin().lock().take(SECRET_BYTES_MAX);
    stdin
        .read_to_string(&mut text)
        .context("reading the secret from stdin")?;
    Ok(text.trim().to_owned())
}

fn table(secret: &Value) -> String {
    let mut table = Table::new(["NAME", "KIND", "CREATED", "LAST FOUR"]);
    table.row(["name", "kind", "created_at", "last_four"].map(|column| cell(&secret[column])));
    table.to_string()
}
