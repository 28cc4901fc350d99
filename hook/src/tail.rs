//! `hook tail`: attempts as they are made, those of the newest jobs.
//!
//! Each look is one page of the newest jobs with their attempts, so it costs the same whatever the queue
//! holds; what is remembered is how many attempts each job of the last page had. Retries of jobs that are
//! older than the page are not seen; `--target` narrows the page to one destination.

use std::{collections::HashMap, time::Duration};

use clap::Args;
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    api::{Api, ApiArgs, Query},
    exit::Failure,
    migrate::duration,
    output::{Output, cell},
    pace::Pace,
};

#[derive(Args, Debug)]
pub(crate) struct TailArgs {
    /// Only attempts at this destination.
    #[arg(long)]
    target: Option<String>,
    /// Follow the newest jobs, so many of them.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=500))]
    jobs: u32,
    /// Show so many of the attempts that have been made already.
    #[arg(long, value_name = "N", default_value_t = 10)]
    last: usize,
    /// Between two looks.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    every: Duration,
    /// End after this; the default is to go on.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    end_after: Option<Duration>,
    #[command(flatten)]
    api: ApiArgs,
}

pub(crate) fn run(args: &TailArgs, output: Output) -> Result<(), Failure> {
    let api = args.api.api()?;
    let pace = Pace::new(args.every)?;
    let begun = Instant::now();
    let mut seen = Seen::default();
    let mut first = true;
    loop {
        let mut made = seen.take_in(&page(&api, args)?);
        if first {
            made.drain(..made.len().saturating_sub(args.last));
            first = false;
        }
        for attempt in made {
            output.result(&line(&attempt), &attempt)?;
        }
        if args.end_after.is_some_and(|limit| begun.elapsed() >= limit) {
            return Ok(());
        }
        pace.wait();
    }
}

fn page(api: &Api, args: &TailArgs) -> Result<Vec<Value>, Failure> {
    let query = Query::new([
        ("target", args.target.clone()),
        ("limit", Some(args.jobs.to_string())),
    ]);
    let answer = api.get(&format!("/v1/jobs{query}"))?;
    let jobs = answer["jobs"].as_array();
    Ok(jobs.cloned().unwrap_or_default())
}

/// How many attempts each job of the last page had.
#[derive(Debug, Default)]
struct Seen(HashMap<String, usize>);

impl Seen {
    /// Takes a page in and gives the attempts that are new in it, the earliest first.
    fn take_in(&mut self, jobs: &[Value]) -> Vec<Value> {
        let mut now = HashMap::new();
        let mut made = Vec::new();
        for job in jobs {
            let id = job["id"].as_str().unwrap_or_default();
            let attempts = job["attempts"].as_array().map_or(&[][..], Vec::as_slice);
            let before = self.0.get(id).copied().unwrap_or(0);
            for attempt in attempts.iter().skip(before) {
                let mut attempt = attempt.clone();
                attempt["job"] = id.into();
                attempt["target"] = job["target"].clone();
                attempt["status"] = job["status"].clone();
                made.push(attempt);
            }
            now.insert(id.to_owned(), attempts.len());
        }
        self.0 = now;
        made.sort_by_key(|attempt| attempt["started_at"].as_str().map(str::to_owned));
        made
    }
}

fn line(attempt: &Value) -> String {
    let kind = match (&attempt["error_kind"], &attempt["response_status"]) {
        (Value::Null, status) => cell(status),
        (kind, Value::Null) => cell(kind),
        (kind, status) => format!("{} {}", cell(kind), cell(status)),
    };
    format!(
        "{}  {}  {}  attempt {}  {}  {} ms  job {}",
        cell(&attempt["started_at"]),
        cell(&attempt["outcome"]),
        cell(&attempt["target"]),
        cell(&attempt["attempt"]),
        kind,
        cell(&attempt["duration_ms"]),
        cell(&attempt["job"]),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A job of a page, with attempts that started at these times.
    fn job(id: &str, started: &[&str]) -> Value {
        let attempts: Vec<Value> = started
            .iter()
            .map(|time| {
                json!({"started_at": time, "attempt": 1, "outcome": "retryable",
                "error_kind": "http_status", "response_status": 503, "duration_ms": 4})
            })
            .collect();
        json!({"id": id, "target": "a\u{1b}.test", "status": "available", "attempts": attempts})
    }

    #[test]
    fn each_attempt_is_shown_once_in_the_order_they_were_made() {
        let mut seen = Seen::default();
        let jobs = |made: Vec<Value>| -> Vec<String> {
            let ids = made.iter().map(|attempt| cell(&attempt["job"]));
            ids.collect()
        };
        let made = seen.take_in(&[job("b", &["3"]), job("a", &["1", "2"])]);
        assert!(
            line(&made[0]).contains("http_status 503  4 ms  job a"),
            "{made:?}"
        );
        assert!(!line(&made[0]).contains('\u{1b}'));
        assert_eq!(jobs(made), ["a", "a", "b"]);
        let made = seen.take_in(&[job("c", &[]), job("b", &["3", "5"]), job("a", &["1", "2"])]);
        assert_eq!(jobs(made), ["b"]);
        assert_eq!(jobs(seen.take_in(&[job("c", &["6"])])), ["c"]);
    }
}
