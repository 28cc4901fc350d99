//! Brings a database to the schema that this build needs, and tells which schema it has.
//!
//! Every migration file is applied in a transaction of its own that first takes a
//! transaction-level advisory lock: several machines may run this at one time, a killed run
//! leaves no half of a file behind, and nothing leaks through a connection pooler. A lock that is not
//! granted at once is given up and asked for again later, because whatever runs would queue up
//! behind the request. The history lives in `hook.migration`, beside the tables; nothing outside the schema is touched.

use std::time::Duration;

use sqlx::{
    Connection, PgConnection,
    migrate::{Migration, Migrator},
};
use thiserror::Error;
use tokio::time::Instant;

use crate::{db::Fault, lifecycle::Stop};

/// The embedded migrations.
pub static MIGRATOR: Migrator = sqlx::migrate!("../migrations");

/// Serialises runs on one database: the bytes of "hook mig".
const LOCK: i64 = i64::from_be_bytes(*b"hook mig");

/// From giving a lock up to asking for it again, so that those who queued have their turn.
const LOCK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Locks are asked for again for so long in all.
const LOCK_PATIENCE: Duration = Duration::from_secs(600);

/// Why the schema could not be brought up to date.
#[derive(Debug, Error)]
pub enum MigrateError {
    /// Postgres refused, or could not be reached.
    #[error("running the migrations")]
    Database(#[from] sqlx::Error),
    /// The database has a schema that this build does not know.
    #[error("the database has schema version {found}, this build knows versions up to {known}")]
    TooNew {
        /// Newest version in the database.
        found: i64,
        /// Newest version in this build.
        known: i64,
    },
    /// A file that was applied before has other contents in this build.
    #[error("migration {0} was applied with other contents than this build has")]
    Edited(i64),
}

/// The schema version that this build needs.
#[must_use]
pub fn version_needed() -> i64 {
    newest(&MIGRATOR)
}

/// The newest applied version; `None` on a database without the schema.
///
/// # Errors
/// Postgres could not be asked; that says nothing about the schema.
pub async fn version_applied(connection: &mut PgConnection) -> sqlx::Result<Option<i64>> {
    let known: bool = sqlx::query_scalar(
        "-- migrate_table
        SELECT to_regclass('hook.migration') IS NOT NULL",
    )
    .fetch_one(&mut *connection)
    .await?;
    if !known {
        return Ok(None);
    }
    sqlx::query_scalar(
        "-- migrate_version
        SELECT max(version) FROM hook.migration",
    )
    .fetch_one(connection)
    .await
}

/// Applies what is missing and returns the versions it applied, in order.
///
/// # Errors
/// See [`MigrateError`]. Whatever was applied before the error stays applied.
pub async fn run(connection: &mut PgConnection) -> Result<Vec<i64>, MigrateError> {
    apply(connection, &MIGRATOR).await
}

/// As [`run`], with these migrations instead of the embedded ones.
///
/// # Errors
/// As [`run`].
pub async fn apply(
    connection: &mut PgConnection,
    migrations: &Migrator,
) -> Result<Vec<i64>, MigrateError> {
    let stop = Stop::manual(Duration::ZERO);
    let begun = Instant::now();
    let mut applied = Vec::new();
    loop {
        match apply_next(connection, migrations).await {
            Ok(Some(version)) => applied.push(version),
            Ok(None) => return Ok(applied),
            Err(MigrateError::Database(error))
                if Fault::of(&error) == Fault::Conflict && begun.elapsed() < LOCK_PATIENCE =>
            {
                stop.pause(LOCK_AGAIN_AFTER).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Applies the first missing migration; `None` when there is none.
async fn apply_next(
    connection: &mut PgConnection,
    migrations: &Migrator,
) -> Result<Option<i64>, MigrateError> {
    let mut transaction = connection.begin().await?;
    sqlx::query(
        "-- migrate_lock
        SELECT pg_advisory_xact_lock($1)",
    )
    .bind(LOCK)
    .execute(&mut *transaction)
    .await?;
    sqlx::raw_sql(
        "SET LOCAL client_min_messages = warning;
        DO $$ BEGIN
            -- Asked first: IF NOT EXISTS wants the right to create schemas even where one exists.
            IF to_regnamespace('hook') IS NULL THEN CREATE SCHEMA hook; END IF;
        END $$;
        CREATE TABLE IF NOT EXISTS hook.migration (
            version bigint PRIMARY KEY,
            description text NOT NULL,
            checksum bytea NOT NULL,
            applied_at timestamptz NOT NULL DEFAULT now()
        );
        SET LOCAL lock_timeout = '500ms'",
    )
    .execute(&mut *transaction)
    .await?;
    let history: Vec<(i64, Vec<u8>)> = sqlx::query_as(
        "-- migrate_history
        SELECT version, checksum FROM hook.migration ORDER BY version",
    )
    .fetch_all(&mut *transaction)
    .await?;

    let Some(migration) = first_missing(&history, migrations)? else {
        transaction.commit().await?;
        return Ok(None);
    };
    sqlx::raw_sql(migration.sql.clone())
        .execute(&mut *transaction)
        .await?;
    sqlx::query(
        "-- migrate_record
        INSERT INTO hook.migration (version, description, checksum) VALUES ($1, $2, $3)",
    )
    .bind(migration.version)
    .bind(&*migration.description)
    .bind(&*migration.checksum)
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(Some(migration.version))
}

/// The first migration that is not in the history, which has to be one of this build.
fn first_missing<'a>(
    history: &[(i64, Vec<u8>)],
    migrations: &'a Migrator,
) -> Result<Option<&'a Migration>, MigrateError> {
    let known = newest(migrations);
    if let Some(&(found, _)) = history.last()
        && found > known
    {
        return Err(MigrateError::TooNew { found, known });
    }
    let mut missing = None;
    for migration in migrations.iter() {
        match history
            .iter()
            .find(|(version, _)| *version == migration.version)
        {
            Some((version, checksum)) if *checksum != *migration.checksum => {
                return Err(MigrateError::Edited(*version));
            }
            Some(_) => {}
            None => missing = missing.or(Some(migration)),
        }
    }
    Ok(missing)
}

fn newest(migrations: &Migrator) -> i64 {
    let versions = migrations.iter().map(|migration| migration.version);
    versions.max().unwrap_or(0)
}
