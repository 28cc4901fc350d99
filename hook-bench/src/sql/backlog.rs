//! What scenarios do to a backlog as a whole: statistics, the naive query, the purge of what has
//! ended.

use sqlx::{Connection as _, PgPool, Row as _};

/// What Postgres knows about the tables.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Statistics {
    /// Vacuumed and analysed just now.
    Fresh,
    /// Nothing, and nobody is to find out.
    None,
}

/// Brings about what Postgres knows about the tables.
pub(crate) async fn set_statistics(pool: &PgPool, statistics: Statistics) -> sqlx::Result<()> {
    let statements = match statistics {
        Statistics::Fresh => ["VACUUM (ANALYZE) hook.ready", "VACUUM (ANALYZE) hook.lease"],
        Statistics::None => [
            "ALTER TABLE hook.ready SET (autovacuum_enabled = false)",
            "ALTER TABLE hook.lease SET (autovacuum_enabled = false)",
        ],
    };
    for statement in statements {
        sqlx::query(statement).execute(pool).await?;
    }
    Ok(())
}

/// Has Postgres look at every table.
pub(crate) async fn look_at_all(pool: &PgPool) -> sqlx::Result<()> {
    let looked = sqlx::query("VACUUM (ANALYZE)").execute(pool).await;
    looked.map(drop)
}

const NAIVE: &str = "-- naive
SELECT job_id FROM hook.ready
WHERE shard = 0 AND run_at <= now()
ORDER BY CASE WHEN target_id = ANY (SELECT hook.target_id(name) FROM unnest($1::text[]) AS name) THEN 1 ELSE 0 END,
    attempt, job_id
LIMIT 50
FOR UPDATE SKIP LOCKED";

/// Finds and locks the 50 jobs that come first when those of bad targets come last, and lets go of
/// them again.
pub(crate) async fn naive(pool: &PgPool, bad: &[String]) -> sqlx::Result<()> {
    let mut connection = pool.acquire().await?;
    let mut transaction = connection.begin().await?;
    let found = sqlx::query(NAIVE)
        .bind(bad)
        .fetch_all(&mut *transaction)
        .await?;
    assert_eq!(found.len(), 50, "the backlog has more than one claim");
    transaction.rollback().await
}

/// Closes the first bucket of the ring, as if two hours ago, and opens the next.
pub(crate) async fn close_first_bucket(pool: &PgPool) -> sqlx::Result<()> {
    for statement in [
        "UPDATE hook.bucket SET opened_at = now() - interval '3 hours', closed_at = now() - interval '2 hours'
         WHERE bucket = 0",
        "UPDATE hook.bucket SET opened_at = now() - interval '2 hours' WHERE bucket = 1",
    ] {
        sqlx::query(statement).execute(pool).await?;
    }
    Ok(())
}

/// Whether the first bucket was emptied, and nothing in the kept bucket was delivered longer than
/// an hour ago.
pub(crate) async fn is_purged(pool: &PgPool) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT (SELECT closed_at IS NULL FROM hook.bucket WHERE bucket = 0)
            AND NOT EXISTS (SELECT FROM hook.finished_kept
                WHERE shard = 0 AND status = 2 AND finished_at < now() - interval '1 hour')",
    )
    .fetch_one(pool)
    .await
}

/// Whether any job is left, in whatever state.
pub(crate) async fn is_empty(pool: &PgPool) -> sqlx::Result<bool> {
    let row = sqlx::query(
        "SELECT NOT EXISTS (SELECT FROM hook.job) AND NOT EXISTS (SELECT FROM hook.finished) AS empty",
    )
    .fetch_one(pool)
    .await?;
    Ok(row.get("empty"))
}
