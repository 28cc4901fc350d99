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

use crate::{exit::Failure, output::Output, receiver::Receiver, settings};

mod addresses;
mod banner;
mod database;
mod demo;
mod directory;
mod profile;
mod services;

use addresses::Wanted;
use banner::Places;
use directory::Directory;
use services::Services;

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
    /// Send to healthy targets and to one that hangs, and show each second how they fare.
    #[arg(long)]
    demo: bool,
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
        let run = Run {
            args: &args,
            vars: &vars,
            output,
            stop: &stop,
        };
        tokio::select! {
            done = run.run() => done,
            () = signals.run(stop.clone()) => unreachable!("signals are awaited for ever"),
        }
    });
    runtime.shutdown_timeout(LEAVE_LIMIT);
    done
}

/// What one run is made of.
struct Run<'a> {
    args: &'a DevArgs,
    vars: &'a Vars,
    output: Output,
    stop: &'a Stop,
}

impl Run<'_> {
    async fn run(&self) -> Result<(), Failure> {
        let directory = self.vars.get("HOOK_DEV_DIR");
        let directory = directory.filter(|text| !text.is_empty());
        let directory = directory.map_or_else(|| PathBuf::from(DATA_DEFAULT), PathBuf::from);
        let directory = Directory::open(&directory)?;
        let started = database::start(self.vars, &directory, self.stop).await?;
        let Some(server) = started else { return Ok(()) };
        let served = self.serve(server.url(), &directory).await;
        let stopped = database::stop(server, self.stop).await;
        served.and(stopped)
    }

    /// Runs everything that needs the database, until told to stop.
    async fn serve(&self, database_url: String, directory: &Directory) -> Result<(), Failure> {
        database::migrate(&database_url).await?;
        let api = addresses::listen(Wanted::of(self.args.port, API_PORT)).await?;
        let wanted = Wanted::of(self.args.receiver_port, RECEIVER_PORT);
        let receiver = addresses::listen(wanted).await?;
        let wanted = Wanted::of(self.args.ops_port, OPS_PORT);
        let places = Places {
            api: address_of(&api)?,
            receiver: address_of(&receiver)?,
            ops: addresses::free_ports(wanted).await?,
            database_url,
            data: directory.path().to_owned(),
        };
        let settings =
            |binary: Binary| profile::vars(self.vars, binary, &places, directory.secret_key());
        let mut services = Services::start(settings, api, self.stop)?;
        let receiver = Receiver::start(receiver, self.output, self.stop.clone());
        if services.ready(self.stop).await {
            banner::show(&places, self.output);
        }
        let demo = async {
            if self.args.demo && !self.stop.is_draining() {
                let stop = self.stop.clone();
                let played = demo::play(self.vars, places.api, self.output, stop).await;
                // It ends with the rest, or the rest with it.
                self.stop.drain();
                played
            } else {
                Ok(())
            }
        };
        let (served, demo) = tokio::join!(services.join(self.stop), demo);
        receiver.stop().await;
        served.and(demo)
    }
}

fn address_of(listener: &TcpListener) -> Result<std::net::SocketAddr, Failure> {
    Ok(listener
        .local_addr()
        .context("asking for the own address")?)
}
