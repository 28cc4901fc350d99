//! The whole product, running: API, worker and janitor on one database.
//!
//! Every setting has the value of the test profile (short times, small numbers) unless the test
//! says otherwise. The handles of the processes are public on purpose: a test of a crash kills
//! one, starts another and goes on.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::process::log::Line;
use crate::process::{Listener, Process, ProcessBuilder, Program};
use crate::stack::builder::{START_LIMIT, StackBuilder};
use crate::stack::metrics::Metrics;
use crate::stack::reply::Reply;
use crate::wait::wait_until;

pub mod builder;
pub mod metrics;
pub mod reply;

/// The running processes.
#[derive(Debug)]
pub struct Stack {
    /// The API.
    pub api: Process,
    /// The workers, in the order of their start.
    pub workers: Vec<Process>,
    /// The janitor, unless the test does without.
    pub janitor: Option<Process>,
    builder: StackBuilder,
    client: reqwest::Client,
    public: SocketAddr,
}

impl Stack {
    /// Begins the set-up of a stack on this database.
    #[must_use]
    pub fn builder(database_url: &str) -> StackBuilder {
        StackBuilder::new(database_url)
    }

    /// Starts a stack in the plain test profile.
    ///
    /// # Panics
    /// When a process is not ready in time.
    pub async fn start(database_url: &str) -> Self {
        Self::builder(database_url).start().await
    }

    /// The first worker.
    #[must_use]
    pub fn worker(&self) -> &Process {
        &self.workers[0]
    }

    /// Starts one more worker and waits until it is ready.
    ///
    /// # Panics
    /// When it is not ready in time.
    pub async fn start_worker(&mut self) -> &mut Process {
        let process = self.spawn(Program::Worker).await;
        self.workers.push(process);
        self.workers.last_mut().expect("a worker was just added")
    }

    /// Starts the API anew after the test ended it, and waits until it is ready.
    ///
    /// # Panics
    /// When it is not ready in time.
    pub async fn restart_api(&mut self) {
        let api = self.spawn(Program::Api).await;
        self.replace_api(api).await;
    }

    /// Puts a process that the test started in the place of the API, and gives the old one, which
    /// is killed when it is dropped.
    ///
    /// # Panics
    /// When it does not listen in time.
    pub async fn replace_api(&mut self, api: Process) -> Process {
        let old = std::mem::replace(&mut self.api, api);
        self.public = self.api.address(Listener::Public, START_LIMIT).await;
        old
    }

    /// Prepares one more process with the settings of this stack, for a test that changes some of
    /// them or does not want to wait until it is ready.
    ///
    /// # Panics
    /// When the programs do not compile.
    pub async fn process(&self, program: Program) -> ProcessBuilder {
        self.builder.process(program).await
    }

    /// Starts one more process with the settings of this stack and waits until it is ready.
    ///
    /// # Panics
    /// When it is not ready in time.
    pub async fn spawn(&self, program: Program) -> Process {
        let process = self.process(program).await.start();
        process.wait_ready(START_LIMIT).await;
        process
    }

    /// Every process, the API first.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        [&self.api]
            .into_iter()
            .chain(&self.workers)
            .chain(&self.janitor)
    }

    /// The process ids, to assert later that nothing was restarted.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.processes().map(Process::pid).collect()
    }

    /// Whether every process still runs.
    ///
    /// # Panics
    /// When a child cannot be waited for.
    pub fn all_run(&mut self) -> bool {
        [&mut self.api]
            .into_iter()
            .chain(&mut self.workers)
            .chain(&mut self.janitor)
            .all(|process| process.exit_status().is_none())
    }

    /// The address of the API.
    #[must_use]
    pub fn api_address(&self) -> SocketAddr {
        self.public
    }

    /// A URL of the API; `path` begins with a slash.
    #[must_use]
    pub fn api_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.public)
    }

    /// The client that all requests of this stack use.
    #[must_use]
    pub fn client(&self) -> &reqwest::Client {
        &self.client
    }

    /// Sends any request to the API.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn send(&self, request: reqwest::RequestBuilder) -> Reply {
        Reply::of(request).await
    }

    /// Gets a path of the API.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn get(&self, path: &str) -> Reply {
        self.send(self.client.get(self.api_url(path))).await
    }

    /// Posts JSON to a path of the API.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(self.client.post(self.api_url(path)).json(body))
            .await
    }

    /// Enqueues one job.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn enqueue(&self, job: &Value) -> Reply {
        self.post("/v1/jobs", job).await
    }

    /// Enqueues one job by these exact bytes; without a content type among the headers it is
    /// `application/json`.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn enqueue_raw(&self, body: impl Into<Bytes>, headers: &[(&str, &str)]) -> Reply {
        let mut request = self.client.post(self.api_url("/v1/jobs")).body(body.into());
        let typed = headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        if !typed {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request).await
    }

    /// Enqueues a job that must be accepted and gives its id.
    ///
    /// # Panics
    /// When the API refuses it.
    pub async fn enqueue_id(&self, job: &Value) -> String {
        let reply = self.enqueue(job).await;
        assert_eq!(reply.status, 202, "{job}: {}", reply.text());
        reply.id()
    }

    /// Enqueues a small job to this URL and gives its id.
    ///
    /// # Panics
    /// When the API refuses it.
    pub async fn enqueue_to(&self, url: &str) -> String {
        self.enqueue_id(&json!({"url": url, "payload": {"n": 1}}))
            .await
    }

    /// A job as the API shows it.
    ///
    /// # Panics
    /// When there is no such job.
    pub async fn job(&self, id: &str) -> Value {
        let reply = self.get(&format!("/v1/jobs/{id}")).await;
        assert_eq!(reply.status, 200, "{id}: {}", reply.text());
        reply.json()
    }

    /// Waits until a job is completed, failed or cancelled, and gives it.
    ///
    /// # Panics
    /// When it is not within `limit`; the message shows it.
    #[track_caller]
    pub fn wait_final<'a>(
        &'a self,
        id: &'a str,
        limit: Duration,
    ) -> impl Future<Output = Value> + 'a {
        wait_until(limit, async move || {
            let job = self.job(id).await;
            match job["status"].as_str() {
                Some("completed" | "failed" | "cancelled") => Ok(job),
                _ => Err(job),
            }
        })
    }

    /// Scrapes the ops listener of a process.
    ///
    /// # Panics
    /// When there is no answer, or one that is not Prometheus text.
    pub async fn metrics_of(&self, process: &Process) -> Metrics {
        let ops = process.address(Listener::Ops, START_LIMIT).await;
        let url = format!("http://{ops}/metrics");
        let reply = self.send(self.client.get(url)).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        Metrics::parse(&reply.text()).unwrap_or_else(|line| panic!("not a sample: {line:?}"))
    }

    /// Scrapes the API, the first worker or the janitor.
    ///
    /// # Panics
    /// When there is no such process or no proper answer.
    pub async fn metrics(&self, program: Program) -> Metrics {
        let process = match program {
            Program::Api => &self.api,
            Program::Worker => self.worker(),
            Program::Janitor => self.janitor.as_ref().expect("this stack has a janitor"),
            Program::Hook => panic!("the command for people has no ops listener"),
        };
        self.metrics_of(process).await
    }

    /// All lines of all processes that run or were ended in place.
    #[must_use]
    pub fn logs(&self) -> Vec<Line> {
        self.processes().flat_map(Process::lines).collect()
    }

    /// Whether a text occurs anywhere in the output of any process.
    #[must_use]
    pub fn logs_contain(&self, text: &str) -> bool {
        self.logs().iter().any(|line| line.text.contains(text))
    }
}
