//! What scenarios do to a backlog as a whole: statistics, the naive query, finished jobs by the
//! million.

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

const FINISHED: &str = "-- finished
WITH moved AS (
    DELETE FROM hook.ready RETURNING job_id, target_id, tier
), jobs AS (
    UPDATE hook.job SET bucket = $1 WHERE bucket <> $1
)
INSERT INTO hook.finished (shard, bucket, tier, job_id, target_id, finished_at, status, fence, attempt,
    outcome, response_status, duration_ms, started_at, worker)
SELECT 0, $1, tier, job_id, target_id, now() - interval '2 hours', 2, 1, 1, 0, 200, 5,
    now() - interval '2 hours', 'bench'
FROM moved";

/// Ends every waiting job as delivered two hours ago, in this bucket, which has been closed since.
pub(crate) async fn finish_all(pool: &PgPool, bucket: i16) -> sqlx::Result<()> {
    sqlx::query(FINISHED).bind(bucket).execute(pool).await?;
    for statement in [
        "UPDATE hook.bucket SET opened_at = now() - interval '3 hours', closed_at = now() - interval '2 hours'
         WHERE bucket = 0",
        "UPDATE hook.bucket SET opened_at = now() - interval '2 hours' WHERE bucket = 1",
        "VACUUM (ANALYZE) hook.ready",
    ] {
        sqlx::query(statement).execute(pool).await?;
    }
    Ok(())
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
