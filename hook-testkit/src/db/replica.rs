//! A replica of a test's own server, for tests about failing over.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hook_localpg::options::{Durability, Place};
use hook_localpg::server::PgServer;
use reqwest::Url;

use crate::db::{Server, TestDb, blocking, execute, options};
use crate::proxy::Proxy;
use crate::wait::wait_for;

/// Longest time a replica may take to follow its primary.
const LIMIT: Duration = Duration::from_secs(60);

impl TestDb {
    /// Starts a replica of the server of a [`TestDb::durable`], and has every commit wait for it
    /// from then on.
    ///
    /// # Panics
    /// When `pg_basebackup` is not beside the other programs of Postgres, or anything fails.
    pub async fn synchronous_replica(&self) -> Self {
        let replica = self.follower(self.url()).await;
        let mut connection = self.connect().await;
        for statement in [
            "ALTER SYSTEM SET synchronous_standby_names = '*'",
            "SELECT pg_reload_conf()",
        ] {
            execute(&mut connection, statement.to_owned())
                .await
                .expect("the primary takes settings");
        }
        self.wait_replica("sync").await;
        replica
    }

    /// Starts a replica of the server of a [`TestDb::durable`] that no commit waits for, and which
    /// follows its primary on this way.
    ///
    /// # Panics
    /// When `pg_basebackup` is not beside the other programs of Postgres, or anything fails.
    pub async fn asynchronous_replica(&self, way: &Proxy) -> Self {
        let replica = self.follower(way.url(&self.url())).await;
        self.wait_replica("async").await;
        replica
    }

    /// Waits until a replica has got everything that is written now.
    ///
    /// # Panics
    /// When it has not in time.
    pub async fn wait_replicated(&self) {
        let pool = self.pool().await;
        let written: String = sqlx::query_scalar("SELECT pg_current_wal_flush_lsn()::text")
            .fetch_one(&pool)
            .await
            .expect("the primary knows what it wrote");
        let got = async || -> bool {
            sqlx::query_scalar(
                "SELECT COALESCE(bool_or(replay_lsn >= $1::pg_lsn), false) FROM pg_stat_replication",
            )
            .bind(&written)
            .fetch_one(&pool)
            .await
            .expect("the primary knows its replicas")
        };
        wait_for(LIMIT, got, |got| *got).await;
    }

    /// A copy of the server, which follows it by this address.
    async fn follower(&self, url: String) -> Self {
        let data = self.with_server(|server| server.directory().join("data"));
        let data = data.await;
        let (server, files) = blocking(move || start(&url, &data)).await;
        Self {
            name: self.name.clone(),
            server: Server::Own(Arc::new(Mutex::new(server))),
            _files: Some(files),
        }
    }

    /// Waits until the one replica is in this state and follows.
    async fn wait_replica(&self, state: &str) {
        let states = async || -> Vec<String> {
            sqlx::query_scalar(
                "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'",
            )
            .fetch_all(&self.pool().await)
            .await
            .expect("the primary knows its replicas")
        };
        wait_for(LIMIT, states, |states| states == &[state]).await;
    }

    /// Makes a replica a primary.
    ///
    /// # Panics
    /// When it does not become one.
    pub async fn promote(&self) {
        let pool = self.pool().await;
        // Not waiting inside the statement: the promotion may have to wait for its snapshot.
        sqlx::query("SELECT pg_promote(false)")
            .execute(&pool)
            .await
            .expect("the replica answers");
        let follows = async || -> bool {
            sqlx::query_scalar("SELECT pg_is_in_recovery()")
                .fetch_one(&pool)
                .await
                .expect("a replica answers while it is promoted")
        };
        wait_for(LIMIT, follows, |follows| !follows).await;
    }
}

/// Copies the primary at this address, whose data lies there, and starts the copy as its replica.
fn start(primary: &str, primary_data: &Path) -> (PgServer, tempfile::TempDir) {
    let mut options = options(Durability::Full);
    let url = Url::parse(primary).expect("a server's address is a URL");
    let password = url.password().expect("a server has a password");
    let port = url.port().expect("a server has a port").to_string();
    let files = tempfile::tempdir().expect("a directory can be made");
    let data = files.path().join("data");
    // What is found may be a link to where its siblings are.
    let postgres = options.binaries.directory().join("postgres");
    let postgres = postgres.canonicalize().expect("Postgres was found");
    let mut copy = Command::new(postgres.with_file_name("pg_basebackup"));
    copy.args(["-R", "-c", "fast", "--no-sync", "-h", "127.0.0.1"])
        .args(["-U", url.username(), "-p", &port, "-D"])
        .arg(&data)
        .env("PGPASSWORD", password);
    run(&mut copy);
    // Root hands servers over to another user, who has to own the data.
    let mut own = Command::new("chown");
    own.arg(format!("--reference={}", primary_data.display()))
        .arg("-R")
        .arg(&data);
    run(&mut own);
    std::fs::write(files.path().join("password"), password).expect("a file can be written");
    options.place = Place::Kept(files.path().to_path_buf());
    let server = PgServer::start(options).expect("the replica starts");
    (server, files)
}

fn run(command: &mut Command) {
    let program = command.get_program().to_owned();
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("running {program:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program:?}: {said}");
}
