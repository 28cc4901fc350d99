//! How large the database is, and what is in it.

use sqlx::PgPool;

/// Sizes and counts at one moment.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(crate) struct Size {
    pub(crate) database_bytes: i64,
    /// The largest table of ours, with what it keeps beside its rows.
    pub(crate) table_bytes: i64,
    pub(crate) table: String,
    /// The largest index of ours.
    pub(crate) index_bytes: i64,
    /// Dead rows in all tables of ours, as Postgres estimates them.
    pub(crate) dead_rows: i64,
    /// Jobs that wait.
    pub(crate) waiting: i64,
}

/// Measures the database. Sizes come from the file system, so this reads no table but that of
/// waiting jobs.
pub(crate) async fn measure(pool: &PgPool) -> sqlx::Result<Size> {
    sqlx::query_as(
        "-- size
        WITH ours AS MATERIALIZED (
            SELECT oid, relname, relkind FROM pg_class
            WHERE relnamespace = 'hook'::regnamespace AND relkind IN ('r', 'i')
        )
        SELECT pg_database_size(current_database()) AS database_bytes, largest.*,
            (SELECT max(pg_relation_size(oid)) FROM ours WHERE relkind = 'i') AS index_bytes,
            (SELECT sum(n_dead_tup)::bigint FROM pg_stat_user_tables WHERE schemaname = 'hook')
                AS dead_rows,
            (SELECT count(*) FROM hook.ready) AS waiting
        FROM (SELECT pg_table_size(oid) AS table_bytes, relname::text AS \"table\"
            FROM ours WHERE relkind = 'r' ORDER BY 1 DESC LIMIT 1) AS largest",
    )
    .fetch_one(pool)
    .await
}

/// The processes of Postgres that serve the program with this name.
pub(crate) async fn sessions(pool: &PgPool, program: &str) -> sqlx::Result<Vec<i32>> {
    sqlx::query_scalar("SELECT pid FROM pg_stat_activity WHERE application_name = $1")
        .bind(program)
        .fetch_all(pool)
        .await
}
