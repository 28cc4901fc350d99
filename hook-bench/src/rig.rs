//! Everything that a scenario needs to run: a private Postgres, and processes.
//!
//! Postgres keeps its default durability (`fsync` and `synchronous_commit` on) and default
//! settings; whoever wants to see what tuning brings passes settings by hand. Every scenario gets
//! a server of its own, so that none inherits another's dead rows.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use anyhow::Context as _;
use hook_common::{config::command_line::Vars, migrate};
use hook_localpg::{find::Search, options::Options, server::PgServer};
use sqlx::{
    Connection as _, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    child::{Child, Start},
    command::Common,
    measure::{Children, Watched},
    progress::say,
    receiver::Receiver,
    server_log::ServerLog,
    sql,
};

/// Settings of the services unless a scenario or the command line says otherwise.
const SETTINGS: [(&str, &str); 5] = [
    ("HOOK_ALLOW_NETS", "127.0.0.0/8"),
    ("HOOK_LOG", "warn"),
    ("HOOK_LOG_FORMAT", "text"),
    ("HOOK_SHUTDOWN_GRACE", "20s"),
    (
        "HOOK_SECRET_KEY",
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    ),
];

/// Settings of Postgres by which it counts what statements cost.
const STATEMENTS: [(&str, &str); 2] = [
    ("shared_preload_libraries", "pg_stat_statements"),
    ("pg_stat_statements.track_planning", "on"),
];

/// Our own connections to Postgres.
const ADMIN_CONNECTIONS: u32 = 3;

/// A running Postgres, and the means to start processes beside it.
pub(crate) struct Rig {
    server: PgServer,
    program: PathBuf,
    settings: Vec<(String, String)>,
    options: PgConnectOptions,
    pub(crate) admin: PgPool,
}

/// One of the product's services.
pub(crate) struct Service {
    pub(crate) child: Child,
    /// Where it takes requests, if it is the API.
    pub(crate) public: SocketAddr,
    /// Where it says how it is.
    pub(crate) ops: SocketAddr,
}

impl Rig {
    /// Starts and migrates a Postgres.
    pub(crate) async fn start(common: &Common) -> anyhow::Result<Self> {
        let mut postgres = common.postgres.clone();
        if common.statements {
            postgres.extend(STATEMENTS.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        let vars = Vars::from_environment();
        let search = Search::from_vars(|name| vars.get(name));
        let (durability, volatile) = (common.durability(), common.volatile);
        let server = blocking(move || {
            let binaries = search.find().context("looking for Postgres")?;
            let options = Options {
                settings: postgres,
                durability,
                in_memory: volatile,
                ..Options::new(binaries)
            };
            PgServer::start(options).context("starting Postgres")
        })
        .await?;
        let options: PgConnectOptions = server.url().parse().context("reading an address")?;
        let mut connection = PgConnection::connect_with(&options)
            .await
            .context("connecting to Postgres")?;
        migrate::run(&mut connection).await?;
        if common.statements {
            sql::statements::install(&mut connection).await?;
        }
        connection.close().await.context("leaving Postgres")?;
        let pool = PgPoolOptions::new().max_connections(ADMIN_CONNECTIONS);
        Ok(Self {
            server,
            program: common.program.clone(),
            settings: common.settings.clone(),
            admin: pool.connect_lazy_with(options.clone()),
            options,
        })
    }

    /// Connections to Postgres beside our own.
    pub(crate) fn pool(&self, connections: u32) -> PgPool {
        let pool = PgPoolOptions::new().max_connections(connections);
        pool.connect_lazy_with(self.options.clone())
    }

    /// What Postgres writes down.
    pub(crate) fn log(&self) -> ServerLog {
        ServerLog::new(self.server.directory().join("server.log"))
    }

    /// Postgres with all its processes, as something to measure.
    pub(crate) fn postgres(&self) -> anyhow::Result<Watched> {
        let pid = self.server.pid().context("Postgres has ended")?;
        Ok(Watched {
            name: "postgres".to_owned(),
            pid: pid.unsigned_abs(),
            children: Children::Count,
        })
    }

    pub(crate) async fn api(&self, settings: &[(&str, &str)]) -> anyhow::Result<Service> {
        self.service("api", "api", settings).await
    }

    /// Starts a worker; `name` tells it from others.
    pub(crate) async fn worker(
        &self,
        name: &str,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<Service> {
        self.service("worker", name, settings).await
    }

    pub(crate) async fn janitor(&self, settings: &[(&str, &str)]) -> anyhow::Result<Service> {
        self.service("janitor", "janitor", settings).await
    }

    /// Starts a receiver on so many addresses.
    pub(crate) async fn receiver(&self, addresses: u16) -> anyhow::Result<Receiver> {
        Receiver::start(&self.program, addresses).await
    }

    /// Starts the floor, which delivers to `receiver`; gives its process and address.
    pub(crate) async fn floor(&self, receiver: SocketAddr) -> anyhow::Result<(Child, SocketAddr)> {
        let mut child = Child::start(Start {
            program: &self.program,
            name: "floor".to_owned(),
            arguments: vec!["floor".to_owned(), format!("--receiver={receiver}")],
            settings: vec![("DATABASE_URL".to_owned(), self.server.url())],
        })?;
        let address = child.address().await?;
        Ok((child, address))
    }

    /// Stops Postgres in good order; every other process has been stopped before.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.admin.close().await;
        let mut server = self.server;
        blocking(move || server.stop().context("stopping Postgres")).await
    }

    async fn service(
        &self,
        role: &str,
        name: &str,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<Service> {
        let [public, ops] = free_addresses().await?;
        let own = [
            ("DATABASE_URL", self.server.url()),
            ("HOOK_API_LISTEN", public.to_string()),
            ("HOOK_OPS_LISTEN", ops.to_string()),
        ];
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        let own = own.map(|(name, text)| (name.to_owned(), text));
        // The last of two settings of one name wins.
        let settings = SETTINGS.iter().chain(settings).map(owned);
        let settings = settings.chain(self.settings.iter().cloned()).chain(own);
        let mut child = Child::start(Start {
            program: &self.program,
            name: name.to_owned(),
            arguments: vec![role.to_owned()],
            settings: settings.collect(),
        })?;
        child.ready(ops).await?;
        say(format_args!("{name} is ready"));
        Ok(Service { child, public, ops })
    }
}

/// Finds two ports that nobody listens on. Both are held until both are found.
async fn free_addresses() -> anyhow::Result<[SocketAddr; 2]> {
    let any = (Ipv4Addr::LOCALHOST, 0);
    let first = TcpListener::bind(any).await.context("finding a port")?;
    let second = TcpListener::bind(any).await.context("finding a port")?;
    let address = |listener: &TcpListener| listener.local_addr().context("asking for an address");
    Ok([address(&first)?, address(&second)?])
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let mut task = JoinSet::new();
    task.spawn_blocking(work);
    let done = task.join_next().await.expect("one task was started");
    done.context("a blocking task panicked")?
}
