//! `hook dev`: everything in one process, on a machine that has nothing.
//!
//! Order: data directory, Postgres, schema, receiver, then the three services on the same code
//! path as their binaries (`hook_common::start::serve`). Backwards: services drain together, then
//! the receiver, then Postgres; nothing of it is left running. The data stays, and with it the
//! jobs. All of it listens on loopback alone.

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use clap::Args;
use hook_common::{
    config::{Binary, command_line::Vars},
    lifecycle::{Signals, Stop},
    logging, metrics,
};
use tokio::net::TcpListener;

use crate::{exit::Failure, output::Output, settings};

mod addresses;
mod banner;
mod database;
mod directory;
mod profile;
mod receiver;
mod services;

use addresses::Wanted;
use banner::Places;
use directory::Directory;

/// Where the data is unless somebody says otherwise.
const DATA_DEFAULT: &str = ".hook-dev";

const API_PORT: u16 = 3300;
const OPS_PORT: u16 = 3310;
const RECEIVER_PORT: u16 = 3380;

/// What runs on the runtime besides us may hold the exit for so long.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);

#[derive(Args, Debug)]
pub(crate) struct DevArgs {
    /// Directory for the data of Postgres; default: HOOK_DEV_DIR, else .hook-dev here.
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<PathBuf>,
    /// Port of the API; 0 takes any free one.
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Port of the demo receiver; 0 takes any free one.
    #[arg(long, value_name = "PORT")]
    receiver_port: Option<u16>,
    /// First of three ports for health and metrics; 0 takes any free ones.
    #[arg(long, value_name = "PORT")]
    ops_port: Option<u16>,
}

pub(crate) fn run(args: DevArgs, output: Output) -> Result<(), Failure> {
    let data = args.data.as_ref().map(|data| data.display().to_string());
    let vars = settings::vars([("HOOK_DEV_DIR", data.as_deref())]);
    let (filter, format) = profile::log(&vars)?;
    metrics::install();
    logging::init(&filter, format);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting the runtime")?;
    let done = runtime.block_on(async {
        let stop = Stop::manual(profile::grace(&vars)?);
        let signals = Signals::install().context("catching signals")?;
        tokio::select! {
            done = dev(&args, &vars, output, &stop) => done,
            () = signals.run(stop.clone()) => unreachable!("signals are awaited for ever"),
        }
    });
    runtime.shutdown_timeout(LEAVE_LIMIT);
    done
}

async fn dev(args: &DevArgs, vars: &Vars, output: Output, stop: &Stop) -> Result<(), Failure> {
    let directory = vars.get("HOOK_DEV_DIR").filter(|text| !text.is_empty());
    let directory = directory.map_or_else(|| PathBuf::from(DATA_DEFAULT), PathBuf::from);
    let directory = Directory::open(&directory)?;
    let Some(server) = database::start(vars, &directory, stop).await? else {
        return Ok(());
    };
    let ran = Box::pin(with_database(
        args,
        vars,
        &server.url(),
        &directory,
        (output, stop),
    ))
    .await;
    let stopped = database::stop(server, stop).await;
    ran.and(stopped)
}

async fn with_database(
    args: &DevArgs,
    vars: &Vars,
    database_url: &str,
    directory: &Directory,
    (output, stop): (Output, &Stop),
) -> Result<(), Failure> {
    database::migrate(database_url).await?;
    let api = addresses::listen(Wanted::of(args.port, API_PORT)).await?;
    let receiver = addresses::listen(Wanted::of(args.receiver_port, RECEIVER_PORT)).await?;
    let ops = addresses::free_ports(Wanted::of(args.ops_port, OPS_PORT)).await?;
    let places = Places {
        api: address_of(&api)?,
        receiver: address_of(&receiver)?,
        ops,
        database_url: database_url.to_owned(),
        data: directory.path().to_owned(),
    };
    let settings = |binary: Binary| profile::vars(vars, binary, &places, directory.secret_key());
    let receiver = receiver::Receiver::start(receiver, output, stop.clone());
    let mut services = services::Services::start(settings, api, stop)?;
    let ready = services.ready(stop).await;
    if ready {
        banner::print(&places, output)?;
    }
    let served = services.join(stop).await;
    receiver.stop().await;
    served
}

fn address_of(listener: &TcpListener) -> Result<std::net::SocketAddr, Failure> {
    Ok(listener
        .local_addr()
        .context("asking for the own address")?)
}
