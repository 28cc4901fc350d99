//! `hook queues`: how many jobs are where.

use clap::Args;

use crate::{
    api::ApiArgs,
    exit::Failure,
    output::{Output, Table, cell},
};

#[derive(Args, Debug)]
pub(crate) struct QueuesArgs {
    #[command(flatten)]
    api: ApiArgs,
}

pub(crate) fn run(args: QueuesArgs, output: Output) -> Result<(), Failure> {
    let answer = args.api.api()?.get("/v1/queues")?;
    let columns = [
        "QUEUE",
        "AVAILABLE",
        "RUNNING",
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "OLDEST DUE MS",
    ];
    let mut table = Table::new(columns);
    for queue in answer["queues"].as_array().into_iter().flatten() {
        table.row([
            cell(&queue["queue"]),
            cell(&queue["available"]),
            cell(&queue["running"]),
            cell(&queue["completed"]),
            cell(&queue["failed"]),
            cell(&queue["cancelled"]),
            cell(&queue["oldest_due_age_ms"]),
        ]);
    }
    output.result(&table.to_string(), &answer)
}
