//! The product's own binaries as child processes.
//!
//! A process is started with exactly the environment that the test gives (plus `PATH` and
//! `HOME`), its output is kept, and it is killed when its handle is dropped. What a test asserts
//! about it is what an operator could see: log lines, the ops listener, signals, the exit status
//! and the numbers under `/proc`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::process::binaries::binaries;
use crate::process::log::{Line, Log, Source};
use crate::process::usage::Usage;
use crate::wait::{wait_for, wait_until};

pub mod binaries;
pub mod log;
pub mod usage;

mod signal;

#[cfg(test)]
mod tests;

pub use signal::Signal;

/// Log lines that are printed when a test fails.
const LINES_ON_FAILURE: usize = 40;

/// One of the product's programs.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Program {
    /// `hook-api`
    Api,
    /// `hook-worker`
    Worker,
    /// `hook-janitor`
    Janitor,
    /// `hook`
    Hook,
}

impl Program {
    /// The name of its file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Api => "hook-api",
            Self::Worker => "hook-worker",
            Self::Janitor => "hook-janitor",
            Self::Hook => "hook",
        }
    }
}

/// A listener that a process reports in its log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Listener {
    /// The producers' API.
    Public,
    /// Health and metrics.
    Ops,
}

/// What is to be started.
#[derive(Clone, Debug)]
pub struct ProcessBuilder {
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    environment: BTreeMap<String, String>,
    open_files_max: Option<u32>,
    process_1: bool,
}

/// A running child process; dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: u32,
    child: Child,
    log: Log,
    /// Reads the child's output until it ends.
    _readers: JoinSet<()>,
}

impl ProcessBuilder {
    /// Prepares to start one of the product's programs, building it first when it is stale.
    ///
    /// # Panics
    /// When the programs do not compile.
    pub async fn program(program: Program) -> Self {
        let path = binaries().await.join(program.name());
        Self::path(path)
    }

    /// Prepares to start any program.
    pub fn path(path: impl AsRef<Path>) -> Self {
        let program = path.as_ref().to_path_buf();
        let name = program
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Self {
            name,
            program,
            arguments: Vec::new(),
            environment: BTreeMap::new(),
            open_files_max: None,
            process_1: false,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.insert(name.into(), value.into());
        self
    }

    /// Sets many environment variables.
    #[must_use]
    pub fn set_all(mut self, variables: &BTreeMap<String, String>) -> Self {
        self.environment.extend(variables.clone());
        self
    }

    /// Bounds the number of open files, as `ulimit -n` does.
    #[must_use]
    pub fn open_files_max(mut self, limit: u32) -> Self {
        self.open_files_max = Some(limit);
        self
    }

    /// Runs the program as process 1 of a namespace of its own, as in a container. The process
    /// that is started then is the one that waits for it; see [`Process::signal_child`].
    #[must_use]
    pub fn as_process_1(mut self) -> Self {
        self.process_1 = true;
        self
    }

    /// Starts the process. It must be called inside a tokio runtime.
    ///
    /// # Panics
    /// When the program cannot be started.
    #[must_use]
    pub fn start(self) -> Process {
        let mut command = self.command();
        command
            .args(&self.arguments)
            .env_clear()
            .envs(inherited())
            .envs(&self.environment)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("starting {}: {error}", self.program.display()));
        let pid = child
            .id()
            .expect("a child that nobody waited for has an id");
        let log = Log::default();
        let mut readers = JoinSet::new();
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        readers.spawn(log.clone().collect(Source::Stdout, stdout));
        readers.spawn(log.clone().collect(Source::Stderr, stderr));
        Process {
            name: self.name,
            pid,
            child,
            log,
            _readers: readers,
        }
    }

    /// A limit is set by a shell that the program then replaces, so that the process id is right.
    fn command(&self) -> Command {
        if self.process_1 {
            let mut command = Command::new("unshare");
            command
                .args([
                    "--user",
                    "--map-root-user",
                    "--pid",
                    "--fork",
                    "--kill-child",
                ])
                .arg(&self.program);
            return command;
        }
        let Some(limit) = self.open_files_max else {
            return Command::new(&self.program);
        };
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", r#"ulimit -n "$1"; shift; exec "$@""#, "sh"])
            .arg(limit.to_string())
            .arg(&self.program);
        command
    }
}

impl Process {
    /// The name of its program.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What it wrote so far.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        self.log.lines()
    }

    /// Waits for a line of its output that `wanted` accepts and gives the first such line.
    ///
    /// # Panics
    /// When there was none within `limit`.
    #[track_caller]
    pub fn wait_line(
        &self,
        limit: Duration,
        wanted: impl Fn(&Line) -> bool,
    ) -> impl Future<Output = Line> {
        wait_until(limit, async move || {
            let lines = self.lines();
            let found = lines.iter().find(|line| wanted(line)).cloned();
            found.ok_or_else(|| lines.last().map(|line| line.text.clone()))
        })
    }

    /// The address that it reported for a listener (the last one, if it did so more than once).
    ///
    /// # Panics
    /// When it reported none within `limit`.
    #[track_caller]
    pub fn address(&self, listener: Listener, limit: Duration) -> impl Future<Output = SocketAddr> {
        wait_until(limit, async move || {
            let lines = self.lines();
            let found = lines.iter().rev().find_map(|line| line.listening(listener));
            found.ok_or_else(|| lines.last().map(|line| line.text.clone()))
        })
    }

    /// Waits until its `/readyz` answers 200 and gives the address of its ops listener.
    ///
    /// # Panics
    /// When that did not happen within `limit`; the message shows the last answer.
    pub async fn wait_ready(&self, limit: Duration) -> SocketAddr {
        let ops = self.address(Listener::Ops, limit).await;
        let client = plain_client();
        wait_until(limit, async || {
            let answer = client.get(format!("http://{ops}/readyz")).send().await;
            let answer = answer.map_err(|error| error.to_string())?;
            if answer.status().is_success() {
                return Ok(ops);
            }
            let status = answer.status();
            let text = answer.text().await.unwrap_or_default();
            Err(format!("{}: {status} {text}", self.name))
        })
        .await
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// When the process is gone.
    pub fn signal(&self, signal: Signal) {
        // An exited child that nobody waited for keeps its id, so that no other process is hit.
        self.send(self.pid, signal);
    }

    /// Sends a signal to the one child of this process, which waits for it.
    ///
    /// # Panics
    /// When there is no child, or more than one.
    pub fn signal_child(&self, signal: Signal) {
        let file = format!("/proc/{0}/task/{0}/children", self.pid);
        let children = std::fs::read_to_string(&file).expect("a process has a list of children");
        let child = children.trim().parse();
        let child = child.unwrap_or_else(|_| panic!("{}: children {children:?}", self.name));
        self.send(child, signal);
    }

    fn send(&self, pid: u32, signal: Signal) {
        signal
            .send(pid)
            .unwrap_or_else(|error| panic!("sending {signal:?} to {}: {error}", self.name));
    }

    /// Waits until it exits.
    ///
    /// # Panics
    /// When it still runs after `limit`.
    pub async fn wait_exit(&mut self, limit: Duration) -> ExitStatus {
        let exited = timeout(limit, self.child.wait()).await;
        let status = exited
            .unwrap_or_else(|_| panic!("{} still runs after {limit:?}", self.name))
            .expect("waiting for a child works");
        // The last lines may still be in the pipes.
        wait_for(limit, async || self.log.open_sources(), |open| *open == 0).await;
        status
    }

    /// Its exit status if it has exited.
    ///
    /// # Panics
    /// When the child cannot be waited for.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("waiting for a child works")
    }

    /// Sends `SIGTERM` and waits until it exits.
    ///
    /// # Panics
    /// When it still runs after `limit`.
    pub async fn terminate(&mut self, limit: Duration) -> ExitStatus {
        self.signal(Signal::Terminate);
        self.wait_exit(limit).await
    }

    /// What it uses at the moment.
    ///
    /// # Panics
    /// When the process is gone.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage::of(self.pid)
    }
}

impl Drop for Process {
    #[expect(
        clippy::print_stderr,
        reason = "the test harness shows this beside the failure"
    )]
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let lines = self.lines();
        let skipped = lines.len().saturating_sub(LINES_ON_FAILURE);
        eprintln!("--- last lines of {} ({})", self.name, self.pid);
        for line in &lines[skipped..] {
            eprintln!("{}", line.text);
        }
    }
}

/// A client without proxies and pools that would blur what a test sees.
///
/// # Panics
/// When the client cannot be built.
pub(crate) fn plain_client() -> reqwest::Client {
    reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(Duration::from_secs(30))
        .build()
        .expect("a client without TLS can always be built")
}

/// The variables of the test's own environment that a child keeps.
fn inherited() -> impl Iterator<Item = (&'static str, std::ffi::OsString)> {
    ["PATH", "HOME"]
        .into_iter()
        .filter_map(|name| std::env::var_os(name).map(|value| (name, value)))
}
