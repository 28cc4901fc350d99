//! What an operator sees: the running product scraped by a real Prometheus, every dashboard
//! expression and rule evaluated against it, alerts that fire, signals that tell causes apart.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::Ipv4Addr,
    path::Path,
    time::Duration,
};

use hook_testkit::{
    db::TestDb,
    dns::{Dns, zone::Reply},
    process::{Listener, Program, Signal},
    prometheus::{Prometheus, promtool},
    sink::{Sink, answer::Answer, script::Script},
    stack::{Stack, builder::StackBuilder, metrics::Metrics},
    wait::{pause, wait_for, wait_until},
};
use serde_json::json;
use sqlx::{Connection as _, Executor as _, PgConnection, Postgres, Transaction};
use tokio::time::Instant;

use crate::{
    dashboards::{metrics_in, queries, rules, text},
    kit::{LIMIT, amount},
};

const DEQUEUE: &str = "hook_worker_dequeue_duration_seconds";
const WAIT: &str = "hook_gate_wait_seconds";

/// Healthy targets under load.
const HEALTHY: usize = 5;

/// The product with names that the stub DNS knows, penalties within seconds, and retention within
/// the test.
fn profile(db: &TestDb, dns: &Dns) -> StackBuilder {
    Stack::builder(&db.url())
        .set("HOOK_DNS_SERVERS", dns.address())
        .set("HOOK_PENALTY_REFRESH", "500ms")
        .set("HOOK_HOLD_FAILURES", 3)
        .set("HOOK_HOLD_AFTER", "500ms")
        .set("HOOK_RETRY_SCHEDULE", "100ms")
        .set("HOOK_MAX_ATTEMPTS", 50)
        .set("HOOK_RETENTION_COMPLETED", "2s")
        .set("HOOK_RETENTION_FAILED", "4s")
}

async fn loopback_dns() -> Dns {
    let dns = Dns::start().await;
    dns.set_others(|_| Some(Reply::address(Ipv4Addr::LOCALHOST)));
    dns
}

/// Some jobs for healthy targets, one for the sick one, and a request that is refused.
async fn offer(stack: &Stack, sink: &Sink) {
    for n in 0..HEALTHY {
        let url = sink.url_at(&format!("t{n}.test"), "/ok");
        stack.enqueue_to(&url).await;
    }
    stack.enqueue_to(&sink.url_at("sick.test", "/sick")).await;
    let refused = stack.enqueue(&json!({"url": "nowhere"})).await;
    assert_eq!(refused.status, 422);
}

async fn scraping(stack: &Stack, rules: &Path) -> Prometheus {
    let mut targets = Vec::new();
    for process in stack.processes() {
        let ops = process.address(Listener::Ops, LIMIT).await;
        targets.push((process.name(), ops));
    }
    Prometheus::start(&targets, Some(rules)).await
}

/// The rules as they are, but for their patience: a test has seconds.
fn impatient_rules(directory: &Path) -> std::path::PathBuf {
    let rules: String = text("dashboards/rules.yml")
        .lines()
        .map(|line| match line.trim_start().strip_prefix("for: ") {
            Some(_) => "        for: 1s\n".to_owned(),
            None => {
                format!("{line}\n").replace("_timestamp_seconds > 60", "_timestamp_seconds > 4")
            }
        })
        .collect();
    let file = directory.join("rules.yml");
    fs::write(&file, rules).expect("the rules are written");
    file
}

/// A panel's expression for a Prometheus that has known the product for seconds.
fn short(expression: &str) -> String {
    expression
        .replace("$__rate_interval", "15s")
        .replace("[$__interval:1m]", "[30s:1s]")
}

/// The names of the alerts that fire.
async fn firing(prometheus: &Prometheus) -> BTreeSet<String> {
    let alerts = prometheus.query(r#"ALERTS{alertstate="firing"}"#).await;
    let alerts = alerts.expect("Prometheus answers");
    let names = alerts
        .into_iter()
        .map(|alert| alert.labels["alertname"].clone());
    names.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_panel_and_rule_has_data_and_alerts_fire() {
    let (db, dns) = (TestDb::new().await, loopback_dns().await);
    let sick = Script::status(503);
    let sink = Sink::start(Script::by_path([
        ("/ok", Script::status(200)),
        ("/sick", sick),
    ]))
    .await;
    let mut stack = profile(&db, &dns).start().await;
    let directory = tempfile::tempdir().unwrap();
    let prometheus = scraping(&stack, &impatient_rules(directory.path())).await;

    fail_a_statement(&stack, &sink, &db).await;

    let wanted: BTreeMap<String, String> = queries()
        .into_iter()
        .map(|query| {
            (
                format!("{}: {}: {}", query.dashboard, query.panel, query.expression),
                query.expression,
            )
        })
        .collect();
    wait_until(LIMIT, async || {
        offer(&stack, &sink).await;
        let mut empty = Vec::new();
        for (place, expression) in &wanted {
            let points = prometheus.query(&short(expression)).await;
            let points = points.unwrap_or_else(|error| panic!("{place}: {error}"));
            if points.iter().all(|point| point.value.is_nan()) {
                empty.push(place);
            }
        }
        if empty.is_empty() {
            Ok(())
        } else {
            Err(format!("empty: {empty:#?}"))
        }
    })
    .await;

    // Groups are evaluated for the first time within their interval.
    wait_until(LIMIT, async || {
        let mut rules = prometheus.rules().await?;
        rules.retain(|rule| rule["health"] != "ok");
        if rules.is_empty() {
            Ok(())
        } else {
            Err(format!("{rules:#?}"))
        }
    })
    .await;
    for rule in rules() {
        if rule.alert.is_none() {
            let points = prometheus.query(&rule.expression).await.unwrap();
            assert!(!points.is_empty(), "{}", rule.expression);
        }
        for name in metrics_in(&rule.expression) {
            let points = prometheus.query(&name).await.unwrap();
            assert!(!points.is_empty(), "{name} of {:?}", rule.alert);
        }
    }
    alerts_fire(&mut stack, &prometheus, &db).await;
}

/// Ends the session in which the API stores a job, for the panels that show faults.
async fn fail_a_statement(stack: &Stack, sink: &Sink, db: &TestDb) {
    let (mut locker, mut outside) = (db.connect().await, db.connect().await);
    let ready = "LOCK TABLE hook.ready IN ACCESS EXCLUSIVE MODE";
    let lock = locked(&mut locker, ready).await;
    let job = json!({"url": sink.url("/ok")});
    let cut = wait_for(
        LIMIT,
        async || -> Option<bool> {
            let waiting = sqlx::query_scalar(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE application_name = 'hook-api' AND wait_event_type = 'Lock' LIMIT 1",
            );
            let ended = waiting.fetch_optional(&mut outside).await;
            ended.expect("Postgres answers")
        },
        |ended| *ended == Some(true),
    );
    let (refused, _) = tokio::join!(stack.enqueue(&job), cut);
    assert_eq!(refused.status, 503, "{}", refused.text());
    lock.rollback().await.expect("the lock is let go");
}

/// Locks tables against everybody until the transaction is rolled back.
async fn locked<'a>(
    outside: &'a mut PgConnection,
    tables: &'static str,
) -> Transaction<'a, Postgres> {
    let mut lock = outside.begin().await.expect("a transaction begins");
    let locking = lock.execute(tables).await;
    locking.expect("the tables can be locked");
    lock
}

/// A held target, a dead loop, and a missing janitor, one after the other.
async fn alerts_fire(stack: &mut Stack, prometheus: &Prometheus, db: &TestDb) {
    let fires = async |name: &str| {
        wait_for(
            LIMIT,
            async || firing(prometheus).await,
            |all| all.contains(name),
        )
        .await;
    };
    let ends = async |name: &str| {
        wait_for(
            LIMIT,
            async || firing(prometheus).await,
            |all| !all.contains(name),
        )
        .await;
    };
    fires("HookTargetHeld").await;
    assert!(!firing(prometheus).await.contains("HookWorkerStuck"));
    let mut locker = db.connect().await;
    let ready = "LOCK TABLE hook.ready IN ACCESS EXCLUSIVE MODE";
    let lock = locked(&mut locker, ready).await;
    fires("HookWorkerStuck").await;
    lock.rollback().await.expect("the lock is let go");
    ends("HookWorkerStuck").await;

    assert!(!firing(prometheus).await.contains("HookJanitorMissing"));
    stack.janitor.take();
    fires("HookJanitorMissing").await;
    fires("HookProcessDown").await;
}

#[tokio::test]
async fn what_is_exported_passes_the_naming_lint() {
    let (db, dns) = (TestDb::new().await, loopback_dns().await);
    let sink = Sink::start(200).await;
    let stack = profile(&db, &dns).start().await;
    offer(&stack, &sink).await;
    for program in [Program::Api, Program::Worker, Program::Janitor] {
        let labelled = match program {
            Program::Api => "hook_api_requests_total",
            Program::Worker => "hook_worker_attempts_total",
            Program::Janitor | Program::Hook => "hook_target_attempts_total",
        };
        let seen = |metrics: &Metrics| metrics.select(labelled, &[]).next().is_some();
        wait_for(LIMIT, async || stack.metrics(program).await, seen).await;
        let process = stack
            .processes()
            .find(|process| process.name() == program.name());
        let ops = process.unwrap().address(Listener::Ops, LIMIT).await;
        let scraped = stack
            .send(stack.client().get(format!("http://{ops}/metrics")))
            .await;
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, &scraped.body).unwrap();
        let lint = promtool(&["check", "metrics"], Some(file.path())).await;
        let said = String::from_utf8_lossy(&lint.stdout) + String::from_utf8_lossy(&lint.stderr);
        assert!(
            lint.status.success() && said.trim().is_empty(),
            "{program:?}:\n{said}"
        );
    }
}

/// Slots that were taken from now on until none was.
struct InFlight {
    mean: f64,
    peak: f64,
    busy: Duration,
}

/// Looks every 20 ms, until slots were taken and then none is for a while.
async fn watch_in_flight(stack: &Stack, until_idle: Duration) -> InFlight {
    let begun = Instant::now();
    let (mut area, mut last, mut idle_since, mut peak) = (0.0, begun, None, 0.0);
    loop {
        let taken = in_flight(&stack.metrics(Program::Worker).await);
        let now = Instant::now();
        area += taken * (now - last).as_secs_f64();
        last = now;
        peak = taken.max(peak);
        match (taken > 0.0 || peak == 0.0, idle_since) {
            (true, _) => idle_since = None,
            (false, None) => idle_since = Some(now),
            (false, Some(since)) if now - since > until_idle => {
                let busy = since - begun;
                return InFlight {
                    mean: area / busy.as_secs_f64(),
                    peak,
                    busy,
                };
            }
            (false, Some(_)) => {}
        }
        pause(Duration::from_millis(20)).await;
    }
}

fn in_flight(metrics: &Metrics) -> f64 {
    metrics.sum("hook_gate_in_flight", &[("gate", "delivery")])
}

/// Observations of a histogram that took longer than a bound that is one of its buckets.
fn longer_than(metrics: &Metrics, name: &str, labels: &[(&str, &str)], bound: &str) -> f64 {
    let all = metrics.sum(&format!("{name}_count"), labels);
    let with_bound: Vec<(&str, &str)> = labels.iter().copied().chain([("le", bound)]).collect();
    all - metrics.sum(&format!("{name}_bucket"), &with_bound)
}

/// (a) Slow targets hold every slot that they may, and nothing else is slow. Of 8 slots that is three
/// quarters at least: contract §5 keeps the rest for targets that have proven quick.
async fn full_slots_show_as_full_slots(stack: &Stack, sink: &Sink) {
    let worker = async || stack.metrics(Program::Worker).await;
    let begun = worker().await;
    let started_with = begun.sum("hook_worker_attempt_duration_seconds_sum", &[]);
    let enqueue = async {
        for n in 0..48 {
            let url = sink.url_at(&format!("slow{}.test", n % 16), "/slow");
            stack.enqueue_to(&url).await;
        }
    };
    let watch = watch_in_flight(stack, Duration::from_secs(2));
    let (seen, ()) = tokio::join!(watch, enqueue);
    assert!((6.0..=8.0).contains(&seen.peak), "{}", seen.peak);
    let full = worker().await;
    assert_eq!(longer_than(&full, WAIT, &[("gate", "db_pool")], "1"), 0.0);
    assert_eq!(longer_than(&full, DEQUEUE, &[("result", "jobs")], "2"), 0.0);
    let took = full.sum("hook_worker_attempt_duration_seconds_sum", &[]) - started_with;
    let (mean, computed) = (seen.mean, took / seen.busy.as_secs_f64());
    assert!(
        (computed / mean - 1.0).abs() < 0.1,
        "rate × duration {computed}, in flight {mean}"
    );
    // And each target's share of the slots, from what the janitor counts.
    let share = |metrics: &Metrics| {
        metrics.sum(
            "hook_target_attempt_duration_seconds_total",
            &[("target", "slow3.test")],
        ) > 4.0
    };
    wait_for(LIMIT, async || stack.metrics(Program::Janitor).await, share).await;
}

/// OBS-07: slots, pool, dequeue or nothing: each bottleneck has a signal of its own, and in flight
/// is the rate times the mean duration.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn obs_07_each_bottleneck_shows_as_itself() {
    let (db, dns) = (TestDb::new().await, loopback_dns().await);
    let slow = Answer::ok().pause_before_head(Duration::from_millis(1500));
    let sink = Sink::start(Script::by_path([
        ("/slow", Script::always(slow)),
        ("/", Script::status(200)),
    ]))
    .await;
    let stack = profile(&db, &dns)
        .set("HOOK_DB_POOL_MAX", 2)
        .set("HOOK_RETENTION_COMPLETED", "1h")
        .set("HOOK_RETENTION_FAILED", "1h")
        .start()
        .await;
    let worker = async || stack.metrics(Program::Worker).await;

    // (d) Idle: nothing is taken, and looking for work goes on.
    let idle = worker().await;
    assert_eq!(in_flight(&idle), 0.0);
    let sweeps = "hook_worker_sweep_duration_seconds_count";
    let more = |later: &Metrics| later.sum(sweeps, &[]) > idle.sum(sweeps, &[]) + 2.0;
    wait_for(LIMIT, worker, more).await;

    full_slots_show_as_full_slots(&stack, &sink).await;

    // (c) The dequeue is slow.
    let mut outside = db.connect().await;
    outside
        .execute(
            "CREATE FUNCTION hook.dawdle() RETURNS trigger LANGUAGE plpgsql AS
                'BEGIN PERFORM pg_sleep(2.5); RETURN NULL; END';
            CREATE TRIGGER dawdle AFTER INSERT ON hook.lease EXECUTE FUNCTION hook.dawdle()",
        )
        .await
        .unwrap();
    let id = stack.enqueue_to(&sink.url_at("quick.test", "/")).await;
    stack.wait_final(&id, LIMIT).await;
    let slow = |metrics: &Metrics| longer_than(metrics, DEQUEUE, &[("result", "jobs")], "2") > 0.0;
    wait_for(LIMIT, worker, slow).await;
    outside
        .execute("DROP TRIGGER dawdle ON hook.lease")
        .await
        .unwrap();

    // (b) Every connection waits for a lock.
    let tables = "LOCK TABLE hook.ready, hook.lease, hook.target IN ACCESS EXCLUSIVE MODE";
    let lock = locked(&mut outside, tables).await;
    let waits = |metrics: &Metrics| longer_than(metrics, WAIT, &[("gate", "db_pool")], "1") > 0.0;
    wait_for(LIMIT, worker, waits).await;
    lock.rollback().await.unwrap();
    let id = stack.enqueue_to(&sink.url_at("quick.test", "/")).await;
    stack.wait_final(&id, LIMIT).await;
}

/// JAN-05: three janitors, while somebody holds the lead's own row or reads the tables that are to
/// be emptied. Nobody stands in a queue for a lock of the whole database, one purges at most, and
/// the purge goes on at once when the tables are free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jan_05_several_janitors_do_not_queue_up_behind_a_lock() {
    let db = TestDb::new().await;
    let sink = Sink::start(200).await;
    let stack = Stack::builder(&db.url())
        .set("HOOK_RETENTION_COMPLETED", "1s")
        .set("HOOK_RETENTION_FAILED", "1s")
        // A purge that waits for a table must not keep the lead from being renewed.
        .set("HOOK_DB_POOL_MAX", 10)
        .start()
        .await;
    let second = stack.spawn(Program::Janitor).await;
    let third = stack.spawn(Program::Janitor).await;
    let mut outside = db.connect().await;
    let mut watcher = db.connect().await;
    for lock in [
        "SELECT FROM hook.finished LIMIT 1",
        "SELECT FROM hook.leader FOR UPDATE",
    ] {
        let mut held = outside.begin().await.unwrap();
        held.execute(lock).await.unwrap();
        for _ in 0..20 {
            stack.enqueue_to(&sink.url("/")).await;
        }
        let until = Instant::now() + Duration::from_secs(4);
        let mut before: Vec<String> = Vec::new();
        let mut overlaps = 0;
        while Instant::now() < until {
            let (advisory, purging): (i64, Vec<String>) = sqlx::query_as(
                "SELECT count(*) FILTER (WHERE wait_event_type = 'Lock' AND wait_event = 'advisory'),
                    COALESCE(array_agg(concat_ws(' ', pid, query_start, query)) FILTER (WHERE state = 'active'
                        AND query ~ '^-- (rotate|move_|flush_|truncate_|purge_k)'), '{}')
                FROM pg_stat_activity WHERE application_name = 'hook-janitor'",
            )
            .fetch_one(&mut watcher)
            .await
            .unwrap();
            assert_eq!(advisory, 0, "{lock}");
            // Sessions are read one after the other, so that two statements of one janitor, which
            // follow each other, may both be seen; those that are seen twice ran side by side.
            let lasting: Vec<_> = purging.iter().filter(|one| before.contains(one)).collect();
            if lasting.len() > 1 {
                println!("{lock}: {lasting:#?}");
                overlaps += 1;
            }
            before = purging;
            pause(Duration::from_millis(50)).await;
        }
        // When the lead changes hands, the last statement of one and the first of the next may meet.
        assert!(
            overlaps <= 2,
            "{lock}: {overlaps} times two janitors purged"
        );
        held.rollback().await.unwrap();
        let stored = async || -> i64 {
            let left = sqlx::query_scalar("SELECT count(*) FROM hook.finished");
            left.fetch_one(&mut watcher).await.unwrap()
        };
        wait_for(Duration::from_secs(20), stored, |left| *left == 0).await;
    }
    drop((second, third));
}

/// JAN-04: the janitor is a process of its own: it cleans while workers do nothing but crash, in
/// little memory, and shows that it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jan_04_a_crashing_worker_does_not_keep_the_janitor_from_cleaning() {
    const FINISHED: i64 = 200_000;
    let db = TestDb::new().await;
    let pool = db.pool().await;
    sqlx::raw_sql(
        "INSERT INTO hook.job (shard, bucket, job_id, created_at, target_id, target, url)
        SELECT 0, n % 4, hook.new_job_id(n), now() - interval '1 day', n % 50, 'a.example', 'http://a.example/'
        FROM generate_series(1, 200000) AS n;
        INSERT INTO hook.finished (shard, bucket, tier, job_id, target_id, finished_at, status, fence, attempt)
        SELECT 0, bucket, 0, job_id, target_id, now() - interval '1 day', 2, 1, 1 FROM hook.job;
        UPDATE hook.bucket SET opened_at = now() - interval '2 days' + bucket * interval '1 hour',
            closed_at = CASE WHEN bucket < 4 THEN now() - interval '1 day' END
        WHERE bucket < 5",
    )
    .execute(&pool)
    .await
    .unwrap();
    let mut stack = Stack::builder(&db.url())
        .set("HOOK_RETENTION_COMPLETED", "1h")
        .without_janitor()
        .start()
        .await;
    stack.workers[0].signal(Signal::Kill);
    let janitor = stack.spawn(Program::Janitor).await;
    let oldest = |metrics: &Metrics| metrics.value("hook_janitor_oldest_finished_age_seconds");
    for _ in 0..3 {
        let worker = stack.process(Program::Worker).await.start();
        pause(Duration::from_millis(200)).await;
        worker.signal(Signal::Kill);
    }
    let left = async || -> i64 {
        let left = sqlx::query_scalar("SELECT count(*) FROM hook.finished");
        left.fetch_one(&pool).await.unwrap()
    };
    wait_for(LIMIT, left, |left| *left == 0).await;
    let clean = |metrics: &Metrics| {
        oldest(metrics) == Some(0.0)
            && metrics.sum("hook_janitor_last_purge_success_timestamp_seconds", &[]) > 0.0
    };
    let metrics = wait_for(LIMIT, async || stack.metrics_of(&janitor).await, clean).await;
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let expected = FINISHED as f64;
    assert_eq!(metrics.sum("hook_janitor_jobs_purged_total", &[]), expected);
    let peak = janitor.usage().rss_peak_bytes;
    assert!(peak < 64 * 1024 * 1024, "{peak} bytes");
    stack.workers.clear();
}

/// Waiting jobs of 10,000 targets, due in an hour, with attempts on record for each.
const MANY_TARGETS: &str = "
    INSERT INTO hook.target (shard, target_id, name, penalty)
    SELECT 0, hook.target_id('t' || n), 't' || n, n % 3 FROM generate_series(1, 10000) AS n;
    INSERT INTO hook.target_total (shard, target_id, delivered, retryable, permanent, duration_ms, ended_at)
    SELECT 0, hook.target_id('t' || n), n, n, 1, 1, now() FROM generate_series(1, 10000) AS n;
    INSERT INTO hook.job (shard, bucket, job_id, created_at, target_id, target, url)
    SELECT 0, 0, hook.new_job_id(n), now(), hook.target_id('t' || n), 't' || n, 'http://a.example/'
    FROM generate_series(1, 10000) AS n;
    INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, bucket)
    SELECT 0, 0, target_id, now() + interval '1 hour', job_id, 0 FROM hook.job";

/// Series of a process at most, whatever the number of targets.
const SERIES_MAX: usize = 2_000;

/// OBS-04: 10,000 targets make no more series than the worst that are named, a scrape is quick, and
/// no scrape leaves anything behind: as many of them as a day has at ten seconds each, where
/// `HOOK_TEST_FULL` asks for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn obs_04_ten_thousand_targets_make_few_series_and_scrapes_leave_nothing_behind() {
    let db = TestDb::new().await;
    db.pool().await.execute(MANY_TARGETS).await.unwrap();
    let stack = Stack::builder(&db.url())
        .set("HOOK_JANITOR_INTERVAL", "100ms")
        .start()
        .await;
    let attempts = "hook_target_attempts_total";
    let counted = |metrics: &Metrics| metrics.select(attempts, &[]).count() == 51;
    wait_for(
        LIMIT,
        async || stack.metrics(Program::Janitor).await,
        counted,
    )
    .await;
    for process in stack.processes() {
        let ops = process.address(Listener::Ops, LIMIT).await;
        let scrape = async || {
            let begun = Instant::now();
            let request = stack.client().get(format!("http://{ops}/metrics"));
            let text = stack.send(request).await.text();
            (begun.elapsed(), Metrics::parse(&text).unwrap())
        };
        let mut took = Vec::new();
        // The first ones fill buffers and connections.
        for _ in 0..60 {
            took.push(scrape().await.0);
        }
        let before = process.usage().rss_bytes;
        for _ in 0..amount(80, 8_640) {
            took.push(scrape().await.0);
        }
        let grown = process.usage().rss_bytes.saturating_sub(before);
        let series = scrape().await.1.samples().len();
        took.sort();
        // Most of them wait for a core on a busy machine; what a scrape takes shows in the quickest.
        let (name, quickest, median) = (process.name(), took[0], took[took.len() / 2]);
        println!("{name}: {series} series, {quickest:?}, median {median:?}, {grown} bytes more");
        assert!(series <= SERIES_MAX, "{name}: {series} series");
        assert!(
            quickest <= Duration::from_millis(50),
            "{name}: {quickest:?}"
        );
        // A kept scrape would be some 16 MB by now.
        assert!(grown <= 8 * 1024 * 1024, "{name}: {grown} bytes more");
    }
}
