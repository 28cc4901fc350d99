//! What each statement costs Postgres, where `pg_stat_statements` is there to count it.

use sqlx::{PgConnection, PgPool, Row as _};

/// One statement's part, over all its calls.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(crate) struct Statement {
    /// The first line of its text, which names it.
    pub(crate) name: String,
    pub(crate) calls: i64,
    pub(crate) rows: i64,
    /// Times it was planned, and the milliseconds that took.
    pub(crate) plans: i64,
    pub(crate) plan_ms: f64,
    pub(crate) exec_ms: f64,
    pub(crate) buffers: i64,
    pub(crate) wal_bytes: i64,
}

pub(crate) async fn install(connection: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query("CREATE EXTENSION pg_stat_statements")
        .execute(connection)
        .await
        .map(drop)
}

/// Whether statements are counted here.
pub(crate) async fn are_counted(pool: &PgPool) -> sqlx::Result<bool> {
    let row = sqlx::query("SELECT to_regclass('pg_stat_statements') IS NOT NULL AS counted")
        .fetch_one(pool)
        .await?;
    Ok(row.get("counted"))
}

/// Counts from here on.
pub(crate) async fn reset(pool: &PgPool) -> sqlx::Result<()> {
    sqlx::query("SELECT pg_stat_statements_reset()")
        .execute(pool)
        .await
        .map(drop)
}

/// The dearest statements since the last reset, the dearest first.
pub(crate) async fn dearest(pool: &PgPool) -> sqlx::Result<Vec<Statement>> {
    sqlx::query_as(
        "SELECT btrim(left(split_part(query, E'\\n', 1), 40)) AS name, calls, rows, plans,
            total_plan_time AS plan_ms, total_exec_time AS exec_ms,
            shared_blks_hit + shared_blks_read AS buffers, wal_bytes::bigint AS wal_bytes
        FROM pg_stat_statements
        ORDER BY total_plan_time + total_exec_time DESC LIMIT 12",
    )
    .fetch_all(pool)
    .await
}
