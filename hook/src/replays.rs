//! `hook replays`, and the start of one by `hook jobs replay`.
//!
//! The services do the work: a command that is interrupted while it watches stops nothing.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::{
    api::{Api, ApiArgs, Query, segment},
    exit::Failure,
    output::{Output, Table, cell},
    pace::Pace,
    progress::Bar,
};

/// Between two looks at a replay.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(Args, Debug)]
pub(crate) struct ReplaysArgs {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List replays, the latest first.
    List {
        /// How many at most.
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
    },
    /// Show how far a replay has come.
    Show {
        /// The replay's id.
        id: String,
        /// Wait until it has ended.
        #[arg(long)]
        wait: bool,
    },
    /// Stop a replay that is under way; jobs that are back stay back.
    Cancel {
        /// The replay's id.
        id: String,
    },
}

/// How a replay is started.
#[derive(Args, Debug)]
pub(crate) struct Start {
    /// How many at most.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
    /// Only jobs that ended for this, such as timeout.
    #[arg(long, value_name = "KIND")]
    error_kind: Option<String>,
    /// How many a second.
    #[arg(long, value_name = "N", default_value_t = 100)]
    rate: usize,
    /// Do not wait until all are back.
    #[arg(long)]
    detach: bool,
    /// Repeat with the same key to get the same replay instead of a second one.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

pub(crate) fn run(args: ReplaysArgs, output: Output) -> Result<(), Failure> {
    let api = args.api.api()?;
    let route = |id: &str| format!("/v1/replays/{}", segment(id));
    match args.command {
        Command::List { limit } => {
            let query = Query::new([("limit", Some(limit.to_string()))]);
            let answer = api.get(&format!("/v1/replays{query}"))?;
            let replays = answer["replays"].as_array().map(Vec::as_slice);
            output.result(&table(replays.unwrap_or_default()), &answer)
        }
        Command::Show { id, wait } => {
            let replay = api.get(&route(&id))?;
            let replay = if wait { watch(&api, replay)? } else { replay };
            show(&replay, output)
        }
        Command::Cancel { id } => {
            let replay = api.post(&format!("{}/cancel", route(&id)), &Value::Null)?;
            show(&replay, output)
        }
    }
}

/// Has the jobs of `filter`, which is a JSON object, put back.
pub(crate) fn start(
    api: &Api,
    start: Start,
    mut filter: Value,
    output: Output,
) -> Result<(), Failure> {
    filter["limit"] = start.limit.into();
    filter["rate_per_second"] = start.rate.into();
    let more = [
        ("error_kind", start.error_kind),
        ("idempotency_key", start.idempotency_key),
    ];
    for (name, value) in more {
        if let Some(value) = value {
            filter[name] = json!(value);
        }
    }
    let replay = api.post("/v1/jobs/replay", &filter)?;
    let replay = if start.detach {
        replay
    } else {
        watch(api, replay)?
    };
    show(&replay, output)
}

/// Looks at a replay until it has ended, and gives it as it is then.
fn watch(api: &Api, mut replay: Value) -> Result<Value, Failure> {
    let pace = Pace::new(LOOK_EVERY)?;
    let bar = Bar::new();
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    while replay["finished_at"].is_null() {
        bar.show(count(&replay["done"]), count(&replay["total"]), "jobs");
        pace.wait();
        let id = replay["id"].as_str().unwrap_or_default();
        replay = api.get(&format!("/v1/replays/{}", segment(id)))?;
    }
    Ok(replay)
}

fn show(replay: &Value, output: Output) -> Result<(), Failure> {
    output.result(&table(std::slice::from_ref(replay)), replay)
}

fn table(replays: &[Value]) -> String {
    let columns = [
        "id",
        "state",
        "done",
        "total",
        "rate_per_second",
        "target",
        "requested_at",
    ];
    let mut table = Table::new([
        "ID",
        "STATE",
        "DONE",
        "TOTAL",
        "RATE",
        "TARGET",
        "REQUESTED",
    ]);
    for replay in replays {
        table.row(columns.map(|column| cell(&replay[column])));
    }
    table.to_string()
}
