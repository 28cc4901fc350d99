//! A real Prometheus that scrapes the processes of a test, and its `promtool`.
//!
//! Dashboards and rules are worth as much as what Prometheus makes of them, so nothing here is
//! imitated. A machine without the programs fails the test and says what to install.

use std::{
    collections::BTreeMap, fs, net::SocketAddr, path::Path, process::Output, time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::process::{Process, ProcessBuilder, plain_client};
use crate::wait::wait_until;

/// What to install where the programs are missing.
const PACKAGE: &str = "install Prometheus: apt-get install --no-install-recommends prometheus";

/// Longest time from start to the first scrape of everything, on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A running Prometheus; dropping it ends it and removes what it stored.
#[derive(Debug)]
pub struct Prometheus {
    process: Process,
    address: SocketAddr,
    client: reqwest::Client,
    _directory: TempDir,
}

/// One series of the answer to a query, at its last point.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Its labels, `__name__` among them where there is one.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

impl Prometheus {
    /// Scrapes `targets` (pairs of job and address) every second, and evaluates the rules of a
    /// file as often.
    ///
    /// # Panics
    /// When Prometheus is not installed, or not ready in time.
    pub async fn start(targets: &[(&str, SocketAddr)], rules: Option<&Path>) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let file = directory.path().join("prometheus.yml");
        fs::write(&file, configuration(targets, rules)).expect("the configuration is written");
        // It comes in the same package, and says which where that is missing.
        promtool(&["--version"], None).await;
        let process = ProcessBuilder::path("prometheus")
            .argument(format!("--config.file={}", file.display()))
            .argument(format!(
                "--storage.tsdb.path={}",
                directory.path().join("data").display()
            ))
            .argument("--web.listen-address=127.0.0.1:0")
            .start();
        let listening = |text: &str| -> Option<SocketAddr> {
            let (_, address) = text.split_once("\"Listening on\" address=")?;
            address.split_whitespace().next()?.parse().ok()
        };
        let line = process.wait_line(START_LIMIT, |line| listening(&line.text).is_some());
        let address = listening(&line.await.text).expect("the line has the address");
        let prometheus = Self {
            process,
            address,
            client: plain_client(),
            _directory: directory,
        };
        let wanted = targets.len();
        wait_until(START_LIMIT, async || {
            let up = prometheus.query("up == 1").await?;
            if up.len() == wanted {
                Ok(())
            } else {
                Err(format!("{up:?}"))
            }
        })
        .await;
        prometheus
    }

    /// The process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Evaluates an expression now.
    ///
    /// # Errors
    /// What Prometheus says about the expression, or that it does not answer.
    pub async fn query(&self, expression: &str) -> Result<Vec<Point>, String> {
        let data = self.get("query", &[("query", expression)]).await?;
        let series = data["result"].as_array().cloned().unwrap_or_default();
        if data["resultType"] == "scalar" {
            return Ok(vec![point(&Value::Null, &data["result"])]);
        }
        Ok(series
            .iter()
            .map(|one| point(&one["metric"], &one["value"]))
            .collect())
    }

    /// Every rule with its state, as the API lists them.
    ///
    /// # Errors
    /// That Prometheus does not answer.
    pub async fn rules(&self) -> Result<Vec<Value>, String> {
        let data = self.get("rules", &[]).await?;
        let groups = data["groups"].as_array().cloned().unwrap_or_default();
        let rules = groups.iter().filter_map(|group| group["rules"].as_array());
        Ok(rules.flatten().cloned().collect())
    }

    async fn get(&self, what: &str, query: &[(&str, &str)]) -> Result<Value, String> {
        let url = format!("http://{}/api/v1/{what}", self.address);
        let url = reqwest::Url::parse_with_params(&url, query).expect("a URL");
        let answer = self.client.get(url).send().await;
        let answer = answer.map_err(|error| error.to_string())?;
        let text = answer.text().await.map_err(|error| error.to_string())?;
        let mut answer: Value =
            serde_json::from_str(&text).map_err(|_| format!("not JSON: {text}"))?;
        if answer["status"] == "success" {
            return Ok(answer["data"].take());
        }
        Err(answer["error"].as_str().unwrap_or(&text).to_owned())
    }
}

/// Runs `promtool` with these arguments and this input.
///
/// # Panics
/// When it is not installed.
pub async fn promtool(arguments: &[&str], input: Option<&Path>) -> Output {
    let mut command = Command::new("promtool");
    command.args(arguments).kill_on_drop(true);
    if let Some(input) = input {
        command.stdin(fs::File::open(input).expect("the input is there"));
    }
    let output = command.output().await;
    output.unwrap_or_else(|error| panic!("promtool: {error}; {PACKAGE}"))
}

fn configuration(targets: &[(&str, SocketAddr)], rules: Option<&Path>) -> String {
    let mut jobs: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (job, address) in targets {
        jobs.entry(job).or_default().push(address.to_string());
    }
    let scrapes: Vec<Value> = jobs
        .iter()
        .map(|(job, addresses)| {
            serde_json::json!({"job_name": job, "static_configs": [{"targets": addresses}]})
        })
        .collect();
    // JSON is YAML.
    serde_json::json!({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": rules.map(|path| path.display().to_string()).into_iter().collect::<Vec<_>>(),
        "scrape_configs": scrapes,
    })
    .to_string()
}

fn point(labels: &Value, value: &Value) -> Point {
    let labels = labels.as_object().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Point {
        labels: labels
            .iter()
            .map(|(name, value)| (name.clone(), text(value)))
            .collect(),
        value: text(&value[1]).parse().expect("a number"),
    }
}
