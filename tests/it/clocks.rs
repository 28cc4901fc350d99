//! Wrong clocks and odd time zones: Postgres is the only clock.

use std::{collections::HashMap, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use hook_testkit::{
    db::TestDb,
    process::{Listener, Process, Program},
    sink::{Sink, answer::Answer, script::Script},
    stack::Stack,
};
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::kit::{LIMIT, attempts, enqueue_many, wait_drained};

/// Between a due time and its request: a poll, and a busy machine.
const LATE_MAX: Duration = Duration::from_millis(1500);

async fn now(pool: &PgPool) -> DateTime<Utc> {
    sqlx::query_scalar("SELECT now()")
        .fetch_one(pool)
        .await
        .expect("Postgres tells the time")
}

/// A time that the API shows.
fn shown(value: &Value) -> DateTime<Utc> {
    let text = value.as_str().expect("a time");
    assert!(text.ends_with('Z'), "{text} is not in UTC");
    DateTime::parse_from_rfc3339(text)
        .expect("RFC 3339")
        .to_utc()
}

/// Starts a process of the stack whose clock is wrong by so many seconds.
async fn start_skewed(stack: &Stack, program: Program, seconds: i64, zone: &str) -> Process {
    let process = stack.process(program).await.set("TZ", zone);
    let process = process.skewed_clock(seconds).start();
    process.wait_ready(LIMIT).await;
    process
}

/// Replaces the processes of a stack by such with these clocks: the API's, then the workers'.
async fn skew(stack: &mut Stack, api: i64, workers: &[i64], zone: &str) {
    stack.workers[0].terminate(LIMIT).await;
    stack.workers.clear();
    for seconds in workers {
        let worker = start_skewed(stack, Program::Worker, *seconds, zone).await;
        stack.workers.push(worker);
    }
    stack
        .replace_api(start_skewed(stack, Program::Api, api, zone).await)
        .await;
}

/// The gap between the first two attempts of a job, by Postgres's clock.
fn first_gap(job: &Value) -> TimeDelta {
    let starts: Vec<_> = attempts(job)
        .iter()
        .map(|attempt| shown(&attempt["started_at"]))
        .collect();
    starts[1] - starts[0]
}

#[tokio::test]
async fn q_16_wrong_clocks_of_the_services_change_nothing() {
    const MINUTE: i64 = 60;
    let db = TestDb::new().await;
    let sink = Sink::start(Script::statuses([503, 200])).await;
    let mut stack = Stack::builder(&db.url()).start().await;
    skew(&mut stack, 60 * MINUTE, &[10 * MINUTE, -10 * MINUTE], "UTC").await;
    let pool = db.pool().await;
    let jobs: Vec<Value> = (0..60)
        .map(|n| json!({"url": sink.url("/x"), "target": format!("t{}.test", n % 30)}))
        .collect();
    let ids = enqueue_many(&stack, &jobs).await;
    let due = now(&pool).await + TimeDelta::seconds(3);
    let delayed = json!({"url": sink.url("/d"), "target": "later.test", "scheduled_at": due});
    let delayed = stack.enqueue_id(&delayed).await;
    let counts = wait_drained(&pool).await;
    assert_eq!((counts["completed"], counts["ended"]), (61, 0));
    assert_eq!(sink.request_count(), 2 * 61, "nothing is sent twice");
    for id in &ids {
        let gap = first_gap(&stack.job(id).await);
        // 1 s ± 20 %.
        let (least, most) = (TimeDelta::milliseconds(790), TimeDelta::milliseconds(1200));
        let most = most + TimeDelta::from_std(LATE_MAX).expect("short");
        assert!((least..most).contains(&gap), "{gap}");
    }
    let first = shown(&attempts(&stack.job(&delayed).await)[0]["started_at"]);
    assert!(first >= due, "{first} is before {due}");
    let postgres = now(&pool).await.timestamp();
    for request in sink.requests() {
        let sent: i64 = request
            .header("webhook-timestamp")
            .and_then(|text| text.parse().ok())
            .expect("a time");
        assert!(
            (postgres - sent).abs() < 60,
            "the receiver sees Postgres's time"
        );
    }
    let mut by_worker: HashMap<String, usize> = HashMap::new();
    for id in &ids {
        for attempt in attempts(&stack.job(id).await) {
            let worker = attempt["worker"].as_str().expect("a worker").to_owned();
            *by_worker.entry(worker).or_default() += 1;
        }
    }
    assert_eq!(by_worker.len(), 2, "both workers took part");
    for worker in &stack.workers {
        let metrics = stack.metrics_of(worker).await;
        assert_eq!(metrics.sum("hook_worker_leases_lost_total", &[]), 0.0);
    }
    let reaped = stack.metrics(Program::Janitor).await;
    assert_eq!(reaped.sum("hook_janitor_leases_reaped_total", &[]), 0.0);
}

/// Enqueues jobs that are due now and in two seconds, each failing once, and checks when they
/// were sent and what the API shows.
async fn check_times(stack: &Stack, sink: &Sink, pool: &PgPool) {
    let begun = now(pool).await;
    let due = begun + TimeDelta::seconds(2);
    let offset = chrono::FixedOffset::east_opt((5 * 60 + 45) * 60).expect("an offset");
    let text = due.with_timezone(&offset).to_rfc3339();
    assert!(text.ends_with("+05:45"));
    let job = |scheduled: Option<&str>, n: usize| {
        let mut job = json!({"url": sink.url("/x"), "target": format!("t{n}.test")});
        if let Some(at) = scheduled {
            job["scheduled_at"] = json!(at);
        }
        job
    };
    let mut jobs: Vec<Value> = (0..10).map(|n| job(None, n)).collect();
    jobs.extend((0..10).map(|n| job(Some(&text), n)));
    let ids = enqueue_many(stack, &jobs).await;
    wait_drained(pool).await;
    let late = TimeDelta::from_std(LATE_MAX).expect("short");
    for (n, id) in ids.iter().enumerate() {
        let job = stack.job(id).await;
        assert_eq!(job["status"], "completed");
        let wanted = if n < 10 { begun } else { due };
        let first = shown(&attempts(&job)[0]["started_at"]);
        assert!(
            (wanted..wanted + late).contains(&first),
            "{first}, not {wanted}"
        );
        if n >= 10 {
            assert_eq!(shown(&job["scheduled_at"]), due);
        }
        let gap = first_gap(&job);
        assert!(
            (TimeDelta::milliseconds(790)..TimeDelta::milliseconds(1200) + late).contains(&gap),
            "{gap}"
        );
        shown(&job["created_at"]);
        shown(&job["finished_at"]);
    }
}

#[tokio::test]
async fn q_17_time_zones_and_the_change_to_winter_time_shift_nothing() {
    let db = TestDb::new().await;
    let pool = db.pool().await;
    sqlx::query(
        "DO $$ BEGIN
            EXECUTE format('ALTER DATABASE %I SET timezone = ''Asia/Kolkata''', current_database());
        END $$",
    )
    .execute(&pool)
    .await
    .expect("the zone can be set");
    let sink = Sink::start(Script::new(|_, nth| {
        Answer::status(if nth == 1 { 503 } else { 200 })
    }))
    .await;
    let stack = Stack::builder(&db.url())
        .set_for(Program::Api, "TZ", "America/New_York")
        .set_for(Program::Worker, "TZ", "Pacific/Chatham")
        .start()
        .await;
    check_times(&stack, &sink, &pool).await;
    drop(stack);

    let mut stack = Stack::builder(&db.url()).start().await;
    let change = DateTime::parse_from_rfc3339("2026-10-25T01:00:00Z").expect("a time");
    // The hour is set back while the jobs are on their way.
    let start = change.to_utc() - TimeDelta::seconds(2);
    let seconds = (start - now(&pool).await).num_seconds();
    skew(&mut stack, seconds, &[seconds], "Europe/Copenhagen").await;
    check_times(&stack, &sink, &pool).await;
    assert!(stack.api.address(Listener::Public, LIMIT).await.port() > 0);

    let without_zone: Vec<String> = sqlx::query_scalar(
        "SELECT format('%s.%s', c.table_name, c.column_name) FROM information_schema.columns AS c
         WHERE c.table_schema = 'hook' AND c.data_type <> 'timestamp with time zone'
            AND (c.column_name LIKE '%\\_at' OR c.column_name LIKE '%\\_until')",
    )
    .fetch_all(&pool)
    .await
    .expect("columns can be read");
    assert!(without_zone.is_empty(), "{without_zone:?}");
}
