//! The settings of a stack and its start.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::process::{Listener, ProcessBuilder, Program, plain_client};
use crate::stack::Stack;

/// Longest time from start to ready, on a busy machine.
pub(super) const START_LIMIT: Duration = Duration::from_secs(60);

/// Settings that every test begins with.
const PROFILE: &[(&str, &str)] = &[
    ("HOOK_ALLOW_NETS", "127.0.0.0/8,::1/128"),
    ("HOOK_API_LISTEN", "127.0.0.1:0"),
    ("HOOK_ATTEMPT_TIMEOUT", "5s"),
    ("HOOK_CONNECT_TIMEOUT", "2s"),
    ("HOOK_DB_POOL_MAX", "4"),
    ("HOOK_JANITOR_INTERVAL", "500ms"),
    ("HOOK_LEASE", "15s"),
    ("HOOK_LOG", "info"),
    ("HOOK_LOG_FORMAT", "json"),
    ("HOOK_MAX_ATTEMPTS", "3"),
    ("HOOK_OPS_LISTEN", "127.0.0.1:0"),
    ("HOOK_PENALTY_REFRESH", "2s"),
    ("HOOK_POLL_INTERVAL", "250ms"),
    ("HOOK_RETRY_SCHEDULE", "1s,2s,4s,8s,10s"),
    ("HOOK_SHUTDOWN_GRACE", "10s"),
    ("HOOK_WORKER_SLOTS", "8"),
];

/// What is to be started.
#[derive(Clone, Debug)]
pub struct StackBuilder {
    settings: BTreeMap<String, String>,
    own_settings: BTreeMap<Program, BTreeMap<String, String>>,
    open_files_max: BTreeMap<Program, u32>,
    workers: usize,
    janitor: bool,
}

impl StackBuilder {
    /// Begins with the test profile.
    pub(super) fn new(database_url: &str) -> Self {
        let profile = PROFILE
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Self {
            settings: profile.collect(),
            own_settings: BTreeMap::new(),
            open_files_max: BTreeMap::new(),
            workers: 1,
            janitor: true,
        }
        .set("DATABASE_URL", database_url)
    }

    /// Sets an environment variable for every process.
    #[must_use]
    pub fn set(mut self, name: &str, value: impl ToString) -> Self {
        self.settings.insert(name.to_owned(), value.to_string());
        self
    }

    /// Removes a variable of the test profile, so that the product's default holds.
    #[must_use]
    pub fn unset(mut self, name: &str) -> Self {
        self.settings.remove(name);
        self
    }

    /// Sets an environment variable for the processes of one program only.
    #[must_use]
    pub fn set_for(mut self, program: Program, name: &str, value: impl ToString) -> Self {
        let own = self.own_settings.entry(program).or_default();
        own.insert(name.to_owned(), value.to_string());
        self
    }

    /// Bounds the open files of the processes of one program, as `ulimit -n` does.
    #[must_use]
    pub fn open_files_max(mut self, program: Program, limit: u32) -> Self {
        self.open_files_max.insert(program, limit);
        self
    }

    /// Starts this many workers instead of one.
    #[must_use]
    pub fn workers(mut self, count: usize) -> Self {
        self.workers = count;
        self
    }

    /// Starts no janitor.
    #[must_use]
    pub fn without_janitor(mut self) -> Self {
        self.janitor = false;
        self
    }

    /// Prepares a process with these settings without starting it.
    ///
    /// # Panics
    /// When the programs do not compile.
    pub async fn process(&self, program: Program) -> ProcessBuilder {
        let none = BTreeMap::new();
        let process = ProcessBuilder::program(program)
            .await
            .set_all(&self.settings)
            .set_all(self.own_settings.get(&program).unwrap_or(&none));
        match self.open_files_max.get(&program) {
            Some(limit) => process.open_files_max(*limit),
            None => process,
        }
    }

    /// Starts everything and waits until all of it is ready.
    ///
    /// # Panics
    /// When a process is not ready in time.
    pub async fn start(self) -> Stack {
        let api = self.process(Program::Api).await.start();
        let mut workers = Vec::new();
        for _ in 0..self.workers {
            workers.push(self.process(Program::Worker).await.start());
        }
        let janitor = if self.janitor {
            Some(self.process(Program::Janitor).await.start())
        } else {
            None
        };
        for process in workers.iter().chain(&janitor).chain([&api]) {
            process.wait_ready(START_LIMIT).await;
        }
        let public = api.address(Listener::Public, START_LIMIT).await;
        Stack {
            api,
            workers,
            janitor,
            client: plain_client(),
            public,
            builder: self,
        }
    }
}
