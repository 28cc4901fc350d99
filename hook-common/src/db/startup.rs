//! Waiting for Postgres and its schema at start.
//!
//! A process that comes up before Postgres waits, not ready and saying why every ten seconds.
//! What waiting cannot cure (a wrong password, an unknown database, a schema newer than this
//! build) ends the start at once. "Could not ask" is never taken for "nothing there".

use std::{fmt, time::Duration};

use rand::Rng as _;
use sqlx::{PgConnection, postgres::PgConnectOptions};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{CONNECT_TIMEOUT, Db, Reason, connect, fault::in_short};
use crate::{
    lifecycle::{Stop, within},
    logging::Repeats,
    migrate,
};

/// The condition of readiness that the schema is.
pub const SCHEMA: &str = "schema";

/// First pause between two tries; it doubles.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest pause while nobody answers: short, so that work goes on soon after Postgres is back.
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// Longest pause while the server answers that it is full: each try costs it something.
const PAUSE_FULL_MAX: Duration = Duration::from_secs(10);

/// Why a start cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum StartFault {
    /// Waiting cannot cure it: credentials, a database that does not exist, rights, TLS.
    #[error("Postgres at {place} refuses us")]
    Refused {
        /// Host, port and database.
        place: String,
        /// What Postgres or the TLS layer said.
        #[source]
        source: sqlx::Error,
    },
    /// A pooler gives sessions of Postgres to several of ours and does not carry their prepared
    /// statements along.
    #[error(
        "the pooler at {place} does not keep prepared statements: set max_prepared_statements in \
         PgBouncer (1.21 or newer), or pool_mode = session"
    )]
    StatementsNotKept {
        /// Host, port and database.
        place: String,
    },
    /// The schema has been brought further than this build knows.
    #[error(
        "the database has schema version {found}, this build knows versions up to {known}: use a newer build"
    )]
    SchemaTooNew {
        /// Version in the database.
        found: i64,
        /// Newest version that this build knows.
        known: i64,
    },
    /// `HOOK_DB_POOL_MAX` can never be satisfied.
    #[error(
        "HOOK_DB_POOL_MAX is {pool_max}, but Postgres lets ordinary roles open {usable} connections in all"
    )]
    PoolTooLarge {
        /// The setting.
        pool_max: u32,
        /// Connections that the server gives to ordinary roles.
        usable: i64,
    },
    /// The time of `HOOK_STARTUP_TIMEOUT` is over.
    #[error("gave up waiting for Postgres at {place}: {obstacle}")]
    TimedOut {
        /// Host, port and database.
        place: String,
        /// What was missing last.
        obstacle: String,
    },
    /// The process was told to stop while it waited: no fault.
    #[error("told to stop before the start was done")]
    Stopped,
}

/// What keeps the start waiting.
#[derive(Debug)]
enum Obstacle {
    Unreachable(sqlx::Error),
    Full,
    NotWritable,
    SchemaMissing { needed: i64 },
    SchemaOlder { found: i64, needed: i64 },
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(error) => write!(f, "cannot connect ({})", in_short(error)),
            Self::Full => f.write_str("Postgres has no connection left for us"),
            Self::NotWritable => {
                f.write_str("the server is read-only (a standby, or default_transaction_read_only)")
            }
            Self::SchemaMissing { needed } => write!(
                f,
                "the database has no schema hook yet, version {needed} is needed: run hook migrate"
            ),
            Self::SchemaOlder { found, needed } => write!(
                f,
                "the schema has version {found}, version {needed} is needed: run hook migrate"
            ),
        }
    }
}

/// One try: what is in the way, or that the start cannot succeed.
enum Hurdle {
    Wait(Obstacle),
    GiveUp(StartFault),
    /// Try again at once, without start-up options.
    DropOptions,
}

impl Db {
    /// Waits until Postgres is reached, writes, and has the schema that this build needs.
    ///
    /// # Errors
    /// When waiting cannot help, when `give_up_after` is over, or when `stop` drains.
    pub async fn wait_until_usable(
        &self,
        stop: &Stop,
        give_up_after: Option<Duration>,
    ) -> Result<(), StartFault> {
        let begun = Instant::now();
        let waits = Repeats::default();
        let mut waited = false;
        let mut pause = PAUSE_MIN;
        loop {
            let tried = stop.unless_draining(Box::pin(self.try_to_use())).await;
            let obstacle = match tried.ok_or(StartFault::Stopped)? {
                Ok(()) => {
                    if waited {
                        info!(place = self.place(), "Postgres is usable now");
                    }
                    return Ok(());
                }
                Err(Hurdle::GiveUp(fault)) => return Err(fault),
                Err(Hurdle::DropOptions) => continue,
                Err(Hurdle::Wait(obstacle)) => obstacle,
            };
            self.show(&obstacle);
            waited = true;
            if waits.due().is_some() {
                let waited_s = begun.elapsed().as_secs();
                warn!(place = self.place(), %obstacle, waited_s, "waiting for Postgres");
            }
            let pause_max = match obstacle {
                Obstacle::Full => PAUSE_FULL_MAX,
                Obstacle::Unreachable(_)
                | Obstacle::NotWritable
                | Obstacle::SchemaMissing { .. }
                | Obstacle::SchemaOlder { .. } => PAUSE_MAX,
            };
            let left = give_up_after.map(|limit| limit.saturating_sub(begun.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(StartFault::TimedOut {
                    place: self.place(),
                    obstacle: obstacle.to_string(),
                });
            }
            // Jitter upwards only, so that there is never more than one try a second.
            let jittered = pause.mul_f64(rand::rng().random_range(1.0..1.3));
            stop.pause(left.map_or(jittered, |left| jittered.min(left)))
                .await;
            pause = (pause * 2).min(pause_max);
        }
    }

    /// Host, port and database, as they may be shown.
    #[must_use]
    pub fn place(&self) -> String {
        let options = self.pool().connect_options();
        let host = options.get_socket().map_or_else(
            || options.get_host().to_owned(),
            |socket| socket.display().to_string(),
        );
        let database = options.get_database().unwrap_or_default();
        format!("{host}:{}/{database}", options.get_port())
    }

    fn show(&self, obstacle: &Obstacle) {
        let Some(readiness) = self.readiness() else {
            return;
        };
        match obstacle {
            Obstacle::Unreachable(_) | Obstacle::Full | Obstacle::NotWritable => {
                readiness.postgres_away(obstacle.to_string());
            }
            Obstacle::SchemaMissing { .. } | Obstacle::SchemaOlder { .. } => {
                readiness.lose(SCHEMA, obstacle.to_string());
            }
        }
    }

    async fn try_to_use(&self) -> Result<(), Hurdle> {
        let options = self.pool().connect_options();
        let mut connection = match connect(&options).await {
            Ok(connection) => connection,
            Err(error) if options.get_options().is_some() && refuses_options(&error) => {
                self.drop_startup_options();
                return Err(Hurdle::DropOptions);
            }
            Err(error) => return Err(self.judge(error)),
        };
        let checks = async {
            self.check(&mut connection).await?;
            self.check_statements_are_kept(&options).await
        };
        match within(CONNECT_TIMEOUT, checks).await {
            Some(checked) => checked,
            None => Err(Hurdle::Wait(Obstacle::Unreachable(sqlx::Error::Io(
                std::io::ErrorKind::TimedOut.into(),
            )))),
        }
    }

    async fn check(&self, connection: &mut PgConnection) -> Result<(), Hurdle> {
        let judge = |error| self.judge(error);
        if !is_writable(connection).await.map_err(judge)? {
            return Err(Hurdle::Wait(Obstacle::NotWritable));
        }
        let needed = migrate::version_needed();
        let found = migrate::version_applied(connection).await.map_err(judge)?;
        match found {
            None => return Err(Hurdle::Wait(Obstacle::SchemaMissing { needed })),
            Some(found) if found < needed => {
                return Err(Hurdle::Wait(Obstacle::SchemaOlder { found, needed }));
            }
            Some(found) if found > needed => {
                return Err(Hurdle::GiveUp(StartFault::SchemaTooNew {
                    found,
                    known: needed,
                }));
            }
            Some(_) => {}
        }
        self.check_pool_size(connection).await?;
        self.seen();
        if let Some(readiness) = self.readiness() {
            readiness.prove(SCHEMA);
        }
        Ok(())
    }

    /// Uses a second session beside the first: a pooler in transaction mode gives both the same one
    /// of Postgres, where a statement that it does not keep apart is in the way of the other's.
    async fn check_statements_are_kept(&self, options: &PgConnectOptions) -> Result<(), Hurdle> {
        let judge = |error| self.judge(error);
        let mut second = connect(options).await.map_err(judge)?;
        is_writable(&mut second).await.map_err(judge)?;
        Ok(())
    }

    /// Compares the pool with what the server can give at all; a pooler has limits of its own.
    async fn check_pool_size(&self, connection: &mut PgConnection) -> Result<(), Hurdle> {
        if self.inner.pooled {
            return Ok(());
        }
        let usable: i64 = sqlx::query_scalar(
            "-- db_usable_connections
            SELECT current_setting('max_connections')::bigint
                - current_setting('superuser_reserved_connections')::bigint",
        )
        .fetch_one(connection)
        .await
        .map_err(|error| self.judge(error))?;
        let pool_max = self.pool().options().get_max_connections();
        if i64::from(pool_max) > usable {
            return Err(Hurdle::GiveUp(StartFault::PoolTooLarge {
                pool_max,
                usable,
            }));
        }
        if i64::from(pool_max) * 2 > usable {
            warn!(
                pool_max,
                usable, "one process may take more than half of all connections to Postgres"
            );
        }
        Ok(())
    }

    fn judge(&self, error: sqlx::Error) -> Hurdle {
        if is_full(&error) {
            return Hurdle::Wait(Obstacle::Full);
        }
        if is_of_forgotten_statement(&error) {
            return Hurdle::GiveUp(StartFault::StatementsNotKept {
                place: self.place(),
            });
        }
        if is_hopeless(&error) {
            return Hurdle::GiveUp(StartFault::Refused {
                place: self.place(),
                source: error,
            });
        }
        Hurdle::Wait(Obstacle::Unreachable(error))
    }

    fn drop_startup_options(&self) {
        warn!(
            "a pooler before Postgres refuses start-up options: statements have no time limit on \
             the server's side, and their plans may turn bad; set HOOK_DATABASE_DIRECT_URL to say \
             that there is a pooler, and the options for the role (docs/operations.md)"
        );
        self.replace(Reason::StartupOptions, self.inner.direct.clone());
    }
}

/// Whether the server takes writes, as far as it can be asked.
pub(super) async fn is_writable(connection: &mut PgConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "-- db_is_writable
        SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'",
    )
    .fetch_one(connection)
    .await
}

fn sqlstate(error: &sqlx::Error) -> Option<String> {
    let code = error.as_database_error()?.code()?;
    Some(code.into_owned())
}

fn is_full(error: &sqlx::Error) -> bool {
    sqlstate(error).is_some_and(|code| code.starts_with("53"))
}

/// A prepared statement that is there although this session never made it, or the other way round.
pub(super) fn is_of_forgotten_statement(error: &sqlx::Error) -> bool {
    sqlstate(error).is_some_and(|code| code == "42P05" || code == "26000")
}

/// Wrong credentials, an unknown role or database, missing rights, TLS that cannot work.
fn is_hopeless(error: &sqlx::Error) -> bool {
    let set_up = matches!(error, sqlx::Error::Tls(_) | sqlx::Error::Configuration(_));
    set_up
        || sqlstate(error)
            .is_some_and(|code| code.starts_with("28") || code.starts_with("42") || code == "3D000")
}

fn refuses_options(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|refusal| {
        refusal.code().is_some_and(|code| code == "08P01")
            && refusal.message().contains("startup parameter")
    })
}
