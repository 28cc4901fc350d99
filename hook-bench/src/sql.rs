//! What scenarios ask Postgres beyond the product's own statements: counters, and the floor.
//!
//! The floor's tables live in a schema of their own in the scenario's private database.

use bytes::Bytes;
use sqlx::{PgPool, Postgres, Transaction};

pub(crate) mod backlog;
pub(crate) mod fill;
pub(crate) mod size;
pub(crate) mod statements;

/// Bytes of WAL written since the server was made.
pub(crate) async fn wal_bytes(pool: &PgPool) -> sqlx::Result<i64> {
    sqlx::query_scalar("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
        .fetch_one(pool)
        .await
}

/// Makes the floor's tables, empty.
pub(crate) async fn make_floor(pool: &PgPool) -> sqlx::Result<()> {
    for statement in [
        "CREATE SCHEMA floor",
        "CREATE TABLE floor.job (id bigint PRIMARY KEY, body bytea NOT NULL)",
        "ALTER TABLE floor.job ALTER COLUMN body SET STORAGE EXTERNAL",
        "CREATE TABLE floor.ready (id bigint PRIMARY KEY)",
        "CREATE TABLE floor.finished (id bigint PRIMARY KEY, finished_at timestamptz NOT NULL)",
    ] {
        sqlx::query(statement).execute(pool).await?;
    }
    Ok(())
}

/// Stores jobs, the first of the floor's three statements.
pub(crate) async fn floor_insert(pool: &PgPool, ids: &[i64], bodies: &[Bytes]) -> sqlx::Result<()> {
    let bodies: Vec<&[u8]> = bodies.iter().map(AsRef::as_ref).collect();
    sqlx::query(
        "-- floor_insert
        WITH input AS (SELECT * FROM unnest($1::bigint[], $2::bytea[]) AS i (id, body)),
        ready AS (INSERT INTO floor.ready SELECT id FROM input)
        INSERT INTO floor.job SELECT id, body FROM input",
    )
    .bind(ids)
    .bind(bodies)
    .execute(pool)
    .await
    .map(drop)
}

/// Claims jobs by deleting them, the second, and returns their bodies.
pub(crate) async fn floor_claim(pool: &PgPool, ids: &[i64]) -> sqlx::Result<Vec<Vec<u8>>> {
    sqlx::query_scalar(
        "-- floor_claim
        WITH taken AS (DELETE FROM floor.ready WHERE id = ANY ($1) RETURNING id)
        SELECT body FROM taken JOIN floor.job USING (id)",
    )
    .bind(ids)
    .fetch_all(pool)
    .await
}

/// Records that jobs were delivered, the third.
pub(crate) async fn floor_finish(pool: &PgPool, ids: &[i64]) -> sqlx::Result<()> {
    sqlx::query(
        "-- floor_finish
        INSERT INTO floor.finished SELECT id, now() FROM unnest($1::bigint[]) AS i (id)",
    )
    .bind(ids)
    .execute(pool)
    .await
    .map(drop)
}

/// Stores one job in a statement of its own.
pub(crate) async fn insert_one(pool: &PgPool, id: i64, body: &[u8]) -> sqlx::Result<()> {
    sqlx::query("-- insert_one\nINSERT INTO floor.job VALUES ($1, $2)")
        .bind(id)
        .bind(body)
        .execute(pool)
        .await
        .map(drop)
}

/// Connections to Postgres of the program with this name.
pub(crate) async fn connections(pool: &PgPool, program: &str) -> sqlx::Result<i64> {
    sqlx::query_scalar("SELECT count(*) FROM pg_stat_activity WHERE application_name = $1")
        .bind(program)
        .fetch_one(pool)
        .await
}

/// Jobs that are stored, in whatever state.
pub(crate) async fn jobs(pool: &PgPool) -> sqlx::Result<i64> {
    sqlx::query_scalar("SELECT count(*) FROM hook.job")
        .fetch_one(pool)
        .await
}

/// Jobs that are completed.
pub(crate) async fn completed(pool: &PgPool) -> sqlx::Result<i64> {
    sqlx::query_scalar("SELECT count(*) FROM hook.finished WHERE status = 2")
        .fetch_one(pool)
        .await
}

/// Jobs of one target that wait.
pub(crate) async fn waiting(pool: &PgPool, target: &str) -> sqlx::Result<i64> {
    sqlx::query_scalar(
        "SELECT count(*) FROM hook.ready
         WHERE shard = 0 AND tier = ANY ('{0,1,2}') AND target_id = hook.target_id($1)",
    )
    .bind(target)
    .fetch_one(pool)
    .await
}

/// Jobs of one target that are completed.
pub(crate) async fn completed_of(pool: &PgPool, target: &str) -> sqlx::Result<i64> {
    sqlx::query_scalar(
        "SELECT count(*) FROM hook.finished WHERE status = 2 AND target_id = hook.target_id($1)",
    )
    .bind(target)
    .fetch_one(pool)
    .await
}

/// Jobs of these targets that are being attempted.
pub(crate) async fn leased(pool: &PgPool, targets: &[String]) -> sqlx::Result<i64> {
    sqlx::query_scalar(
        "SELECT count(*) FROM hook.lease JOIN unnest($1::text[]) AS t (name)
            ON target_id = hook.target_id(t.name)",
    )
    .bind(targets)
    .fetch_one(pool)
    .await
}

/// Attempts on record for each of these targets, in their order.
pub(crate) async fn attempts_by_target(
    pool: &PgPool,
    targets: &[String],
) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar(
        "SELECT (SELECT count(*) FROM hook.attempt WHERE target_id = hook.target_id(t.name))
         FROM unnest($1::text[]) WITH ORDINALITY AS t (name, ord) ORDER BY ord",
    )
    .bind(targets)
    .fetch_all(pool)
    .await
}

/// Rows of waiting jobs that were rewritten in place since the server began.
pub(crate) async fn ready_updates(pool: &PgPool) -> sqlx::Result<i64> {
    sqlx::query_scalar(
        "SELECT n_tup_upd FROM pg_stat_user_tables WHERE schemaname = 'hook' AND relname = 'ready'",
    )
    .fetch_one(pool)
    .await
}

/// Opens a transaction that keeps Postgres from removing anything, until it is dropped.
pub(crate) async fn pin(pool: &PgPool) -> sqlx::Result<Transaction<'static, Postgres>> {
    let mut transaction = pool.begin().await?;
    for statement in [
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "SELECT txid_current()",
    ] {
        sqlx::query(statement).execute(&mut *transaction).await?;
    }
    Ok(transaction)
}
