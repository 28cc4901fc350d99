//! What a process of a scenario does: one of the services, the receiver, or the floor.
//!
//! `hook bench role …` is not for people. The services run as their binaries do, with settings
//! from the environment; our own roles print the address they listen on and end at `SIGTERM`.

use std::{
    io::{self, Read as _, Write as _},
    net::SocketAddr,
    process::{ExitCode, exit},
    thread,
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use hook_common::{
    config::{Binary, command_line::Vars},
    lifecycle::{Signals, Stop},
    start,
};
use tokio::runtime::{Builder, Runtime};

use crate::{floor::server as floor, receiver::server as receiver};

/// Time for what our own roles have in hand; nobody waits for a receiver that hangs on purpose.
const GRACE: Duration = Duration::from_millis(200);

/// A role, with what it needs besides settings.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// The API.
    Api,
    /// A worker.
    Worker,
    /// The janitor.
    Janitor,
    /// What jobs are delivered to.
    Receiver {
        /// Addresses 127.0.0.1, 127.0.0.2 … to listen on.
        #[arg(long)]
        addresses: u16,
    },
    /// The least that could be called a webhook queue.
    Floor {
        /// The receiver's address.
        #[arg(long)]
        receiver: SocketAddr,
        /// Where the database is.
        #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
        database_url: String,
    },
}

/// Plays a role until told to stop.
pub(crate) fn play(role: Role) -> anyhow::Result<()> {
    end_with_the_parent()?;
    match role {
        Role::Api => service(start::run(
            Binary::Api,
            &Vars::from_environment(),
            hook_api::config::Config::read,
            hook_api::service::run,
        )),
        Role::Worker => service(start::run(
            Binary::Worker,
            &Vars::from_environment(),
            hook_worker::Config::read,
            hook_worker::run,
        )),
        Role::Janitor => service(start::run(
            Binary::Janitor,
            &Vars::from_environment(),
            hook_janitor::Config::read,
            hook_janitor::run,
        )),
        // One thread: it shares the cores with what is measured.
        Role::Receiver { addresses } => until_stopped(
            Builder::new_current_thread().enable_all().build(),
            async move |stop| receiver::serve(addresses, stop).await,
        ),
        Role::Floor {
            receiver,
            database_url,
        } => until_stopped(
            Builder::new_multi_thread().enable_all().build(),
            async move |stop| floor::serve(&database_url, receiver, stop).await,
        ),
    }
}

/// Tells the driver where we listen, and with that, that we do.
pub(crate) fn announce(address: SocketAddr) -> anyhow::Result<()> {
    let mut stdout = io::stdout();
    writeln!(stdout, "{address}")
        .and_then(|()| stdout.flush())
        .context("telling the own address")
}

fn service(code: ExitCode) -> anyhow::Result<()> {
    if code != ExitCode::SUCCESS {
        bail!("the service has said why");
    }
    Ok(())
}

fn until_stopped(
    runtime: io::Result<Runtime>,
    serve: impl AsyncFnOnce(Stop) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let runtime = runtime.context("starting the runtime")?;
    start::raise_descriptor_limit();
    let stop = Stop::manual(GRACE);
    let served = runtime.block_on(async {
        let signals = Signals::install().context("catching signals")?;
        tokio::select! {
            served = serve(stop.clone()) => served,
            () = signals.run(stop) => unreachable!("signals are awaited for ever"),
        }
    });
    runtime.shutdown_timeout(GRACE);
    served
}

/// Ends this process as soon as the one that started it is gone, by whatever way: the kernel then
/// closes the pipe that is our stdin.
fn end_with_the_parent() -> anyhow::Result<()> {
    let watch = thread::Builder::new().name("parent".into());
    watch
        .spawn(|| {
            let mut nothing = Vec::new();
            let _either_way_it_is_gone = io::stdin().read_to_end(&mut nothing);
            exit(1);
        })
        .context("starting the watch over the parent")?;
    Ok(())
}
