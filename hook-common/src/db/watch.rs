//! The look at Postgres once a second, through the pool and past it.
//!
//! It shows how full the pool is, and finds the pools that have to go: nothing comes out of them
//! while a new connection works, or what comes out does not write. A pool whose connections are
//! all busy in Postgres is left alone: throwing it away would only add to their number.
//! Readiness is fed by a second look, which also needs the queue's tables to be there and not
//! locked away. A third one follows each broken connection: while Postgres refuses new ones, nobody
//! has to wait for the pool to find out.

use std::{io::ErrorKind, time::Duration};

use sqlx::{PgConnection, Postgres, pool::PoolConnection};
use tokio::time::Instant;

use super::{Db, Fault, Reason, connect, startup::is_writable};
use crate::{
    lifecycle::{Stop, within},
    metrics::process::{
        DB_PING_DURATION_SECONDS, DB_POOL_CONNECTIONS, DB_UP, GATE_IN_FLIGHT, GATE_MAX,
        GATE_WAIT_SECONDS,
    },
    ops::Readiness,
};

/// From one look to the next.
const EVERY: Duration = Duration::from_secs(1);
/// From one knock to the next while Postgres refuses connections; also after an alarm that was none,
/// since connections may break one by one.
const KNOCK_EVERY: Duration = Duration::from_millis(250);
/// A look that takes longer has seen nothing.
const LOOK_LIMIT: Duration = Duration::from_secs(1);
/// Tables that are locked for longer give their connection back to Postgres.
const TABLES_LIMIT: Duration = Duration::from_secs(10);
/// Failed looks in a row after which the pool is compared with a new connection.
const MISSES_MAX: u32 = 2;
/// The gate that the pool is, in metrics.
const GATE: &str = "db_pool";

/// What one look found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Seen {
    Writable,
    NotWritable,
    Nothing,
}

impl Db {
    /// Looks at Postgres once a second until the process aborts.
    pub async fn watch(&self, stop: &Stop) {
        let looks = async {
            let pool = Box::pin(self.watch_pool(stop));
            let tables = Box::pin(self.watch_tables(stop));
            let alarms = Box::pin(self.watch_alarms(stop));
            tokio::join!(pool, tables, alarms)
        };
        stop.unless_aborting(looks).await;
    }

    async fn watch_pool(&self, stop: &Stop) {
        let mut misses = 0;
        loop {
            let seen = self.look().await;
            misses = if seen == Seen::Nothing { misses + 1 } else { 0 };
            if misses >= MISSES_MAX {
                self.compare_with_new_connection().await;
            }
            self.measure();
            stop.pause_until_abort(EVERY).await;
        }
    }

    /// Says that Postgres is there each time that the queue's tables can be read.
    async fn watch_tables(&self, stop: &Stop) {
        loop {
            let pool = self.pool();
            if let Ok(mut connection) = pool.acquire().await {
                let asked = tokio::select! {
                    asked = reach_tables(&mut connection) => Some(asked),
                    () = pool.close_event() => None,
                    () = stop.pause_until_abort(TABLES_LIMIT) => None,
                };
                match asked {
                    Some(Ok(true)) => self.seen(),
                    // The look through the pool sees it, too, and acts on it.
                    Some(Ok(false)) => {}
                    Some(Err(error)) => {
                        self.observe(&error);
                    }
                    // Without this it would wait for the lost answer on its way back.
                    None => connection.close_on_drop(),
                }
            }
            stop.pause_until_abort(EVERY).await;
        }
    }

    /// Knocks at Postgres when a connection broke, and on until it is opened.
    async fn watch_alarms(&self, stop: &Stop) {
        let Some(readiness) = self.readiness() else {
            return;
        };
        loop {
            self.inner.alarm.notified().await;
            let options = self.pool().connect_options();
            loop {
                let knocked = connect(&options).await;
                let refuses = knocked.as_ref().is_err_and(refuses);
                readiness.set_postgres_refuses(refuses);
                drop(knocked);
                stop.pause_until_abort(KNOCK_EVERY).await;
                if !refuses {
                    break;
                }
            }
        }
    }

    /// One look through the pool.
    async fn look(&self) -> Seen {
        let asked = Instant::now();
        let acquired = self.acquire().await;
        GATE_WAIT_SECONDS.histogram(&[GATE]).record(asked.elapsed());
        let Ok(mut connection) = acquired else {
            return Seen::Nothing;
        };
        let begun = Instant::now();
        let answer = within(LOOK_LIMIT, is_writable(&mut connection)).await;
        DB_PING_DURATION_SECONDS
            .histogram(&[self.inner.name])
            .record(begun.elapsed());
        match answer {
            Some(Ok(true)) => Seen::Writable,
            Some(Ok(false)) => {
                self.refuse(connection);
                Seen::NotWritable
            }
            Some(Err(error)) => {
                self.observe(&error);
                Seen::Nothing
            }
            None => {
                connection.close_on_drop();
                if let Some(readiness) = self.readiness() {
                    readiness.postgres_away("no answer in time");
                }
                Seen::Nothing
            }
        }
    }

    /// The server was demoted or made read-only: every connection of this pool leads to it.
    fn refuse(&self, connection: PoolConnection<Postgres>) {
        // Gone with the rest of its pool.
        drop(connection);
        if let Some(readiness) = self.readiness() {
            readiness.postgres_away("the server is read-only");
        }
        self.rebuild(Reason::NotWritable);
    }

    /// Nothing comes out of the pool; when a new connection works and Postgres does not work on
    /// any of ours, the pool is what is broken.
    async fn compare_with_new_connection(&self) {
        if self.is_idle().await {
            self.rebuild(Reason::Starving);
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a pool has far fewer than 2^52 connections"
    )]
    fn measure(&self) {
        let pool = self.pool();
        let idle = pool.num_idle();
        let open = usize::try_from(pool.size()).unwrap_or(usize::MAX);
        let used = open.saturating_sub(idle);
        let name = self.inner.name;
        let connections = |state| DB_POOL_CONNECTIONS.gauge(&[name, state]);
        connections("idle").set(idle as f64);
        connections("used").set(used as f64);
        GATE_IN_FLIGHT.gauge(&[GATE]).set(used as f64);
        GATE_MAX
            .gauge(&[GATE])
            .set(f64::from(pool.options().get_max_connections()));
        let near = self.readiness().is_some_and(Readiness::postgres_is_near);
        DB_UP.gauge(&[name]).set(if near { 1.0 } else { 0.0 });
    }
}

/// Whether this says that nobody is let in: nobody listens, or what listens hangs up, or the server
/// starts or stops. Silence says nothing.
fn refuses(error: &sqlx::Error) -> bool {
    if let sqlx::Error::Io(error) = error {
        return error.kind() != ErrorKind::TimedOut;
    }
    Fault::of(error) == Fault::Unreachable
}

/// Whether the server writes; needs every table of the hot path, and reads no row of any.
async fn reach_tables(connection: &mut PgConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "-- db_reach_tables
        SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'
            AND NOT EXISTS (
                SELECT FROM hook.ready, hook.lease, hook.finished, hook.job, hook.target
                WHERE false
            )",
    )
    .fetch_one(connection)
    .await
}
