//! A look at a database for a person who asks what is wrong with it: facts only, judged elsewhere.
//!
//! Nothing is changed and nothing is left behind: what has to be prepared for a plan is prepared inside
//! a transaction that is taken back.

use sqlx::{Connection as _, Executor as _, PgConnection, Row as _, postgres::PgConnectOptions};

use crate::{
    metrics::unix_seconds,
    migrate,
    queue::{PREPARE_DEQUEUE, PREPARE_FINISH},
};

use super::{
    connect, connect_options,
    startup::{is_of_forgotten_statement, is_writable},
};

/// What is known of a database.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// The server's version in words.
    pub server: String,
    /// Its version as a number, such as 150004.
    pub server_number: i32,
    /// Whether it takes writes.
    pub writable: bool,
    /// Whose sessions our connections have.
    pub sessions: Sessions,
    /// The schema's version; `None` without a schema.
    pub schema: Option<i64>,
    /// This machine's clock less that of the server, in seconds.
    pub clock_ahead_s: f64,
    /// Tables, and the right on each that this role lacks.
    pub missing_rights: Vec<(String, String)>,
    /// Whether autovacuum runs, and the tables it is turned off for.
    pub autovacuum: bool,
    /// Tables of ours that are not vacuumed by themselves.
    pub not_vacuumed: Vec<String>,
    /// Age of the oldest open transaction, prepared ones included, in seconds.
    pub oldest_transaction_s: f64,
    /// Who has it open: process id and application, or the name of a prepared transaction.
    pub oldest_transaction_by: String,
    /// Replication slots that hold rows back although nobody reads from them.
    pub idle_slots: Vec<String>,
    /// Dead rows of the waiting jobs, by Postgres's estimate.
    pub dead_ready: i64,
    /// What the server makes of the statements that run for every job, by their name.
    pub plans: Vec<(&'static str, String)>,
}

/// What a connection is to a session of the server.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Sessions {
    /// Each connection has one: it leads to the server, or to a pooler in session mode.
    #[default]
    Own,
    /// Several connections share one: a transaction pooler, which keeps their statements apart.
    Shared,
    /// A transaction pooler that does not: the statement of one is in the way of another's.
    SharedCarelessly,
}

const SERVER: &str = "-- checkup_server
SELECT current_setting('server_version') AS server, current_setting('server_version_num')::int AS server_number,
    extract(epoch FROM clock_timestamp())::float8 AS now, current_setting('autovacuum') = 'on' AS autovacuum";

const SESSION: &str = "-- checkup_session
SELECT pg_backend_pid()";

const MISSING_RIGHTS: &str = "-- checkup_rights
SELECT c.relname::text, r.name FROM pg_class AS c
CROSS JOIN unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE}'::text[]) AS r (name)
WHERE c.relnamespace = to_regnamespace('hook') AND c.relkind IN ('r', 'p') AND c.relname <> 'migration'
    AND NOT (has_table_privilege(c.oid, r.name) AND has_schema_privilege(c.relnamespace, 'USAGE'))
ORDER BY 1, 2";

const NOT_VACUUMED: &str = "-- checkup_not_vacuumed
SELECT relname::text FROM pg_class
WHERE relnamespace = to_regnamespace('hook') AND 'autovacuum_enabled=off' = ANY (reloptions)
    OR relnamespace = to_regnamespace('hook') AND 'autovacuum_enabled=false' = ANY (reloptions)
ORDER BY 1";

const OLDEST_TRANSACTION: &str = "-- checkup_oldest_transaction
SELECT extract(epoch FROM clock_timestamp() - begun)::float8, by FROM (
    SELECT xact_start AS begun, 'process ' || pid || ' (' || COALESCE(application_name, '') || ')' AS by
    FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
    UNION ALL
    SELECT prepared, 'prepared transaction ' || gid FROM pg_prepared_xacts WHERE database = current_database()
) AS open ORDER BY begun LIMIT 1";

const IDLE_SLOTS: &str = "-- checkup_idle_slots
SELECT slot_name::text FROM pg_replication_slots
WHERE NOT active AND (xmin IS NOT NULL OR catalog_xmin IS NOT NULL) ORDER BY 1";

const DEAD_READY: &str = "-- checkup_dead_ready
SELECT pg_stat_get_dead_tuples(to_regclass('hook.ready'))";

const PLANS: [(&str, &str, &str); 2] = [
    (
        "dequeue",
        PREPARE_DEQUEUE,
        "EXPLAIN EXECUTE hook_dequeue (0, array_fill(0::bigint, ARRAY[4]), array_fill(0::smallint, ARRAY[4]),
            array_fill(1, ARRAY[4]), array_fill('0001-01-01T00:00:00Z'::timestamptz, ARRAY[4]), 50, 30000,
            15000, 'hook doctor')",
    ),
    (
        "finish",
        PREPARE_FINISH,
        "EXPLAIN EXECUTE hook_finish (0, ARRAY['(0,1)'], array_fill(gen_random_uuid(), ARRAY[1]), ARRAY[1]::bigint[],
            ARRAY[2]::smallint[], ARRAY[0]::smallint[], ARRAY[0]::bigint[], ARRAY[0]::smallint[],
            ARRAY[0]::smallint[], ARRAY[200]::smallint[], ARRAY['']::bytea[], ARRAY[false], ARRAY[5])",
    ),
];

/// Looks at the database behind a URL. `pooled` says that services know of a pooler there, so that
/// they ask for nothing when they connect.
///
/// # Errors
/// It could not be reached, or a question was refused.
pub async fn look(url: &str, pooled: bool) -> sqlx::Result<Facts> {
    // As the services connect: poolers refuse what sqlx asks for by default.
    let options = connect_options(url, "hook doctor")?;
    let mut connection = connect(&options).await?;
    let sessions = sessions(&options, &mut connection).await?;
    let mut facts = server(&mut connection).await?;
    facts.sessions = sessions;
    facts.writable = is_writable(&mut connection).await?;
    facts.schema = migrate::version_applied(&mut connection).await?;
    holds(&mut connection, &mut facts).await?;
    if facts.schema.is_some() {
        facts.missing_rights = sqlx::query_as(MISSING_RIGHTS)
            .fetch_all(&mut connection)
            .await?;
        facts.dead_ready = sqlx::query_scalar(DEAD_READY)
            .fetch_one(&mut connection)
            .await?;
    }
    if facts.schema == Some(migrate::version_needed()) && facts.missing_rights.is_empty() {
        facts.plans = plans(&mut connection, pooled).await?;
    }
    connection.close().await?;
    Ok(facts)
}

/// A second connection beside an idle first one has a session of its own, unless a pooler gives both
/// the same.
async fn sessions(options: &PgConnectOptions, first: &mut PgConnection) -> sqlx::Result<Sessions> {
    let mut second = connect(options).await?;
    let mut found = Sessions::Shared;
    for _ in 0..3 {
        let one: i32 = sqlx::query_scalar(SESSION).fetch_one(&mut *first).await?;
        match sqlx::query_scalar(SESSION).fetch_one(&mut second).await {
            Ok(other) if one == other => {}
            Ok::<i32, _>(_) => found = Sessions::Own,
            Err(error) if is_of_forgotten_statement(&error) => {
                found = Sessions::SharedCarelessly;
                break;
            }
            Err(error) => return Err(error),
        }
    }
    second.close().await?;
    Ok(found)
}

async fn server(connection: &mut PgConnection) -> sqlx::Result<Facts> {
    let before = unix_seconds();
    let row = sqlx::query(SERVER).fetch_one(connection).await?;
    let here = f64::midpoint(before, unix_seconds());
    Ok(Facts {
        server: row.try_get("server")?,
        server_number: row.try_get("server_number")?,
        autovacuum: row.try_get("autovacuum")?,
        clock_ahead_s: here - row.try_get::<f64, _>("now")?,
        ..Facts::default()
    })
}

/// What keeps dead rows from being cleared away.
async fn holds(connection: &mut PgConnection, facts: &mut Facts) -> sqlx::Result<()> {
    facts.not_vacuumed = sqlx::query_scalar(NOT_VACUUMED)
        .fetch_all(&mut *connection)
        .await?;
    let oldest: Option<(f64, String)> = sqlx::query_as(OLDEST_TRANSACTION)
        .fetch_optional(&mut *connection)
        .await?;
    (facts.oldest_transaction_s, facts.oldest_transaction_by) = oldest.unwrap_or_default();
    facts.idle_slots = sqlx::query_scalar(IDLE_SLOTS).fetch_all(connection).await?;
    Ok(())
}

async fn plans(
    connection: &mut PgConnection,
    pooled: bool,
) -> sqlx::Result<Vec<(&'static str, String)>> {
    let mut plans = Vec::new();
    let mut transaction = connection.begin().await?;
    if !pooled {
        for (name, value) in super::PLANNING {
            sqlx::query("-- checkup_planning\nSELECT set_config($1, $2, true)")
                .bind(name)
                .bind(value)
                .execute(&mut *transaction)
                .await?;
        }
    }
    for (name, prepare, explain) in PLANS {
        transaction.execute(sqlx::raw_sql(prepare)).await?;
        let rows = transaction.fetch_all(sqlx::raw_sql(explain)).await?;
        let lines: Vec<String> = rows
            .iter()
            .map(|row| row.try_get(0))
            .collect::<sqlx::Result<_>>()?;
        plans.push((name, lines.join("\n")));
        transaction.execute(sqlx::raw_sql("DEALLOCATE ALL")).await?;
    }
    transaction.rollback().await?;
    Ok(plans)
}
