//! A database for each test, on a real Postgres that the tests start by themselves.
//!
//! All tests of one test binary share one server, started by the first that asks and ended with
//! the process, however it ends. Each test gets a database of its own, copied from a template that
//! has the migrations, so tests run side by side and see nothing of each other. A test about
//! crashes and lost power takes a server of its own with [`TestDb::durable`].
//!
//! A failure to get a database panics: no test can go on without one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use hook_localpg::find::Search;
use hook_localpg::options::{Durability, Options};
use hook_localpg::server::{PgServer, StartError};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection, PgConnection, PgPool};

mod replica;

/// Database with the migrations applied, which others are copied from.
const TEMPLATE: &str = "hook_template";

/// Connections that a pool of [`TestDb::pool`] holds at most.
const POOL_MAX: u32 = 5;

/// The server that all tests of this process share, or why there is none.
static SHARED: OnceLock<Result<PgServer, String>> = OnceLock::new();

/// Databases whose tests have ended. They are dropped by the next test that wants one, because
/// dropping a value cannot wait for Postgres.
static ENDED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A fresh database of one test, which is dropped some time after this value is.
#[derive(Debug)]
pub struct TestDb {
    name: String,
    server: Server,
    /// Where the data of a replica lies.
    _files: Option<tempfile::TempDir>,
}

#[derive(Debug)]
enum Server {
    Shared(&'static PgServer),
    Own(Arc<Mutex<PgServer>>),
}

impl TestDb {
    /// Gives a database with all migrations, on the shared server that does not wait for disks.
    pub async fn new() -> Self {
        Self::on_shared(TEMPLATE).await
    }

    /// Gives a database without migrations, on the shared server.
    pub async fn empty() -> Self {
        Self::on_shared("template0").await
    }

    /// Gives a database with all migrations on a server of its own, with the durability of
    /// production. The server can be stopped, killed and started again. Its data lies in memory,
    /// where only a loss of power would cost it; with `HOOK_TEST_FULL` on a disk, for which it waits.
    pub async fn durable() -> Self {
        Self::durable_with(&[]).await
    }

    /// As [`TestDb::durable`], with these settings of `postgresql.conf`.
    pub async fn durable_with(settings: &[(&str, &str)]) -> Self {
        let mut options = options(Durability::Full);
        let settings = settings.iter();
        let settings = settings.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        options.settings.extend(settings);
        let name = unique_name();
        let database = name.clone();
        let server = blocking(move || {
            let server = PgServer::start(options).expect("Postgres starts");
            on_own_runtime(create_migrated(&server, &database)).expect("the migrations apply");
            server
        })
        .await;
        Self {
            name,
            server: Server::Own(Arc::new(Mutex::new(server))),
            _files: None,
        }
    }

    /// Address of the database, with the password.
    pub fn url(&self) -> String {
        match &self.server {
            Server::Shared(server) => server.url_of(&self.name),
            Server::Own(server) => lock(server).url_of(&self.name),
        }
    }

    /// Name of the database.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives a new pool of at most five connections to the database.
    pub async fn pool(&self) -> PgPool {
        PgPoolOptions::new()
            .max_connections(POOL_MAX)
            .connect(&self.url())
            .await
            .expect("the test's own Postgres takes connections")
    }

    /// Gives a single connection to the database.
    pub async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url())
            .await
            .expect("the test's own Postgres takes connections")
    }

    /// Stops the server of a [`TestDb::durable`] in good order.
    pub async fn stop_server(&self) {
        self.with_server(PgServer::stop)
            .await
            .expect("Postgres stops");
    }

    /// Stops the server of a [`TestDb::durable`] as a crash would: what was committed is still
    /// there after [`TestDb::start_server`], and nothing else is.
    pub async fn crash_server(&self) {
        self.with_server(PgServer::stop_immediate)
            .await
            .expect("Postgres stops");
    }

    /// Starts the server of a [`TestDb::durable`] again, under the same address.
    pub async fn start_server(&self) {
        self.with_server(PgServer::start_again)
            .await
            .expect("Postgres starts again");
    }

    /// Freezes the server of a [`TestDb::durable`]: connections stay open, nothing answers.
    pub async fn pause_server(&self) {
        self.with_server(PgServer::pause)
            .await
            .expect("Postgres can be paused");
    }

    /// Lets a paused server go on.
    pub async fn resume_server(&self) {
        self.with_server(PgServer::resume).await;
    }

    /// Runs a blocking action on the server of a [`TestDb::durable`].
    ///
    /// # Panics
    ///
    /// On a database of the shared server, which other tests need undisturbed.
    pub async fn with_server<T, F>(&self, action: F) -> T
    where
        T: Send + 'static,
        F: FnOnce(&mut PgServer) -> T + Send + 'static,
    {
        let Server::Own(server) = &self.server else {
            panic!("this test disturbs Postgres: it needs TestDb::durable");
        };
        let server = Arc::clone(server);
        blocking(move || action(&mut lock(&server))).await
    }

    async fn on_shared(template: &str) -> Self {
        let server = blocking(shared).await;
        let name = unique_name();
        let ended = std::mem::take(&mut *ENDED.lock().unwrap_or_else(PoisonError::into_inner));
        let mut connection = PgConnection::connect(&server.url())
            .await
            .expect("the shared Postgres answers");
        for database in ended {
            let sql = format!("DROP DATABASE IF EXISTS {database} WITH (FORCE)");
            execute(&mut connection, sql)
                .await
                .expect("a database without users can be dropped");
        }
        // A copy of the files costs half of a copy page by page, as it is by default from 15 on.
        let how = if server.major() >= 15 {
            "STRATEGY file_copy"
        } else {
            ""
        };
        let sql = format!("CREATE DATABASE {name} TEMPLATE {template} {how}");
        execute(&mut connection, sql)
            .await
            .expect("a database can be created");
        connection
            .close()
            .await
            .expect("the shared Postgres answers");
        Self {
            name,
            server: Server::Shared(server),
            _files: None,
        }
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        match &self.server {
            Server::Shared(_) => {
                let mut ended = ENDED.lock().unwrap_or_else(PoisonError::into_inner);
                ended.push(std::mem::take(&mut self.name));
            }
            // It goes with its server.
            Server::Own(_) => {}
        }
    }
}

/// Gives the shared server and starts it if need be.
fn shared() -> &'static PgServer {
    let start = || -> Result<PgServer, String> {
        let server = PgServer::start(options(Durability::Off)).map_err(describe)?;
        on_own_runtime(create_migrated(&server, TEMPLATE))?;
        Ok(server)
    };
    match SHARED.get_or_init(start) {
        Ok(server) => server,
        Err(reason) => panic!("no Postgres for the tests: {reason}"),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "tests have no config.rs; this is their one place"
)]
fn options(durability: Durability) -> Options {
    let binaries = Search::from_vars(|name| std::env::var(name).ok())
        .find()
        .unwrap_or_else(|error| panic!("no Postgres for the tests: {}", chain(&error)));
    // Every test has a pool or two, and system tests have three processes with a pool each.
    let settings = vec![("max_connections".to_owned(), "300".to_owned())];
    let is_full = std::env::var_os("HOOK_TEST_FULL").is_some();
    Options {
        in_memory: durability == Durability::Off || !is_full,
        durability,
        settings,
        ..Options::new(binaries)
    }
}

/// Creates a database and applies all migrations to it.
async fn create_migrated(server: &PgServer, database: &str) -> Result<(), String> {
    let work = async {
        let mut connection = PgConnection::connect(&server.url()).await?;
        execute(
            &mut connection,
            format!("CREATE DATABASE {database} TEMPLATE template0"),
        )
        .await?;
        connection.close().await
    };
    work.await.map_err(|error| chain(&error))?;
    let mut connection = PgConnection::connect(&server.url_of(database))
        .await
        .map_err(|error| chain(&error))?;
    hook_common::migrate::run(&mut connection)
        .await
        .map_err(|error| chain(&error))?;
    // A template with a connection cannot be copied, so wait until the server has let go of it.
    connection.close().await.map_err(|error| chain(&error))
}

/// Runs a statement with a name in it, which a bound value cannot be. The names are ours: constants
/// and numbers.
async fn execute(connection: &mut PgConnection, sql: String) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
        .execute(connection)
        .await?;
    Ok(())
}

/// Runs blocking work off the test's runtime, whose clock it thereby keeps from jumping ahead.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Runs async work on a runtime of its own.
///
/// Whichever test comes first starts the shared server; its runtime ends with it and may have a
/// paused clock, and neither must touch what all tests share.
fn on_own_runtime<T: Send>(work: impl Future<Output = T> + Send) -> T {
    let run = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime can be built")
            .block_on(work)
    };
    match thread::scope(|scope| scope.spawn(run).join()) {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn unique_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("t_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn lock(server: &Mutex<PgServer>) -> MutexGuard<'_, PgServer> {
    // A test that panicked while it held the server has said so; others may still stop it.
    server.lock().unwrap_or_else(PoisonError::into_inner)
}

fn describe(error: StartError) -> String {
    chain(&error)
}

/// An error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
