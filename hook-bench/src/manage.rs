//! `hook bench manage`: how long the routes of people and of the operations page take when very
//! many jobs and targets are stored.
//!
//! Half of the jobs wait, four of ten were delivered, one of ten failed, all spread evenly over the
//! targets. No worker runs, so that everything stays as it is. A connection asks one route after
//! the other, round after round, each time for another target, job or page.

use anyhow::{Context as _, ensure};
use clap::Args;
use serde_json::Value;

use crate::{
    clock,
    command::Common,
    http::Connection,
    latency::Latency,
    progress::say,
    report::{Column, Findings, Line, Table, column},
    rig::{Rig, Service},
    sql::{
        backlog,
        fill::{self, Backlog, Ended, How},
    },
};

/// What a list, a filter or a look at a target may take, in milliseconds.
const P99_MAX: f64 = 50.0;

/// Rounds before the first that counts: connections are opened and statements prepared.
const WARM_UP: usize = 8;

#[derive(Args, Clone, Debug)]
pub(crate) struct ManageArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Jobs that are stored.
    #[arg(long, default_value_t = 10_000_000, value_name = "N")]
    jobs: i64,
    /// Destinations that they are for.
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    targets: i64,
    /// Requests of each kind.
    #[arg(long, default_value_t = 300, value_name = "N")]
    requests: usize,
    /// Bytes of a job's body.
    #[arg(long, default_value_t = 128, value_name = "BYTES")]
    body_bytes: usize,
}

const COLUMNS: &[Column] = &[
    column("p50_ms", "p50 ms", 2),
    column("p90_ms", "p90", 2),
    column("p99_ms", "p99", 2),
    column("max_ms", "max", 1),
    column("answer_bytes", "bytes", 0),
];

/// What is asked for. `{target}` stands for the name of a target, `{job}` for the id of a job, and
/// `{cursor}` for where the last page of the same list ended.
const QUESTIONS: [&str; 19] = [
    "/v1/jobs",
    "/v1/jobs?limit=100&cursor={cursor}",
    "/v1/jobs?status=available",
    "/v1/jobs?status=completed&limit=100&cursor={cursor}",
    "/v1/jobs?status=failed&limit=100&cursor={cursor}",
    "/v1/jobs?queue=degraded",
    "/v1/jobs?target={target}",
    "/v1/jobs?target={target}&status=failed",
    "/v1/jobs/{job}",
    "/v1/targets?order=waiting&limit=100&hours=24",
    "/v1/targets?order=failing&limit=100&hours=24",
    "/v1/targets?order=slow&limit=100&hours=24",
    "/v1/targets/{target}",
    "/v1/queues",
    "/v1/overview",
    "/v1/failures?limit=200",
    "/v1/next?limit=100",
    "/v1/audit",
    "/v1/replays",
];

/// One kind of request, and how it went so far.
struct Question {
    path: &'static str,
    /// Where the last page ended.
    cursor: Option<String>,
    nanos: Vec<u64>,
    answer_bytes: usize,
}

pub(crate) async fn run(args: &ManageArgs) -> anyhow::Result<Findings> {
    ensure!(args.targets > 0, "--targets must be above 0");
    let rig = Rig::start(&args.common).await?;
    fill(&rig, args).await?;
    // It measures what some answers are made of.
    let janitor = rig.janitor(&[]).await?;
    let api = rig.api(&[]).await?;
    say("asking");
    let questions = ask(args, &api).await?;
    for service in [api, janitor] {
        service.child.stop().await?;
    }
    rig.stop().await?;

    let mut table = Table::new("manage", COLUMNS);
    let mut lines = Vec::new();
    for Question {
        path,
        nanos,
        answer_bytes,
        ..
    } in questions
    {
        let latency = Latency::of(nanos);
        #[expect(clippy::cast_precision_loss, reason = "an answer is small")]
        let bytes = answer_bytes as f64;
        let Latency { p50, p90, p99, max } = latency;
        table.row(path, [p50, p90, p99, max, bytes].map(Some).to_vec());
        lines.push(Line::at_most(format!("{path}: p99 ms"), p99, P99_MAX));
    }
    Ok(Findings {
        tables: vec![table],
        lines,
    })
}

async fn fill(rig: &Rig, args: &ManageArgs) -> anyhow::Result<()> {
    say(format_args!(
        "filling in {} jobs for {} targets",
        args.jobs, args.targets
    ));
    let targets: Vec<String> = (0..args.targets).map(target).collect();
    let part = |first: i64, tenths: i64| Backlog {
        first,
        jobs: args.jobs * tenths / 10,
        urls: targets
            .iter()
            .map(|name| format!("http://{name}/hook"))
            .collect(),
        targets: targets.clone(),
        body_bytes: args.body_bytes,
        due_in: 0.0,
    };
    let delivered = part(0, 4);
    let failed = part(delivered.jobs, 1);
    let waiting = part(failed.first + failed.jobs, 5);
    let ended = |bucket, how, seconds_ago| Ended {
        bucket,
        how,
        seconds_ago,
    };
    fill::fill_ended(&rig.admin, &delivered, ended(Some(0), How::Delivered, 7200)).await?;
    backlog::close_first_bucket(&rig.admin).await?;
    fill::fill_ended(&rig.admin, &failed, ended(None, How::Failed, 60)).await?;
    fill::fill(&rig.admin, &waiting).await?;
    // So many jobs do not come at once; Postgres has looked at most of them long ago.
    Ok(backlog::look_at_all(&rig.admin).await?)
}

fn target(n: i64) -> String {
    format!("target-{n}.example")
}

async fn ask(args: &ManageArgs, api: &Service) -> anyhow::Result<Vec<Question>> {
    let mut questions = QUESTIONS.map(|path| Question {
        path,
        cursor: None,
        nanos: Vec::new(),
        answer_bytes: 0,
    });
    let mut connection = Connection::open(api.public).await?;
    let mut ids: Vec<String> = Vec::new();
    let mut round = 0;
    for nth in 0..WARM_UP + args.requests {
        // Steps of a prime number come by every target, in an order that no cache likes.
        round = (round + 7919) % args.targets;
        for question in &mut questions {
            let id = ids.get(nth % ids.len().max(1));
            let path = question.filled(&target(round), id);
            let begun = clock::now();
            let answer = connection.get(&path).await?;
            let took = clock::now() - begun;
            ensure!(answer.status == 200, "{path}: {}", answer.status);
            if nth >= WARM_UP {
                question.nanos.push(took);
            }
            question.answer_bytes = question.answer_bytes.max(answer.body.len());
            let body: Value = serde_json::from_slice(&answer.body).context("reading an answer")?;
            question.cursor = body["next_cursor"].as_str().map(ToOwned::to_owned);
            ids.extend(body["jobs"][0]["id"].as_str().map(ToOwned::to_owned));
        }
    }
    Ok(questions.into())
}

impl Question {
    /// The path with names in it; without a job or a page to go on from, the list from its
    /// beginning.
    fn filled(&self, target: &str, id: Option<&String>) -> String {
        let path = self.path.replace("{target}", target);
        let path = match &self.cursor {
            Some(cursor) => path.replace("{cursor}", cursor),
            None => path.replace("&cursor={cursor}", ""),
        };
        match id {
            Some(id) => path.replace("{job}", id),
            None => path.replace("/{job}", ""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_filled_in_and_what_is_missing_is_left_out() {
        let question = |path, cursor: Option<&str>| Question {
            path,
            cursor: cursor.map(ToOwned::to_owned),
            nanos: Vec::new(),
            answer_bytes: 0,
        };
        let list = "/v1/jobs?limit=100&cursor={cursor}";
        let id = "x".to_owned();
        assert_eq!(question(list, None).filled("t", None), "/v1/jobs?limit=100");
        assert_eq!(
            question(list, Some("c")).filled("t", Some(&id)),
            "/v1/jobs?limit=100&cursor=c"
        );
        let job = question("/v1/jobs/{job}", None);
        assert_eq!(job.filled("t", Some(&id)), "/v1/jobs/x");
        assert_eq!(job.filled("t", None), "/v1/jobs");
        let target = question("/v1/jobs?target={target}", None);
        assert_eq!(target.filled("t", None), "/v1/jobs?target=t");
    }
}
