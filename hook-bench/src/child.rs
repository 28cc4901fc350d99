//! A process of ours, started from our own executable.
//!
//! It ends with us however we end: it reads a pipe whose other end only we hold (`role`). In good
//! order it is stopped by `SIGTERM`, and anything but exit code 0 is a failed run.

use std::{net::SocketAddr, path::Path, process::Stdio, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use hook_common::lifecycle::within;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{ChildStdin, Command},
};

use crate::{clock, http::Connection};

/// Longest time from the start of a process until it is ready.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// Longest orderly stop; longer than the grace that services are given.
const STOP_LIMIT: Duration = Duration::from_secs(40);

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Variables that a process keeps from ours; everything else would be a setting by accident.
const INHERITED: [&str; 3] = ["PATH", "HOME", "LD_LIBRARY_PATH"];

/// A running process; dropping it kills it.
#[derive(Debug)]
pub(crate) struct Child {
    name: String,
    pid: u32,
    process: tokio::process::Child,
    /// The end of the pipe by which it knows that we live. Kept here, because waiting for a
    /// process closes the pipe that it still has.
    _life: Option<ChildStdin>,
}

/// What is to be started.
pub(crate) struct Start<'a> {
    pub(crate) program: &'a Path,
    /// As it is named in reports.
    pub(crate) name: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) settings: Vec<(String, String)>,
}

impl Child {
    /// Starts a process; it is not ready yet.
    pub(crate) fn start(start: Start<'_>) -> anyhow::Result<Self> {
        let kept =
            std::env::vars_os().filter(|(name, _)| INHERITED.iter().any(|kept| name == kept));
        let mut process = Command::new(start.program)
            .args(["bench", "role"])
            .args(start.arguments)
            .env_clear()
            .envs(kept)
            .envs(start.settings)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting the {}", start.name))?;
        let pid = process.id().context("asking for a process id")?;
        Ok(Self {
            name: start.name,
            pid,
            _life: process.stdin.take(),
            process,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for the address that one of our own roles prints once it listens.
    pub(crate) async fn address(&mut self) -> anyhow::Result<SocketAddr> {
        let stdout = self.process.stdout.take().context("stdout is read once")?;
        let mut line = String::new();
        let mut stdout = BufReader::new(stdout);
        let read = within(READY_LIMIT, stdout.read_line(&mut line)).await;
        read.ok_or_else(|| anyhow!("the {} did not get ready", self.name))?
            .with_context(|| format!("reading from the {}", self.name))?;
        let address = line.trim().parse();
        address.with_context(|| format!("the {} printed {line:?}, no address", self.name))
    }

    /// Waits until a service's `/readyz` says so.
    pub(crate) async fn ready(&mut self, ops: SocketAddr) -> anyhow::Result<()> {
        let in_time = within(READY_LIMIT, async {
            loop {
                if is_ready(ops).await {
                    return Ok(());
                }
                self.is_running()?;
                clock::pause(LOOK_EVERY).await;
            }
        })
        .await;
        in_time.unwrap_or_else(|| bail!("the {} did not get ready", self.name))
    }

    /// Fails if the process has ended by itself.
    pub(crate) fn is_running(&mut self) -> anyhow::Result<()> {
        match self.process.try_wait().context("looking for a process")? {
            None => Ok(()),
            Some(status) => bail!("the {} ended by itself, {status}", self.name),
        }
    }

    /// Stops the process by `SIGTERM` and waits for its end.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.is_running()?;
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let pid = pid.context("a process id is a positive number")?;
        kill_process(pid, Signal::TERM).with_context(|| format!("stopping the {}", self.name))?;
        let status = within(STOP_LIMIT, self.process.wait()).await;
        let status = status.ok_or_else(|| anyhow!("the {} does not stop", self.name))?;
        let status = status.with_context(|| format!("waiting for the {}", self.name))?;
        if !status.success() {
            bail!("the {} was told to stop and ended with {status}", self.name);
        }
        Ok(())
    }
}

async fn is_ready(ops: SocketAddr) -> bool {
    let Ok(mut connection) = Connection::open(ops).await else {
        return false;
    };
    let answer = connection.get("/readyz").await;
    answer.is_ok_and(|answer| answer.status.is_success())
}
