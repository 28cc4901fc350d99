//! The private Postgres of `hook dev`: found or fetched, started, migrated and stopped.

use anyhow::{Context as _, anyhow};
use hook_common::{config::command_line::Vars, lifecycle::Stop, migrate};
use hook_localpg::{
    find::Search,
    options::{Options, Place},
    server::{PgServer, StartError},
};
use sqlx::{Connection as _, PgConnection};
use tokio::task::JoinSet;

use super::directory::Directory;
use crate::exit::{Failure, Kind};

/// Starts the server; `None` if the process aborts before it is there.
pub(super) async fn start(
    vars: &Vars,
    directory: &Directory,
    stop: &Stop,
) -> Result<Option<PgServer>, Failure> {
    let search = Search::from_vars(|name| vars.get(name));
    let place = Place::Kept(directory.postgres());
    let started = blocking(stop, move || {
        let binaries = search.find().context("looking for Postgres")?;
        let options = Options {
            place,
            ..Options::new(binaries)
        };
        PgServer::start(options).map_err(|error| match error {
            StartError::Running { .. } => {
                anyhow!("another hook dev runs here; give this one another directory with --data")
            }
            StartError::Stuck { .. }
            | StartError::Version { .. }
            | StartError::Initdb { .. }
            | StartError::Failed { .. }
            | StartError::NotStopped
            | StartError::Io { .. } => anyhow::Error::new(error).context("starting Postgres"),
        })
    });
    match started.await {
        Some(server) => Ok(Some(server?)),
        None => Ok(None),
    }
}

/// Brings the schema up to date.
pub(super) async fn migrate(url: &str) -> Result<(), Failure> {
    let connected = PgConnection::connect(url).await;
    let mut connection = connected.context("connecting to Postgres")?;
    let migrated = migrate::run(&mut connection).await;
    migrated.map_err(|error| Failure::new(Kind::Fault, error))?;
    connection.close().await.context("leaving Postgres")?;
    Ok(())
}

/// Stops the server in good order, or less so once the process aborts.
pub(super) async fn stop(mut server: PgServer, stop: &Stop) -> Result<(), Failure> {
    let stopped = blocking(stop, move || server.stop()).await;
    // Where nobody waits any more, the server's guard ends it after us.
    stopped.unwrap_or(Ok(())).context("stopping Postgres")?;
    Ok(())
}

/// Runs blocking work; `None` once the process aborts, while the work may still go on.
async fn blocking<T: Send + 'static>(
    stop: &Stop,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let mut task = JoinSet::new();
    task.spawn_blocking(work);
    let end = stop.unless_aborting(task.join_next()).await??;
    match end {
        Ok(value) => Some(value),
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
