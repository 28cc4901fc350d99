//! `hook tail`: attempts as they are made.
//!
//! Each look is one page of the newest jobs and one of those that run, with their attempts; what is
//! remembered is how many attempts each job had. A job that has left both pages with a retry ahead
//! is followed: it is asked for by its id once the retry is due. At the start, the newest of the
//! jobs that wait for a retry are followed, too. So a look costs the same whatever the queue holds;
//! a retry is missed only if more jobs wait for one than are followed and it ends between two
//! looks. `--target` narrows all of it to one destination.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use chrono::DateTime;
use clap::Args;
use hook_common::metrics::unix_seconds;
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    api::{Api, ApiArgs, Fault, Query, segment},
    exit::Failure,
    migrate::duration,
    output::{Output, cell},
    pace::Pace,
};

/// Jobs that are followed at most; those go first whose retry is furthest ahead.
const FOLLOWED_MAX: usize = 2000;

/// Jobs that one look asks for by their ids.
const ASKED_MAX: usize = 20;

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
    seen.take_in(&page(&api, args, Page::Retries)?, Sight::Old);
    let mut first = true;
    loop {
        let mut made = look(&api, args, &mut seen)?;
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

/// Gives the attempts that were made since the look before, the earliest first.
fn look(api: &Api, args: &TailArgs, seen: &mut Seen) -> Result<Vec<Value>, Failure> {
    seen.looks += 1;
    let newest = page(api, args, Page::Newest)?;
    let mut made = seen.take_in(&newest, Sight::New);
    made.extend(seen.take_in(&page(api, args, Page::Running)?, Sight::Old));
    for id in seen.due(unix_seconds()) {
        match api.get(&format!("/v1/jobs/{}", segment(&id))) {
            Ok(job) => made.extend(seen.take_in(&[job], Sight::Old)),
            // Purged meanwhile.
            Err(Fault::Refused(refusal)) if refusal.status == 404 => seen.forget(&id),
            Err(fault) => return Err(fault.into()),
        }
    }
    seen.keep(&newest);
    made.sort_by_key(|attempt| attempt["started_at"].as_str().map(str::to_owned));
    Ok(made)
}

/// Which jobs are looked at.
#[derive(Clone, Copy, Debug)]
enum Page {
    Newest,
    Running,
    Retries,
}

fn page(api: &Api, args: &TailArgs, page: Page) -> Result<Vec<Value>, Failure> {
    let (status, queue) = match page {
        Page::Newest => (None, None),
        Page::Running => (Some("running"), None),
        Page::Retries => (Some("available"), Some("degraded")),
    };
    let query = Query::new([
        ("target", args.target.clone()),
        ("status", status.map(str::to_owned)),
        ("queue", queue.map(str::to_owned)),
        ("limit", Some(args.jobs.to_string())),
    ]);
    let answer = api.get(&format!("/v1/jobs{query}"))?;
    let jobs = answer["jobs"].as_array();
    Ok(jobs.cloned().unwrap_or_default())
}

/// What the attempts of a job are that was not seen before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Sight {
    /// News.
    New,
    /// Those of a past that nobody asked for.
    Old,
}

/// What is remembered of a job.
#[derive(Clone, Copy, Debug)]
struct Known {
    attempts: usize,
    /// When it is to be attempted next, in Unix seconds; `None` once it is final.
    due: Option<f64>,
    /// The look in which it was seen last.
    look: u64,
}

#[derive(Debug, Default)]
struct Seen {
    jobs: HashMap<String, Known>,
    looks: u64,
}

impl Seen {
    /// Takes jobs in and gives the attempts that are new in them.
    fn take_in(&mut self, jobs: &[Value], sight: Sight) -> Vec<Value> {
        let mut made = Vec::new();
        for job in jobs {
            let id = job["id"].as_str().unwrap_or_default();
            let attempts = job["attempts"].as_array().map_or(&[][..], Vec::as_slice);
            let before = match (self.jobs.get(id), sight) {
                (Some(known), _) => known.attempts,
                (None, Sight::New) => 0,
                (None, Sight::Old) => attempts.len(),
            };
            for attempt in attempts.iter().skip(before) {
                let mut attempt = attempt.clone();
                attempt["job"] = id.into();
                attempt["target"] = job["target"].clone();
                attempt["status"] = job["status"].clone();
                made.push(attempt);
            }
            let known = Known {
                attempts: attempts.len(),
                due: due(job),
                look: self.looks,
            };
            self.jobs.insert(id.to_owned(), known);
        }
        made
    }

    /// The jobs that are due and were not seen in this look; those first that were not for longest.
    fn due(&self, now: f64) -> Vec<String> {
        let mut due: Vec<(u64, &String)> = self
            .jobs
            .iter()
            .filter(|(_, known)| known.look < self.looks && known.due.is_some_and(|at| at <= now))
            .map(|(id, known)| (known.look, id))
            .collect();
        due.sort();
        let ids = due.into_iter().take(ASKED_MAX);
        ids.map(|(_, id)| id.clone()).collect()
    }

    fn forget(&mut self, id: &str) {
        self.jobs.remove(id);
    }

    /// Forgets the jobs that nothing more is to be expected of, but for those of this page, and
    /// what would be too many.
    fn keep(&mut self, page: &[Value]) {
        let page: HashSet<&str> = page.iter().filter_map(|job| job["id"].as_str()).collect();
        let on_page = |id: &String| page.contains(id.as_str());
        self.jobs
            .retain(|id, known| known.due.is_some() || on_page(id));
        let followed = self.jobs.iter().filter(|(id, _)| !on_page(id));
        let mut followed: Vec<(f64, String)> = followed
            .filter_map(|(id, known)| Some((known.due?, id.clone())))
            .collect();
        followed.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (_, id) in followed.drain(FOLLOWED_MAX.min(followed.len())..) {
            self.jobs.remove(&id);
        }
    }
}

/// When a job is to be attempted next, in Unix seconds: at once, while it runs.
fn due(job: &Value) -> Option<f64> {
    match job["status"].as_str()? {
        "running" => Some(0.0),
        "available" => {
            let at = DateTime::parse_from_rfc3339(job["scheduled_at"].as_str()?).ok()?;
            #[expect(clippy::cast_precision_loss, reason = "a second is enough")]
            Some(at.timestamp() as f64)
        }
        _ => None,
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

    fn ids(made: &[Value]) -> Vec<String> {
        let ids = made.iter().map(|attempt| cell(&attempt["job"]));
        ids.collect()
    }

    #[test]
    fn each_attempt_is_shown_once() {
        let mut seen = Seen::default();
        let page = [job("b", &["3"]), job("a", &["1", "2"])];
        let made = seen.take_in(&page, Sight::New);
        assert!(
            line(&made[1]).contains("http_status 503  4 ms  job a"),
            "{made:?}"
        );
        assert!(!line(&made[1]).contains('\u{1b}'));
        assert_eq!(ids(&made), ["b", "a", "a"]);
        let page = [job("c", &[]), job("b", &["3", "5"]), job("a", &["1", "2"])];
        assert_eq!(ids(&seen.take_in(&page, Sight::New)), ["b"]);
        let page = [job("c", &["6"])];
        assert_eq!(ids(&seen.take_in(&page, Sight::New)), ["c"]);
        // What an old job went through before is no news; what comes is.
        let old = |attempts: &[&str]| [job("old", attempts)];
        assert_eq!(
            ids(&seen.take_in(&old(&["1"]), Sight::Old)),
            [""; 0],
            "{seen:?}"
        );
        assert_eq!(
            ids(&seen.take_in(&old(&["1", "7"]), Sight::Old)),
            ["old"],
            "{seen:?}"
        );
    }

    #[test]
    fn a_job_that_left_the_page_is_asked_for_when_its_retry_is_due_and_no_more_once_it_is_final() {
        let mut seen = Seen::default();
        let waiting = |id: &str, due: &str| {
            let mut waiting = job(id, &["1"]);
            waiting["scheduled_at"] = due.into();
            waiting
        };
        let page = [
            waiting("soon", "1970-01-01T00:00:10.5Z"),
            waiting("late", "1970-01-01T00:01:00Z"),
        ];
        seen.take_in(&page, Sight::New);
        assert_eq!(seen.due(10.0), [""; 0], "they have just been seen");
        seen.looks += 1;
        assert_eq!(seen.due(9.0), [""; 0]);
        assert_eq!(seen.due(10.0), ["soon"]);
        let mut ended = job("soon", &["1", "2"]);
        ended["status"] = "completed".into();
        assert_eq!(ids(&seen.take_in(&[ended], Sight::Old)), ["soon"]);
        seen.keep(&[]);
        seen.looks += 1;
        assert_eq!(seen.due(100.0), ["late"]);
        let many: Vec<Value> = (0..FOLLOWED_MAX)
            .map(|n| waiting(&n.to_string(), "1970-01-01T00:00:20Z"))
            .collect();
        seen.take_in(&many, Sight::Old);
        seen.keep(&[]);
        assert_eq!(seen.jobs.len(), FOLLOWED_MAX);
        assert!(!seen.jobs.contains_key("late"));
    }
}
