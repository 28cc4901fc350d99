//! `hook jobs`: looks at jobs, stops them and puts them back.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::{
    api::{Api, ApiArgs, Query, segment},
    exit::Failure,
    output::{Output, Table, cell},
};

/// Jobs of one request, when all of them are asked for.
const PAGE_JOBS: usize = 500;

#[derive(Args, Debug)]
pub(crate) struct JobsArgs {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List jobs, the newest first.
    List {
        #[command(flatten)]
        filter: Filter,
        /// How many at most.
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
    },
    /// Show one job with its attempts.
    Show {
        /// The job's id.
        id: String,
        /// Show its body, URL and headers in full.
        #[arg(long)]
        body: bool,
    },
    /// Attempt a finished or cancelled job again.
    Retry {
        /// The job's id.
        id: String,
    },
    /// Stop a waiting job.
    Cancel {
        /// The job's id.
        id: String,
    },
    /// Put many finished jobs back, at a bounded rate.
    Replay {
        #[command(flatten)]
        filter: Filter,
        /// How many at most.
        #[arg(long, value_name = "N", default_value_t = 1000)]
        limit: usize,
    },
}

#[derive(Args, Debug)]
struct Filter {
    /// available, running, completed, failed or cancelled.
    #[arg(long)]
    status: Option<String>,
    /// The destination key.
    #[arg(long)]
    target: Option<String>,
    /// primary or degraded.
    #[arg(long)]
    queue: Option<String>,
    /// Enqueued at this time or later (RFC 3339).
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Enqueued before this time (RFC 3339).
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
}

pub(crate) fn run(args: JobsArgs, output: Output) -> Result<(), Failure> {
    let api = args.api.api()?;
    match args.command {
        Command::List { filter, limit } => list(&api, &filter, limit, output),
        Command::Show { id, body } => {
            let query = Query::new([("body", body.then(|| "true".to_owned()))]);
            let job = api.get(&format!("/v1/jobs/{}{query}", segment(&id)))?;
            output.result(&describe(&job), &job)
        }
        Command::Retry { id } => act(&api, &id, "retry", output),
        Command::Cancel { id } => act(&api, &id, "cancel", output),
        Command::Replay { filter, limit } => replay(&api, &filter, limit, output),
    }
}

fn list(api: &Api, filter: &Filter, limit: usize, output: Output) -> Result<(), Failure> {
    let mut jobs: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    while jobs.len() < limit {
        let page = (limit - jobs.len()).min(PAGE_JOBS);
        let query = Query::new([
            ("status", filter.status.clone()),
            ("target", filter.target.clone()),
            ("queue", filter.queue.clone()),
            ("from", filter.from.clone()),
            ("to", filter.to.clone()),
            ("limit", Some(page.to_string())),
            ("cursor", cursor),
        ]);
        let mut answer = api.get(&format!("/v1/jobs{query}"))?;
        if let Value::Array(page) = answer["jobs"].take() {
            jobs.extend(page);
        }
        cursor = answer["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    let mut table = Table::new(["ID", "STATUS", "QUEUE", "ATTEMPT", "TARGET", "CREATED"]);
    for job in &jobs {
        let attempt = format!("{}/{}", cell(&job["attempt"]), cell(&job["max_attempts"]));
        table.row([
            cell(&job["id"]),
            cell(&job["status"]),
            cell(&job["queue"]),
            attempt,
            cell(&job["target"]),
            cell(&job["created_at"]),
        ]);
    }
    output.result(&table.to_string(), &json!({ "jobs": jobs }))
}

fn act(api: &Api, id: &str, action: &str, output: Output) -> Result<(), Failure> {
    let job = api.post(&format!("/v1/jobs/{}/{action}", segment(id)), &Value::Null)?;
    let text = format!("{} is {}", cell(&job["id"]), cell(&job["status"]));
    output.result(&text, &job)
}

fn replay(api: &Api, filter: &Filter, limit: usize, output: Output) -> Result<(), Failure> {
    let mut left = limit;
    let mut more = true;
    // One request puts back what it can within a second or so.
    while more && left > 0 {
        let mut wanted = json!({ "limit": left });
        let fields = [
            ("status", &filter.status),
            ("target", &filter.target),
            ("queue", &filter.queue),
            ("from", &filter.from),
            ("to", &filter.to),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                wanted[name] = value.as_str().into();
            }
        }
        let answer = api.post("/v1/jobs/replay", &wanted)?;
        let replayed = answer["replayed"].as_u64().unwrap_or(0);
        let replayed = usize::try_from(replayed).unwrap_or(usize::MAX);
        left = left.saturating_sub(replayed);
        more = replayed > 0 && answer["more"].as_bool().unwrap_or(false);
    }
    let replayed = limit - left;
    let text = format!("put back {replayed} jobs");
    output.result(&text, &json!({ "replayed": replayed, "more": more }))
}

/// One job for people: its fields, then one line for each attempt.
fn describe(job: &Value) -> String {
    let fields = job.as_object().into_iter().flatten();
    let width = 14;
    let mut text = String::new();
    for (name, value) in fields.filter(|(name, _)| *name != "attempts") {
        text.push_str(&format!("{name:width$}{}\n", cell(value)));
    }
    let mut table = Table::new([
        "ATTEMPT", "STARTED", "MS", "OUTCOME", "KIND", "STATUS", "WORKER",
    ]);
    for attempt in job["attempts"].as_array().into_iter().flatten() {
        table.row([
            cell(&attempt["attempt"]),
            cell(&attempt["started_at"]),
            cell(&attempt["duration_ms"]),
            cell(&attempt["outcome"]),
            cell(&attempt["error_kind"]),
            cell(&attempt["response_status"]),
            cell(&attempt["worker"]),
        ]);
    }
    format!("{text}\n{table}")
}
