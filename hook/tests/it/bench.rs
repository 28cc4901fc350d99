//! Small versions of the load scenarios: every part of them runs, and what does not depend on how
//! busy the machine is holds. Times and throughput are for `hook bench` itself.

use std::{path::PathBuf, process::Command};

use clap::Parser;
use hook_bench::command::BenchArgs;
use serde_json::Value;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: BenchArgs,
}

/// Runs a scenario and gives its report; a scenario that lost a job or did not stop in good order
/// has failed. It is driven from here, so that what one has made for its Postgres serves the others.
fn bench(arguments: &[&str]) -> Value {
    let arguments = ["hook bench"]
        .iter()
        .chain(arguments)
        .chain(&["--volatile"]);
    let line = Line::try_parse_from(arguments).unwrap();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_hook"));
    let report = hook_bench::command::run(line.args, program).unwrap();
    serde_json::to_value(report.unwrap()).unwrap()
}

/// The same as somebody types it.
fn typed(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_hook"))
        .args(["--json", "bench"])
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The figure of a row; null where there is none.
fn figure(report: &Value, table: &str, row: &str, key: &str) -> Value {
    let tables = report["tables"].as_array().unwrap();
    let table = tables.iter().find(|found| found["title"] == table).unwrap();
    let rows = table["rows"].as_array().unwrap();
    let row = rows.iter().find(|found| found["name"] == row).unwrap();
    row[key].clone()
}

fn number(report: &Value, table: &str, row: &str, key: &str) -> f64 {
    figure(report, table, row, key).as_f64().unwrap()
}

fn line(report: &Value, what: &str) -> Value {
    let lines = report["lines"].as_array().unwrap();
    lines
        .iter()
        .find(|found| found["what"] == what)
        .unwrap()
        .clone()
}

#[test]
fn path_delivers_every_job_and_runs_the_floor_beside_it() {
    let report = bench(&[
        "path",
        "--seconds=0.3",
        "--rates=50%",
        "--targets=3",
        "--workers=2",
        "--window=300",
    ]);
    for row in ["full", "50 % of full", "floor, full"] {
        assert!(number(&report, "load", row, "jobs_per_second") > 0.0);
        assert!(number(&report, "per job", row, "wal_bytes_per_job") > 1024.0);
    }
    for process in ["api", "worker", "postgres"] {
        let key = format!("{process}_cpu_us_per_job");
        assert!(number(&report, "per job", "full", &key) > 0.0);
    }
    assert_eq!(
        figure(&report, "per job", "floor, full", "api_cpu_us_per_job"),
        Value::Null
    );
    assert!(line(&report, "jobs/s ÷ floor")["value"].as_f64().unwrap() > 0.0);
    assert_eq!(report["machine"]["optimised"], false);
    assert_eq!(report["machine"]["durable"], false);
}

#[test]
fn ingest_stores_every_job_that_it_answers() {
    let report = bench(&["ingest", "--seconds=0.2", "--batch=20", "--targets=10"]);
    assert_eq!(line(&report, "jobs stored ÷ answered")["holds"], true);
    for row in [
        "no-op endpoint",
        "insert per request",
        "single",
        "single, with key",
        "batches of 20",
    ] {
        assert!(number(&report, "enqueue", row, "jobs_per_second") > 0.0);
    }
}

#[test]
fn deliver_completes_a_backlog_and_sends_no_job_twice() {
    let report = typed(&[
        "deliver",
        "--volatile",
        "--jobs=3000",
        "--targets=7",
        "--runs=1",
    ]);
    assert_eq!(number(&report, "deliver", "from a backlog", "repeats"), 0.0);
    assert!(number(&report, "deliver", "bare posts", "jobs_per_second") > 0.0);
}

#[test]
fn memory_fills_every_slot_over_few_connections() {
    let report = bench(&["memory", "--slots=200", "--pool=4", "--targets=20"]);
    assert!(number(&report, "memory", "200 slots", "connections") <= 16.0);
    assert!(number(&report, "memory", "200 slots", "in_flight") >= 100.0);
}

#[test]
fn dequeue_touches_few_pages_and_never_reads_the_table_whatever_waits() {
    let report = bench(&["dequeue", "--jobs=3000", "--claims=10"]);
    let rows = report["tables"][0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 5);
    for row in rows {
        assert_eq!(row["table_scans"], 0.0, "{row}");
        let probe = row["probe_buffers_per_job"].as_f64().unwrap();
        assert!(probe > 0.0 && probe <= 10.0, "{row}");
        assert!(row["naive_p50_ms"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn purge_removes_every_job_and_a_bucket_at_one_stroke() {
    let report = bench(&[
        "purge",
        "--jobs=5000",
        "--kept=1000",
        "--rate=50",
        "--seconds=1",
    ]);
    let wal = number(
        &report,
        "purge",
        "a bucket of the ring",
        "wal_bytes_per_job",
    );
    assert!(wal < 20.0, "{wal} bytes of WAL for each job");
    for row in ["before", "purge"] {
        let claim = number(&report, "beside a worker", row, "claim_p99_ms");
        assert!(claim > 0.0, "{report}");
    }
}

#[test]
fn replay_delivers_every_failed_job_once_beside_healthy_ones() {
    let report = bench(&[
        "replay",
        "--jobs=300",
        "--replay-rate=300",
        "--rate=50",
        "--seconds=1",
    ]);
    let once = line(&report, "replayed jobs that arrived ÷ jobs");
    assert_eq!(once["value"], 1.0, "{report}");
    assert!(number(&report, "replay", "replay", "p99_ms") > 0.0);
}

#[test]
fn manage_asks_every_route_and_gets_an_answer() {
    let report = bench(&["manage", "--jobs=1000", "--targets=50", "--requests=3"]);
    let rows = report["tables"][0]["rows"].as_array().unwrap();
    let all = rows.iter().all(|row| row["p99_ms"].as_f64() > Some(0.0));
    assert!(rows.len() > 15 && all, "{report}");
    // A job of each list was found, so none of the lists is empty for want of a job.
    let list = figure(
        &report,
        "manage",
        "/v1/jobs?status=failed&limit=100&cursor={cursor}",
        "answer_bytes",
    );
    assert!(list.as_f64() > Some(1000.0), "{report}");
}

#[test]
fn soak_delivers_and_purges_every_job_and_never_stores_half_of_what_was_sent() {
    let report = bench(&[
        "soak",
        "--minutes=0.05",
        "--every=0.5",
        "--rate=100",
        "--retention=300ms",
        "--set=HOOK_JANITOR_INTERVAL=200ms",
        "--targets=5",
        "--connections=4",
        "--body-bytes=65536",
    ]);
    for what in [
        "repeats",
        "jobs delivered ÷ jobs sent",
        "jobs purged ÷ jobs sent",
    ] {
        assert_eq!(line(&report, what)["holds"], true, "{report}");
    }
    let jobs = number(&report, "totals", "jobs", "jobs");
    assert_eq!(number(&report, "totals", "jobs", "delivered"), jobs);
    assert_eq!(number(&report, "totals", "jobs", "purged"), jobs);
    let sent_mb = jobs * 65_536.0 / 1e6;
    let rows = report["tables"][0]["rows"].as_array().unwrap();
    let sizes = rows.iter().map(|row| row["table_mb"].as_f64().unwrap());
    let largest = sizes.fold(0.0, f64::max);
    assert!(largest < sent_mb / 2.0, "{largest} MB of {sent_mb}");
}
