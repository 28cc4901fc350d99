//! Rehearsals: they pass on a sound schema, change nothing, and notice what is missing.

use hook_common::config::Binary;

use super::kit::Kit;

#[tokio::test]
async fn a_rehearsal_changes_nothing() {
    let kit = Kit::new().await;
    kit.enqueue(&["a.test", "b.test"]).await;
    let before = kit.places().await;
    for service in [Binary::Api, Binary::Worker, Binary::Janitor] {
        kit.queue.rehearse(service).await.unwrap();
    }
    assert_eq!(kit.places().await, before);
    let tallies: i64 = sqlx::query_scalar("SELECT count(*) FROM hook.tally")
        .fetch_one(&kit.pool)
        .await
        .unwrap();
    assert_eq!(tallies, 0);
}

#[tokio::test]
async fn a_rehearsal_notices_a_column_that_is_gone() {
    for (service, rename) in [
        (Binary::Api, "ALTER TABLE hook.job RENAME url TO gone"),
        (
            Binary::Worker,
            "ALTER TABLE hook.lease RENAME worker TO gone",
        ),
        (
            Binary::Janitor,
            "ALTER TABLE hook.tally RENAME ended_at TO gone",
        ),
    ] {
        let kit = Kit::new().await;
        kit.queue.rehearse(service).await.unwrap();
        sqlx::raw_sql(rename).execute(&kit.pool).await.unwrap();
        let error = kit.queue.rehearse(service).await.unwrap_err();
        let error = error.into_database_error().unwrap();
        assert_eq!(error.code().as_deref(), Some("42703"), "{service:?}");
    }
}
