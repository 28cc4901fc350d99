//! `hook jobs`: looks at jobs, stops them and puts them back.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::{
    api::{Api, ApiArgs, Query, segment},
    exit::Failure,
    output::{Output, Table, cell},
    replays,
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
    /// Put many finished jobs back, at a bounded rate; goes on when this command is interrupted.
    Replay {
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        start: replays::Start,
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

impl Filter {
    fn json(self) -> Value {
        let fields = [
            ("status", self.status),
            ("target", self.target),
            ("queue", self.queue),
            ("from", self.from),
            ("to", self.to),
        ];
        let given = fields.into_iter();
        let given = given.filter_map(|(name, value)| Some((name.to_owned(), value?.into())));
        Value::Object(given.collect())
    }
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
        Command::Replay { filter, start } => replays::start(&api, start, filter.json(), output),
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
