//! Databases of tests: apart from each other, migrated, and on a server that can be crashed.

use hook_testkit::db::TestDb;
use sqlx::Connection;

async fn count_tables(db: &TestDb) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM pg_tables WHERE schemaname = 'hook'")
        .fetch_one(&mut db.connect().await)
        .await
        .expect("the catalogue can be read")
}

#[tokio::test]
async fn a_new_database_has_the_schema_and_an_empty_one_has_not() {
    let (migrated, empty) = (TestDb::new().await, TestDb::empty().await);
    assert!(count_tables(&migrated).await > 1);
    assert_eq!(count_tables(&empty).await, 0);
}

#[tokio::test]
async fn databases_do_not_see_each_other() {
    let (one, other) = (TestDb::new().await, TestDb::new().await);
    sqlx::raw_sql("CREATE TABLE mine ()")
        .execute(&one.pool().await)
        .await
        .unwrap();
    sqlx::raw_sql("CREATE TABLE mine ()")
        .execute(&other.pool().await)
        .await
        .unwrap();
}

#[test]
fn many_threads_with_runtimes_of_their_own_share_the_server() {
    let make = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap()
            .block_on(async { count_tables(&TestDb::new().await).await })
    };
    let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(make)).collect();
    for thread in threads {
        assert!(thread.join().unwrap() > 1);
    }
}

#[tokio::test]
async fn a_crash_keeps_what_was_committed() {
    let db = TestDb::durable().await;
    let url = db.url();
    let mut before = db.connect().await;
    sqlx::raw_sql("CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)")
        .execute(&mut before)
        .await
        .unwrap();
    db.crash_server().await;
    assert!(before.ping().await.is_err(), "connections break");
    db.start_server().await;
    assert_eq!(db.url(), url, "clients find the server where it was");
    let kept: i32 = sqlx::query_scalar("SELECT n FROM kept")
        .fetch_one(&mut db.connect().await)
        .await
        .unwrap();
    assert_eq!(kept, 7);
}

#[tokio::test]
#[should_panic(expected = "it needs TestDb::durable")]
async fn the_shared_server_cannot_be_disturbed() {
    TestDb::new().await.crash_server().await;
}
