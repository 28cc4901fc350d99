//! What a run ran on: figures without it mean nothing.

use std::{fs, process::Command, thread};

use anyhow::Context as _;
use hook_common::config::command_line::Vars;
use hook_localpg::{find::Search, options::Durability};
use serde::Serialize;

/// The machine, without names by which it could be found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) memory_gib: u64,
    pub(crate) kernel: String,
    pub(crate) postgres: String,
    /// Runnable processes on average over the last minute, before the run; more than a few
    /// hundredths mean that somebody else used the machine too.
    pub(crate) load_before: f64,
    pub(crate) optimised: bool,
    /// Whether Postgres kept what it was given as it does in production.
    pub(crate) durable: bool,
}

impl Machine {
    pub(crate) fn look(durability: Durability) -> anyhow::Result<Self> {
        let vars = Vars::from_environment();
        let binaries = Search::from_vars(|name| vars.get(name)).find();
        let binaries = binaries.context("looking for Postgres")?;
        let asked = Command::new(binaries.directory().join("postgres"))
            .arg("--version")
            .output()
            .context("asking Postgres for its version")?;
        let said = String::from_utf8_lossy(&asked.stdout);
        let postgres = said.split_whitespace().nth(2).unwrap_or("?").to_owned();
        Ok(Self {
            cores: thread::available_parallelism().map_or(0, usize::from),
            memory_gib: memory_kib() / 1024 / 1024,
            kernel: text("/proc/sys/kernel/osrelease"),
            postgres,
            load_before: load(),
            optimised: !cfg!(debug_assertions),
            durable: durability == Durability::Full,
        })
    }
}

/// The load average over the last minute; 0 where the kernel shows none.
pub(crate) fn load() -> f64 {
    let text = text("/proc/loadavg");
    let first = text.split(' ').next();
    first.and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

fn memory_kib() -> u64 {
    let text = text("/proc/meminfo");
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

fn text(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}
