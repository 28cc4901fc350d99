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
        /// The destination key: a host, also as a URL, or the key that a job was given.
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
    /// Let the next probe of a held target go out now, or end the pause that it asked for.
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
    /// Attempts at one time, of all workers together.
    #[arg(long, value_name = "N", value_parser = limit)]
    max_in_flight: Option<Value>,
    /// Attempts a second, of all workers together.
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
        Command::Show { target, .. } => api.get(&route(&target))?,
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
    let text = format!("{}{}", table(std::slice::from_ref(&target)), why(&target));
    output.result(&text, &target)
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
        "LIMITS",
        "WAITING",
        "RUNNING",
        "FAILED",
        "P95 MS",
        "LAST ERROR",
    ]);
    for target in targets {
        table.row([
            cell(&target["target"]),
            state(target),
            cell(&target["penalty"]),
            limits(target),
            cell(&target["waiting"]),
            cell(&target["running"]),
            cell(&target["failed"]),
            cell(&target["latency_p95_ms"]),
            cell(&target["last_error_kind"]),
        ]);
    }
    table.to_string()
}

/// How a target is treated; that people limit it goes with any state.
fn state(target: &Value) -> String {
    let limited = ["max_in_flight", "rate_per_second"]
        .iter()
        .any(|name| !target[*name].is_null());
    let state = cell(&target["state"]);
    if limited {
        format!("{state}, limited")
    } else {
        state
    }
}

/// What people have set for a target.
fn limits(target: &Value) -> String {
    let set = [
        ("max_in_flight", "", " at a time"),
        ("rate_per_second", "", " a second"),
        ("penalty_pin", "penalty ", ""),
    ];
    let set = set.iter().filter(|(name, ..)| !target[*name].is_null());
    let set = set.map(|(name, before, after)| format!("{before}{}{after}", cell(&target[*name])));
    let set: Vec<String> = set.collect();
    if set.is_empty() {
        cell(&Value::Null)
    } else {
        set.join(", ")
    }
}

/// Why a target is treated as it is; nothing for a healthy one that has jobs.
fn why(target: &Value) -> String {
    let reasons = target["penalty_reasons"].as_array().into_iter().flatten();
    let reasons = reasons.map(|reason| match reason.as_str().unwrap_or_default() {
        "pinned" => "its penalty is fixed by hand".to_owned(),
        "failures_in_row" => failures(target),
        "waiting_retries" => format!(
            "{} waiting jobs have failed before",
            cell(&target["retries"])
        ),
        "wasted_slots" => "its attempts waste slots, by failing or answering late".to_owned(),
        other => other.to_owned(),
    });
    let mut lines: Vec<String> = reasons.collect();
    if !target["asked_until"].is_null() {
        let until = cell(&target["asked_until"]);
        lines.push(format!("asked to wait until {until} (Retry-After)"));
    } else if target["state"] == "held" {
        let after = match target["failures_in_row"].as_i64() {
            None | Some(0) => String::new(),
            Some(_) => format!(" after {}", failures(target)),
        };
        let next = cell(&target["next_probe_at"]);
        lines.push(format!("held{after}; next probe {next}"));
    }
    if target["unused"] == true {
        lines.push("new: no job of this target is known".to_owned());
    }
    lines.iter().map(|line| format!("\n  {line}")).collect()
}

fn failures(target: &Value) -> String {
    match target["failures_in_row"].as_i64() {
        Some(1) => "1 failure".to_owned(),
        _ => format!("{} failures in a row", cell(&target["failures_in_row"])),
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_limited_target_says_so_and_shows_its_limits() {
        let target = json!({"target": "a.test", "state": "healthy", "penalty": 0, "max_in_flight": 4,
            "rate_per_second": 0.5, "penalty_pin": 0});
        let shown = table(std::slice::from_ref(&target));
        assert!(shown.contains("healthy, limited"), "{shown}");
        assert!(
            shown.contains("4 at a time, 0.5 a second, penalty 0"),
            "{shown}"
        );
        assert_eq!(limits(&json!({"penalty_pin": null})), "-");
        assert_eq!(state(&json!({"state": "held", "penalty_pin": 2})), "held");
    }

    #[test]
    fn a_hold_says_who_asked_for_it() {
        let held = |failures: i64, asked: Value| {
            why(
                &json!({"state": "held", "failures_in_row": failures, "next_probe_at": "T",
                "asked_until": asked, "penalty_reasons": []}),
            )
        };
        assert_eq!(held(0, json!(null)), "\n  held; next probe T");
        assert_eq!(
            held(1, json!(null)),
            "\n  held after 1 failure; next probe T"
        );
        assert_eq!(
            held(20, json!(null)),
            "\n  held after 20 failures in a row; next probe T"
        );
        assert_eq!(
            held(1, json!("U")),
            "\n  asked to wait until U (Retry-After)"
        );
    }
}
