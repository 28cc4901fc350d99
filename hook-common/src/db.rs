//! The way to Postgres: one pool per process, and the knowledge of when to throw it away.
//!
//! A pool of sqlx keeps connections for as long as they look alive. Three kinds of them look
//! alive and are not: connections to a server that has gone silently, connections to a server
//! that has become read-only, and connections that a cancelled `BEGIN` left inside a transaction,
//! where the next borrower's statement succeeds and is never committed. [`Db`] replaces the pool
//! when it finds one of the first two ([`Db::watch`], [`Db::observe`]), and lets none of the third
//! kind come back ([`Db::begin`]).
//!
//! No session state is ever set: a transaction pooler may stand in between. Limits on the server's
//! side travel as start-up options and are given up where a pooler refuses them.

use std::{
    io::ErrorKind,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use sqlx::{
    ConnectOptions as _, PgConnection, PgPool, Postgres, Transaction,
    pool::PoolConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::{sync::Notify, time::Instant};
use tracing::warn;

use crate::{
    config::{Binary, CommonConfig},
    metrics::process::{DB_FAULTS_TOTAL, DB_POOL_REBUILDS_TOTAL},
    ops::Readiness,
};

pub mod checkup;
pub mod fault;

mod backends;
mod begin;
mod reason;
mod silence;
mod startup;
mod watch;

use backends::Backends;
use reason::Reason;

pub use fault::Fault;
pub use startup::{SCHEMA, StartFault};

/// The condition of readiness that the statements are which the service cannot do without.
pub const STATEMENTS: &str = "statements";

/// Asking for a connection fails after this: whoever waits longer has lost its own caller.
const ACQUIRE_TIMEOUT: Duration = Duration::from_millis(1500);
/// A connection that cannot be opened within this counts as not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Pools are not thrown away more often than this, except by [`Reason::Starving`].
const REBUILD_EVERY: Duration = Duration::from_secs(2);
/// A pool that starves under honest load must not be thrown away again and again: what runs on
/// the old connections goes on running in Postgres.
const REBUILD_STARVING_EVERY: Duration = Duration::from_secs(30);

/// The process's way to Postgres; cheap to clone.
#[derive(Clone, Debug)]
pub struct Db {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    name: &'static str,
    pool: RwLock<PgPool>,
    backends: Backends,
    direct: PgConnectOptions,
    /// Whether a pooler is known to stand before Postgres.
    pooled: bool,
    readiness: Option<Readiness>,
    rebuilt: Mutex<Option<Instant>>,
    /// A connection broke or could not be opened.
    alarm: Notify,
}

impl Db {
    /// Prepares the way; connects to nothing yet. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// When a URL cannot be read, which the reader of the settings has ruled out.
    pub fn new(config: &CommonConfig, readiness: Readiness) -> sqlx::Result<Self> {
        let name = config.binary.as_str();
        let base = connect_options(config.database_url.expose(), name)?;
        let direct = match &config.database_direct_url {
            Some(url) => connect_options(url.expose(), name)?,
            None => base.clone(),
        };
        let pooled = config.database_direct_url.is_some();
        let options = if pooled {
            base
        } else {
            base.options(startup_options(config.binary, config.db_statement_timeout))
        };
        let backends = Backends::new(config.db_pool_max);
        let pool = backends.noted_by(pool_options(config.db_pool_max));
        Ok(Self::of(Inner {
            name,
            pool: RwLock::new(pool.connect_lazy_with(options)),
            backends,
            direct,
            pooled,
            readiness: Some(readiness),
            rebuilt: Mutex::default(),
            alarm: Notify::new(),
        }))
    }

    /// Uses a pool that somebody else has made; for tests and commands.
    #[must_use]
    pub fn around(pool: PgPool) -> Self {
        Self::of(Inner {
            name: "hook",
            direct: pool.connect_options().as_ref().clone(),
            pool: RwLock::new(pool),
            backends: Backends::new(0),
            pooled: false,
            readiness: None,
            rebuilt: Mutex::default(),
            alarm: Notify::new(),
        })
    }

    fn of(inner: Inner) -> Self {
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The pool of the moment. It may be replaced at any time: ask again for each statement.
    #[must_use]
    pub fn pool(&self) -> PgPool {
        let pool = self.inner.pool.read();
        pool.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Borrows a connection. Whatever fails here has sent nothing, so it can be tried again.
    ///
    /// # Errors
    /// [`Fault::Overloaded`] when all connections are in use, [`Fault::Unreachable`] and others
    /// when none can be opened.
    ///
    /// # Cancel safety
    /// Dropped while waiting, it holds nothing.
    pub async fn acquire(&self) -> Result<PoolConnection<Postgres>, Fault> {
        loop {
            let pool = self.pool();
            let acquired = tokio::select! {
                biased;
                acquired = pool.acquire() => acquired,
                // The pool would knock until its timeout.
                () = self.refusal() => Err(std::io::Error::from(ErrorKind::ConnectionRefused).into()),
            };
            let error = match acquired {
                Ok(connection) => return Ok(connection),
                // The pool was replaced while we waited in its line: join the new one.
                Err(sqlx::Error::PoolClosed) if !self.pool().is_closed() => continue,
                Err(error) => error,
            };
            let near = self.readiness().is_none_or(Readiness::postgres_is_near);
            let fault = Fault::of_acquire(&error, near);
            self.note(fault, &error);
            return Err(fault);
        }
    }

    /// Begins a transaction. This is the only way to begin one on the pool; the module `begin` says
    /// why.
    ///
    /// # Errors
    /// As any statement: [`Db::observe`] judges them. Nothing was changed in any case.
    ///
    /// # Cancel safety
    /// Dropped while it begins, it costs the whole pool; avoid it where it would happen often.
    pub async fn begin(&self) -> sqlx::Result<Transaction<'static, Postgres>> {
        begin::Begin::new(self).await
    }

    /// Opens a connection of its own past any pooler, for `LISTEN` and migrations. It has no
    /// limit on the duration of statements.
    ///
    /// # Errors
    /// Whatever Postgres or the way to it says; after three seconds of silence, a timeout.
    ///
    /// # Cancel safety
    /// Dropped while connecting, it leaves nothing behind.
    pub async fn connect_direct(&self) -> sqlx::Result<PgConnection> {
        connect(&self.inner.direct).await
    }

    /// Judges the error of a statement, counts it, and throws the pool away when the error says
    /// that its connections are of no more use.
    pub fn observe(&self, error: &sqlx::Error) -> Fault {
        let fault = Fault::of(error);
        self.note(fault, error);
        match fault {
            Fault::Unreachable | Fault::OutcomeUnknown => self.rebuild(Reason::Unreachable),
            Fault::NotWritable => self.rebuild(Reason::NotWritable),
            Fault::StaleStatement => self.rebuild(Reason::StaleStatements),
            Fault::Overloaded
            | Fault::Conflict
            | Fault::Cancelled
            | Fault::Refused
            | Fault::Permanent => {}
        }
        fault
    }

    /// Takes the end of a rehearsal: the process is not ready while Postgres refuses what it lives
    /// on. A failure that may pass by itself says nothing about the statements.
    pub(crate) fn rehearsed(&self, ended: &sqlx::Result<()>) {
        let refused = match ended {
            Ok(()) => None,
            Err(error) if Fault::of(error).may_pass_later() => return,
            Err(error) => Some(fault::in_short(error)),
        };
        if let Some(readiness) = self.readiness() {
            match refused {
                None => readiness.prove(STATEMENTS),
                Some(reason) => readiness.lose(STATEMENTS, reason),
            }
        }
    }

    /// Whether no rehearsal has been refused since the last one that passed.
    pub(crate) fn statements_work(&self) -> bool {
        self.readiness()
            .is_none_or(|readiness| readiness.holds(STATEMENTS))
    }

    /// Closes every connection of the pool and lets no new one be opened; for the end.
    pub async fn close(&self) {
        self.pool().close().await;
    }

    /// Says that Postgres has answered a statement just now.
    pub fn seen(&self) {
        if let Some(readiness) = self.readiness() {
            readiness.postgres_seen();
        }
    }

    /// Returns once it is known that Postgres refuses connections.
    async fn refusal(&self) {
        match self.readiness() {
            Some(readiness) => readiness.postgres_refusal().await,
            None => std::future::pending().await,
        }
    }

    fn readiness(&self) -> Option<&Readiness> {
        self.inner.readiness.as_ref()
    }

    /// Counts a fault, and keeps the reason for the case that Postgres stays away.
    fn note(&self, fault: Fault, error: &sqlx::Error) {
        DB_FAULTS_TOTAL
            .counter(&[self.inner.name, fault.as_str()])
            .increment(1);
        if matches!(fault, Fault::Unreachable | Fault::OutcomeUnknown)
            && let Some(readiness) = self.readiness()
        {
            readiness.postgres_away(fault::in_short(error));
            self.inner.alarm.notify_one();
        }
    }

    /// Replaces the pool by a new one with the same options.
    fn rebuild(&self, reason: Reason) {
        let old = self.pool();
        if old.size() > 0 && self.may_rebuild(reason) {
            self.replace(reason, old.connect_options().as_ref().clone());
        }
    }

    /// Throws this very pool away, however often that happens.
    fn discard(&self, pool: &PgPool, reason: Reason) {
        // Closed at once; nobody has to wait until the last borrower is back.
        drop(pool.close());
        if self.pool().is_closed() {
            self.replace(reason, pool.connect_options().as_ref().clone());
        }
    }

    /// Puts a new pool in the place of the old one, whose connections close as they come back.
    fn replace(&self, reason: Reason, options: PgConnectOptions) {
        let old = {
            let current = self.inner.pool.write();
            let mut current = current.unwrap_or_else(PoisonError::into_inner);
            let new = current.options().clone().connect_lazy_with(options);
            std::mem::replace(&mut *current, new)
        };
        if reason.closes_at_once() {
            drop(old.close());
        }
        DB_POOL_REBUILDS_TOTAL
            .counter(&[self.inner.name, reason.as_str()])
            .increment(1);
        warn!(
            reason = reason.as_str(),
            "throwing away all connections to Postgres"
        );
    }

    fn may_rebuild(&self, reason: Reason) -> bool {
        let every = match reason {
            Reason::Unreachable | Reason::NotWritable | Reason::StaleStatements => REBUILD_EVERY,
            Reason::Starving => REBUILD_STARVING_EVERY,
            Reason::StartupOptions | Reason::CancelledBegin => Duration::ZERO,
        };
        let rebuilt = self.inner.rebuilt.lock();
        let mut rebuilt = rebuilt.unwrap_or_else(PoisonError::into_inner);
        let may = rebuilt.is_none_or(|last| last.elapsed() >= every);
        if may {
            *rebuilt = Some(Instant::now());
        }
        may
    }
}

/// Opens one connection, within [`CONNECT_TIMEOUT`].
async fn connect(options: &PgConnectOptions) -> sqlx::Result<PgConnection> {
    match crate::lifecycle::within(CONNECT_TIMEOUT, options.connect()).await {
        Some(connected) => connected,
        None => Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())),
    }
}

fn connect_options(url: &str, name: &str) -> sqlx::Result<PgConnectOptions> {
    let options: PgConnectOptions = url.parse()?;
    Ok(options
        .application_name(name)
        // Poolers refuse this one unless told otherwise, and no float travels as text here.
        .extra_float_digits(None)
        .statement_cache_capacity(200)
        // Our own metrics show what is slow, and SQL does not belong into logs.
        .disable_statement_logging())
}

/// What makes a worker's plans stay good.
///
/// A table that was analysed while it was empty is believed to stay so: a plan that is made then
/// reads all of it, by whatever index, and sorts; and it goes on doing so for as long as it is kept,
/// a minute or more, while the table grows by thousands of rows a second. Each statement of a
/// worker has an index that finds just what it looks for in the order it wants, whatever the sizes.
/// Those of other services have not: a plan that has to scan or sort all the same looks so dear
/// then that the rest of it no longer counts.
pub const PLANNING: [(&str, &str); 3] = [
    ("enable_seqscan", "off"),
    ("enable_sort", "off"),
    ("jit", "off"),
];

/// What the server is to do for our sessions. None of it is needed for correct work.
fn startup_options(
    binary: Binary,
    statement_timeout: Duration,
) -> impl Iterator<Item = (&'static str, String)> {
    let ms = statement_timeout.as_millis().to_string();
    let limits = [
        ("statement_timeout", ms.clone()),
        ("idle_in_transaction_session_timeout", ms),
        // A client that vanished frees its locks within half a minute.
        ("tcp_keepalives_idle", "10".to_owned()),
        ("tcp_keepalives_interval", "5".to_owned()),
        ("tcp_keepalives_count", "3".to_owned()),
    ];
    let planning = PLANNING.iter().filter(move |_| binary == Binary::Worker);
    let planning = planning.map(|(name, value)| (*name, (*value).to_owned()));
    limits.into_iter().chain(planning)
}

fn pool_options(connections: usize) -> PgPoolOptions {
    let connections = u32::try_from(connections).unwrap_or(u32::MAX);
    PgPoolOptions::new()
        .max_connections(connections)
        .min_connections(0)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .idle_timeout(Duration::from_secs(300))
        .max_lifetime(Duration::from_secs(1800))
        // A round trip for each statement would be dear, and says little about the next one.
        .test_before_acquire(false)
}
