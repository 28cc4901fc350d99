//! `hook targets`: looks at destinations, holds them back and sets their limits.

use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use crate::{
    api::{ApiArgs, Query, segment},
    exit::Failure,
    output::{Output, Table, cell},
};

/// What takes a setting away.
const CLEAR: &str = "none";

#[derive(Args, Debug)]
pub(crate) struct TargetsArgs {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List targets.
    List {
        /// Most first: waiting, failing or slow.
        #[arg(long, default_value = "waiting")]
        order: String,
        /// How many at most.
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
    },
    /// Show one target.
    Show {
        /// The destination key, usually a host.
        target: String,
        #[command(flatten)]
        history: History,
    },
    /// Hold a target's jobs back until it is resumed.
    Pause {
        /// The destination key.
        target: String,
    },
    /// Let a paused target's jobs go again.
    Resume {
        /// The destination key.
        target: String,
    },
    /// Let the next probe of a held target go out now.
    Probe {
        /// The destination key.
        target: String,
    },
    /// Set limits of a target; `none` takes one away.
    Set {
        /// The destination key.
        target: String,
        #[command(flatten)]
        limits: Limits,
    },
}

#[derive(Args, Debug)]
struct History {
    /// Show what its attempts came to hour by hour, the latest first, also of jobs that are gone.
    #[arg(long)]
    history: bool,
    /// With --history: hours from this time on, such as 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME", requires = "history")]
    from: Option<String>,
    /// With --history: hours before this time.
    #[arg(long, value_name = "TIME", requires = "history")]
    to: Option<String>,
    /// With --history: how many hours at most.
    #[arg(long, value_name = "N", default_value_t = 48)]
    limit: usize,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = true)]
struct Limits {
    /// Attempts at one time, for each worker.
    #[arg(long, value_name = "N", value_parser = limit)]
    max_in_flight: Option<Value>,
    /// Attempts a second.
    #[arg(long, value_name = "N", value_parser = limit)]
    rate_per_second: Option<Value>,
    /// Penalty, 0 to 9, whatever workers find.
    #[arg(long, value_name = "LEVEL", value_parser = limit)]
    penalty: Option<Value>,
}

pub(crate) fn run(args: TargetsArgs, output: Output) -> Result<(), Failure> {
    let api = args.api.api()?;
    let route = |target: &str| format!("/v1/targets/{}", segment(target));
    let target = match args.command {
        Command::List { order, limit } => {
            let query = Query::new([("order", Some(order)), ("limit", Some(limit.to_string()))]);
            let answer = api.get(&format!("/v1/targets{query}"))?;
            let targets = answer["targets"].as_array().map(Vec::as_slice);
            return output.result(&table(targets.unwrap_or_default()), &answer);
        }
        Command::Show { target, history } if history.history => {
            let answer = api.get(&format!("{}/history{}", route(&target), history.query()))?;
            return output.result(&hours(&answer), &answer);
        }
        Command::Show { target, .. } => {
            let target = api.get(&route(&target))?;
            let text = format!("{}{}", table(std::slice::from_ref(&target)), why(&target));
            return output.result(&text, &target);
        }
        Command::Pause { target } => {
            api.post(&format!("{}/pause", route(&target)), &Value::Null)?
        }
        Command::Resume { target } => {
            api.post(&format!("{}/resume", route(&target)), &Value::Null)?
        }
        Command::Probe { target } => {
            api.post(&format!("{}/probe", route(&target)), &Value::Null)?
        }
        Command::Set { target, limits } => api.patch(&route(&target), &limits.json())?,
    };
    output.result(&table(std::slice::from_ref(&target)), &target)
}

impl History {
    fn query(self) -> Query {
        Query::new([
            ("from", self.from),
            ("to", self.to),
            ("limit", Some(self.limit.to_string())),
        ])
    }
}

impl Limits {
    fn json(&self) -> Value {
        let limits = [
            ("max_in_flight", &self.max_in_flight),
            ("rate_per_second", &self.rate_per_second),
            ("penalty", &self.penalty),
        ];
        let set = limits.into_iter();
        let set = set.filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)));
        Value::Object(set.collect::<Map<_, _>>())
    }
}

fn table(targets: &[Value]) -> String {
    let mut table = Table::new([
        "TARGET",
        "STATE",
        "PENALTY",
        "WAITING",
        "RUNNING",
        "FAILED",
        "P95 MS",
        "LAST ERROR",
    ]);
    for target in targets {
        table.row([
            cell(&target["target"]),
            cell(&target["state"]),
            cell(&target["penalty"]),
            cell(&target["waiting"]),
            cell(&target["running"]),
            cell(&target["failed"]),
            cell(&target["latency_p95_ms"]),
            cell(&target["last_error_kind"]),
        ]);
    }
    table.to_string()
}

/// Why a target is treated as it is; nothing for a healthy one.
fn why(target: &Value) -> String {
    let reasons = target["penalty_reasons"].as_array().into_iter().flatten();
    let reasons = reasons.map(|reason| match reason.as_str().unwrap_or_default() {
        "pinned" => "it is fixed by hand".to_owned(),
        "failures_in_row" => format!("{} failures in a row", cell(&target["failures_in_row"])),
        "waiting_retries" => format!(
            "{} waiting jobs have failed before",
            cell(&target["retries"])
        ),
        "wasted_slots" => "its attempts waste slots, by failing or answering late".to_owned(),
        other => other.to_owned(),
    });
    let mut lines: Vec<String> = reasons.collect();
    if target["state"] == "held" {
        let failures = cell(&target["failures_in_row"]);
        let next = cell(&target["next_probe_at"]);
        lines.push(format!(
            "held after {failures} failures in a row; next probe {next}"
        ));
    }
    lines.iter().map(|line| format!("\n  {line}")).collect()
}

fn hours(answer: &Value) -> String {
    let columns = [
        "hour",
        "attempts",
        "delivered",
        "retryable",
        "permanent",
        "mean_duration_ms",
    ];
    let mut table = Table::new([
        "HOUR",
        "ATTEMPTS",
        "DELIVERED",
        "RETRYABLE",
        "PERMANENT",
        "MEAN MS",
    ]);
    for hour in answer["hours"].as_array().into_iter().flatten() {
        table.row(columns.map(|column| cell(&hour[column])));
    }
    table.to_string()
}

/// A number, or the word that takes the limit away.
fn limit(text: &str) -> Result<Value, String> {
    if text == CLEAR {
        return Ok(Value::Null);
    }
    let number: Option<serde_json::Number> = text.parse().ok();
    number
        .map(Value::Number)
        .ok_or_else(|| format!("expected a number or {CLEAR}"))
}
