//! Migrations: repeatable, safe at the same time from several machines, and strict about versions.

use hook_common::migrate::{self, MigrateError};
use hook_testkit::db::TestDb;
use sqlx::{Executor as _, Row as _};
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_machines_may_migrate_at_once() {
    let db = TestDb::empty().await;
    let mut machines = JoinSet::new();
    for _ in 0..6 {
        let mut connection = db.connect().await;
        machines.spawn(async move { migrate::run(&mut connection).await.unwrap() });
    }
    let mut applied: Vec<i64> = machines.join_all().await.into_iter().flatten().collect();
    applied.sort_unstable();
    let expected: Vec<i64> = migrate::MIGRATOR
        .iter()
        .map(|migration| migration.version)
        .collect();
    assert_eq!(applied, expected, "each version exactly once");
    let mut connection = db.connect().await;
    assert_eq!(
        migrate::version_applied(&mut connection).await.unwrap(),
        Some(migrate::version_needed())
    );
    assert!(migrate::run(&mut connection).await.unwrap().is_empty());
}

#[tokio::test]
async fn nothing_outside_the_schema_is_touched() {
    let db = TestDb::new().await;
    let row = db
        .connect()
        .await
        .fetch_one(
            "SELECT count(*) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
             WHERE n.nspname NOT IN ('hook', 'pg_catalog', 'information_schema', 'pg_toast')",
        )
        .await
        .unwrap();
    assert_eq!(row.get::<i64, _>(0), 0);
}

#[tokio::test]
async fn a_newer_schema_and_an_edited_file_are_refused() {
    let db = TestDb::new().await;
    let mut connection = db.connect().await;
    connection.execute("UPDATE hook.migration SET checksum = '\\x00' WHERE version = (SELECT min(version) FROM hook.migration)").await.unwrap();
    assert!(matches!(
        migrate::run(&mut connection).await,
        Err(MigrateError::Edited(_))
    ));
    connection
        .execute("INSERT INTO hook.migration (version, description, checksum) VALUES (99990101000000, '', '')")
        .await
        .unwrap();
    assert!(matches!(
        migrate::run(&mut connection).await,
        Err(MigrateError::TooNew {
            found: 99_990_101_000_000,
            ..
        })
    ));
}

#[tokio::test]
async fn an_empty_database_has_no_version() {
    let db = TestDb::empty().await;
    assert_eq!(
        migrate::version_applied(&mut db.connect().await)
            .await
            .unwrap(),
        None
    );
}
