//! Statements that Postgres ends because somebody else is in the way.

use std::time::Duration;

use hook_testkit::{db::TestDb, process::Program, sink::Sink, stack::Stack, wait::wait_until};
use sqlx::PgConnection;
use tokio::time::Instant;

use crate::{
    failovers::Producers,
    kit::{LIMIT, received, wait_drained},
};

const SERVICES: [Program; 3] = [Program::Api, Program::Worker, Program::Janitor];
/// A table that nobody wants is let go after this.
const UNWANTED: Duration = Duration::from_millis(400);

/// What each service counted as conflicts.
async fn conflicts(stack: &Stack) -> [f64; 3] {
    let mut counted = [0.0; 3];
    for (service, counted) in SERVICES.into_iter().zip(&mut counted) {
        let metrics = stack.metrics(service).await;
        *counted = metrics.sum("hook_db_faults_total", &[("fault", "conflict")]);
    }
    counted
}

async fn run(connection: &mut PgConnection, statement: String) {
    let ran = sqlx::raw_sql(sqlx::AssertSqlSafe(statement.clone()))
        .execute(connection)
        .await;
    ran.unwrap_or_else(|error| panic!("{statement}: {error}"));
}

/// Locks a table, waits until a statement that holds another one waits for it, and asks for that
/// one: a deadlock, which the statement finds first and dies of.
async fn deadlock(agitator: &mut PgConnection, onlooker: &mut PgConnection, table: &str) {
    run(
        agitator,
        format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"),
    )
    .await;
    let begun = Instant::now();
    let held = loop {
        let held: Option<String> = sqlx::query_scalar(
            "SELECT held.relation::regclass::text FROM pg_locks AS waits
            JOIN pg_locks AS held ON held.pid = waits.pid AND held.granted
            JOIN pg_class AS class ON class.oid = held.relation AND class.relkind IN ('r', 'p')
            WHERE NOT waits.granted AND waits.relation = $1::text::regclass
                AND class.relnamespace = 'hook'::regnamespace
                AND held.relation <> waits.relation
            LIMIT 1",
        )
        .bind(table)
        .fetch_optional(&mut *onlooker)
        .await
        .expect("locks can be read");
        if held.is_some() || begun.elapsed() > UNWANTED {
            break held;
        }
    };
    if let Some(held) = held {
        run(
            agitator,
            format!("LOCK TABLE {held} IN ACCESS EXCLUSIVE MODE"),
        )
        .await;
    }
    run(agitator, "COMMIT".to_owned()).await;
}

/// Deadlocks with statements of all services, then serialization failures, for real: a producer is
/// told to come back at worst, each job is stored once, attempted once and recorded once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conflicting_statements_are_repeated_and_lose_nothing() {
    let db = TestDb::new().await;
    let (mut agitator, mut onlooker) = (db.connect().await, db.connect().await);
    let of_database = format!("ALTER DATABASE {} SET", db.name());
    run(
        &mut agitator,
        format!("{of_database} deadlock_timeout = '200ms'"),
    )
    .await;
    // Who looks for deadlocks later survives them.
    run(&mut agitator, "SET deadlock_timeout = '120s'".to_owned()).await;
    let sink = Sink::start(200).await;
    let mut stack = Stack::start(&db.url()).await;
    let producers = Producers::begin("p", &stack, &sink);

    let tables = [
        "hook.ready",
        "hook.lease",
        "hook.job",
        "hook.finished",
        "hook.tally",
    ];
    let begun = Instant::now();
    for table in tables.into_iter().cycle() {
        if conflicts(&stack).await.iter().all(|counted| *counted > 0.0) {
            break;
        }
        assert!(begun.elapsed() < LIMIT, "{:?}", conflicts(&stack).await);
        deadlock(&mut agitator, &mut onlooker, table).await;
    }
    let deadlocks = conflicts(&stack).await;

    run(
        &mut agitator,
        format!("{of_database} default_transaction_isolation = serializable"),
    )
    .await;
    run(
        &mut agitator,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE 'hook-%'"
            .to_owned(),
    )
    .await;
    wait_until(LIMIT, async || {
        let counted = conflicts(&stack).await;
        let risen = counted
            .iter()
            .zip(deadlocks)
            .any(|(now, before)| *now > before + 2.0);
        if risen { Ok(()) } else { Err(counted) }
    })
    .await;
    let (stored, longest) = producers.end().await;
    let counts = wait_drained(&db.pool().await).await;
    println!(
        "{} jobs; conflicts of api, worker and janitor: deadlocks {deadlocks:?}, all {:?}; longest \
        enqueue {longest:?}",
        stored.len(),
        conflicts(&stack).await,
    );
    let completed = usize::try_from(counts["completed"]).expect("it is a count");
    assert_eq!((completed, counts["ended"]), (stored.len(), 0));
    let received = received(&sink);
    assert!(stored.iter().all(|id| received.contains_key(id)));
    assert_eq!(
        (received.len(), sink.request_count()),
        (stored.len(), stored.len())
    );
    assert!(stack.all_run());
}
