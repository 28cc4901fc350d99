//! Migrations that are killed, and migrations beside running services.

use std::{borrow::Cow, time::Duration};

use hook_common::migrate::{self, MIGRATOR};
use hook_testkit::{
    db::TestDb,
    process::{Process, ProcessBuilder, Program, Signal},
    sink::Sink,
    stack::Stack,
    wait::pause,
};
use rand::Rng as _;
use serde_json::{Value, json};
use sqlx::{
    Connection as _, PgPool,
    migrate::{Migration, MigrationType, Migrator},
};
use tokio::{sync::watch, task::JoinSet, time::Instant};

use crate::kit::{LIMIT, amount, seeded, wait_drained};

/// Everything in the schema, one line each; an index that is not valid shows.
const SCHEMA: &str = "
    SELECT format('column %s.%s %s %s %s', attrelid::regclass, attname, format_type(atttypid, atttypmod),
        attnotnull, pg_get_expr(adbin, adrelid)) AS line
    FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    WHERE relnamespace = 'hook'::regnamespace AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT format('index %s %s %s', pg_get_indexdef(indexrelid), indisvalid, indisready)
    FROM pg_index JOIN pg_class AS c ON c.oid = indrelid WHERE relnamespace = 'hook'::regnamespace
    UNION ALL
    SELECT format('constraint %s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
    FROM pg_constraint WHERE connamespace = 'hook'::regnamespace
    UNION ALL
    SELECT format('class %s %s %s %s', oid::regclass, relkind, reloptions, pg_get_expr(relpartbound, oid))
    FROM pg_class WHERE relnamespace = 'hook'::regnamespace
    UNION ALL
    SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'hook'::regnamespace AND prokind = 'f'
    UNION ALL
    SELECT format('type %s %s', oid::regtype, typtype) FROM pg_type WHERE typnamespace = 'hook'::regnamespace
    UNION ALL
    SELECT format('version %s %s', version, encode(checksum, 'hex')) FROM hook.migration
    ORDER BY line";

async fn schema(pool: &PgPool) -> Vec<String> {
    let lines: sqlx::Result<Vec<String>> = sqlx::query_scalar(SCHEMA).fetch_all(pool).await;
    lines.expect("the catalogue can be read")
}

/// How often a run is killed.
const KILLS: usize = 5;

/// `hook migrate` on this database.
async fn migrator(url: &str) -> ProcessBuilder {
    let program = ProcessBuilder::program(Program::Hook).await;
    program.argument("migrate").set("DATABASE_URL", url)
}

/// The embedded migrations up to this one, and these besides.
fn migrations(up_to: i64, further: Vec<Migration>) -> Migrator {
    let mut migrations: Vec<Migration> = MIGRATOR.iter().cloned().collect();
    migrations.retain(|migration| migration.version <= up_to);
    migrations.extend(further);
    Migrator {
        migrations: Cow::Owned(migrations),
        ..Migrator::DEFAULT
    }
}

/// A database before the migrations that build indexes on tables with rows.
async fn old_and_full(rows: i64) -> TestDb {
    let db = TestDb::empty().await;
    let first = MIGRATOR.iter().nth(2).expect("there are many").version;
    let mut connection = db.connect().await;
    let applied = migrate::apply(&mut connection, &migrations(first, Vec::new())).await;
    applied.expect("the first migrations apply");
    sqlx::query(
        "INSERT INTO hook.finished (shard, bucket, tier, job_id, target_id, finished_at, status, fence, attempt)
        SELECT 0, 0, 0, gen_random_uuid(), n, now(), 3, 1, 1 FROM generate_series(1, $1::bigint) AS n",
    )
    .bind(rows)
    .execute(&mut connection)
    .await
    .expect("rows can be filled in");
    db
}

/// Waits until the migrator is at work and so many migrations are applied; false if it has exited by
/// then.
async fn has_applied(process: &mut Process, pool: &PgPool, count: i64) -> bool {
    while process.exit_status().is_none() {
        let (applied, works): (i64, bool) = sqlx::query_as(
            "SELECT (SELECT count(*) FROM hook.migration), EXISTS (
                SELECT FROM pg_stat_activity
                WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
            )",
        )
        .fetch_one(pool)
        .await
        .expect("sessions can be read");
        if works && applied >= count {
            return true;
        }
    }
    false
}

/// MIG-02: a migration that is killed, again and again, or cancelled by a deadline leaves nothing
/// half done; the next run makes the same schema as a clean one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mig_02_a_killed_migration_is_completed_by_the_next_run() {
    let rows = i64::try_from(amount(20_000, 3_000_000)).expect("it is small");
    let clean = schema(&TestDb::new().await.pool().await).await;
    let mut rng = seeded();
    let mut old = vec![old_and_full(rows).await];
    let mut versions = Vec::new();
    let begun = Instant::now();
    while versions.len() < KILLS {
        assert!(begun.elapsed() < LIMIT, "only killed at {versions:?}");
        let db = old.last().expect("there is one");
        let mut process = migrator(&db.url()).await.start();
        let count = 3 + rng.random_range(0..6);
        if has_applied(&mut process, &db.pool().await, count).await {
            pause(Duration::from_micros(rng.random_range(0..20_000))).await;
        }
        if process.exit_status().is_none() {
            process.signal(Signal::Kill);
            let mut connection = db.connect().await;
            let version = migrate::version_applied(&mut connection).await;
            versions.push(version.expect("the version can be read"));
        } else {
            // It was quicker: once more from the beginning.
            old.push(old_and_full(rows).await);
        }
        process.wait_exit(LIMIT).await;
    }
    println!("killed at {versions:?}");
    // The same once more by a deadline that no build of an index on these rows keeps.
    let db_cancelled = old_and_full(rows).await;
    let options = "?options=-c%20statement_timeout%3D3ms";
    let cancelled = migrator(&(db_cancelled.url() + options)).await;
    let cancelled = cancelled.start().wait_exit(LIMIT).await;
    assert_ne!(
        cancelled.code(),
        Some(0),
        "the deadline is too long for this test"
    );
    old.push(db_cancelled);
    for db in old {
        let done = migrator(&db.url()).await.start().wait_exit(LIMIT).await;
        assert_eq!(done.code(), Some(0));
        let found = schema(&db.pool().await).await;
        let strange = |a: &[String], b: &[String]| -> Vec<String> {
            a.iter().filter(|line| !b.contains(line)).cloned().collect()
        };
        let differences = (strange(&found, &clean), strange(&clean, &found));
        assert_eq!(differences, (Vec::new(), Vec::new()));
    }
}

/// What a further release may bring: columns, a default that new rows get, an index.
const NEXT: &str = "
    ALTER TABLE hook.ready ADD COLUMN next_release integer;
    ALTER TABLE hook.job ADD COLUMN next_release integer;
    ALTER TABLE hook.finished ADD COLUMN next_release integer DEFAULT 7;
    CREATE INDEX next_release ON hook.lease (leased_at);
";
/// Somebody reads a table for longer than a migration waits for its lock.
const READER: Duration = Duration::from_millis(1200);
const BATCH: usize = 15;
/// 300 jobs a second.
const BATCH_EVERY: Duration = Duration::from_millis(50);

/// How long the sessions of services have been waiting for a lock, the longest of them.
async fn longest_wait(pool: &PgPool) -> Duration {
    let seconds: f64 = sqlx::query_scalar(
        "SELECT COALESCE(max(extract(epoch FROM clock_timestamp() - query_start)), 0)::float8
        FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name LIKE 'hook-%'",
    )
    .fetch_one(pool)
    .await
    .expect("sessions can be read");
    Duration::from_secs_f64(seconds)
}

/// MIG-03: a migration beside running services: it gives up locks that it does not get soon, nothing
/// waits for it for long, nothing fails, and what runs goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mig_03_a_migration_under_load_holds_nobody_up() {
    let db = TestDb::new().await;
    let pool = db.pool().await;
    let sink = Sink::start(200).await;
    let mut stack = Stack::builder(&db.url())
        .set("HOOK_WORKER_SLOTS", 64)
        .workers(2)
        .start()
        .await;
    let job = |n| json!({"url": sink.url("/m"), "target": format!("t{n}.test")});
    let batch: Vec<Value> = (0..BATCH).map(job).collect();
    let batch = json!({ "jobs": batch });
    let client = stack.client().clone();
    let url = stack.api_url("/v1/jobs/batch");
    let over = watch::Sender::new(false);

    let mut tasks = JoinSet::new();
    let mut stops = over.subscribe();
    tasks.spawn(async move {
        let (mut stored, mut slowest) = (0, Duration::ZERO);
        while !*stops.borrow_and_update() {
            let begun = Instant::now();
            let reply = client.post(&url).json(&batch).send().await;
            assert_eq!(reply.expect("there is an answer").status(), 202);
            stored += BATCH;
            slowest = slowest.max(begun.elapsed());
            pause(BATCH_EVERY.saturating_sub(begun.elapsed())).await;
        }
        (stored, slowest)
    });
    let mut stops = over.subscribe();
    let watched = pool.clone();
    tasks.spawn(async move {
        let mut longest = Duration::ZERO;
        while !*stops.borrow_and_update() {
            longest = longest.max(longest_wait(&watched).await);
            pause(Duration::from_millis(20)).await;
        }
        (0, longest)
    });

    sink.wait_requests(100, LIMIT).await;
    let mut reader = db.connect().await;
    let reading = "BEGIN; SELECT FROM hook.ready LIMIT 1";
    sqlx::raw_sql(reading)
        .execute(&mut reader)
        .await
        .expect("it reads");
    let newest = migrate::version_needed();
    let next = Migration::new(
        newest + 1,
        "next release".into(),
        MigrationType::Simple,
        sqlx::SqlStr::from_static(NEXT),
        false,
    );
    let release = migrations(newest, vec![next]);
    let mut connection = db.connect().await;
    let begun = Instant::now();
    let migrated = async {
        let applied = migrate::apply(&mut connection, &release).await;
        applied.expect("the migration applies")
    };
    let read = async {
        pause(READER).await;
        reader.close().await.expect("the reader ends");
    };
    let (applied, ()) = tokio::join!(migrated, read);
    assert_eq!(applied, [newest + 1]);
    assert!(begun.elapsed() > READER, "the lock was asked for again");
    // What runs goes on on the new schema.
    let sent = sink.request_count();
    sink.wait_requests(sent + 150, LIMIT).await;
    over.send_replace(true);
    let ended = tasks.join_all().await;
    let stored: usize = ended.iter().map(|(stored, _)| stored).sum();
    let longest: Vec<Duration> = ended.iter().map(|(_, longest)| *longest).collect();
    println!("{stored} jobs; slowest answer and longest wait for a lock, in no order: {longest:?}");
    assert!(
        longest.iter().all(|wait| *wait < Duration::from_secs(2)),
        "{longest:?}"
    );

    let counts = wait_drained(&pool).await;
    let all = i64::try_from(stored).expect("it is small");
    assert_eq!((counts["completed"], counts["ended"]), (all, 0));
    assert_eq!(sink.request_count(), stored, "nothing is sent twice");
    assert!(stack.all_run());
    let deadlocks: i64 = sqlx::query_scalar(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()",
    )
    .fetch_one(&pool)
    .await
    .expect("statistics can be read");
    assert_eq!(deadlocks, 0);
    // The binaries of before: what is started now does not know what the schema means.
    let mut old = stack.process(Program::Worker).await.start();
    assert_eq!(old.wait_exit(LIMIT).await.code(), Some(1));
    let text: String = old.lines().iter().map(|line| line.text.as_str()).collect();
    assert!(text.contains(&(newest + 1).to_string()), "{text}");
}
