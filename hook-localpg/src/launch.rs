//! One start of the server process, from a free port to the first connection it would take.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::Duration;

use crate::cluster::{Cluster, random_bytes};
use crate::directories::temporary_directory;
use crate::guard::{Guard, Task};
use crate::occupant::Postmaster;
use crate::options::{Durability, Options, Place};
use crate::server::{START_TIMEOUT, StartError, doing};
use crate::wait::{pause, wait_until};

/// Starts tried before giving up, and the pause between two.
const ATTEMPTS: u32 = 10;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(200);

/// Lowest port and number of ports to choose from, below those that systems give to outgoing
/// connections. A client that reconnects to a stopped server on such a port can be given that very
/// port as its own and then talks to itself, and the server cannot bind when it comes back.
const PORT_LOWEST: u16 = 20_000;
const PORT_COUNT: u16 = 12_000;

/// What the log says when a later start may well succeed: somebody took the port first, or
/// children of a killed server have not noticed its end yet.
const PASSING_FAULTS: [&str; 3] = [
    "could not bind",
    "could not create any TCP/IP sockets",
    "pre-existing shared memory block",
];

/// Starts the server and gives it with its port once it takes connections.
///
/// The port is the one of the options, or else `wanted` if it is free, or else any.
pub(crate) fn launch(
    cluster: &Cluster,
    options: &Options,
    mut wanted: Option<u16>,
) -> Result<(Guard, u16), StartError> {
    let mut attempt = 1;
    loop {
        let port = match options.port {
            Some(port) => port,
            None => free_port(wanted.take()).map_err(doing("find a free port"))?,
        };
        if let Some(guard) = launch_once(cluster, options, port)? {
            return Ok((guard, port));
        }
        let log = fs::read_to_string(cluster.log()).unwrap_or_default();
        if attempt == ATTEMPTS || !PASSING_FAULTS.iter().any(|fault| log.contains(fault)) {
            return Err(StartError::Failed {
                log: last_lines(&log),
            });
        }
        attempt += 1;
        pause(ATTEMPT_PAUSE);
    }
}

/// Gives the server, or nothing when it ended or was not ready in time.
fn launch_once(
    cluster: &Cluster,
    options: &Options,
    port: u16,
) -> Result<Option<Guard>, StartError> {
    // The path of a socket has to be short: 103 bytes on macOS. A new directory for each start
    // holds no socket of an earlier one.
    let sockets = temporary_directory(&["/tmp", "/var/tmp"], "hook-sock-", cluster.account)
        .map_err(doing("make a directory for the server's socket"))?;
    let private = match &options.place {
        Place::Private => Some(cluster.directory.as_path()),
        Place::Kept(_) => None,
    };
    let mut guard = Guard::start(Task {
        account: cluster.account,
        private,
        log: cluster.new_log().map_err(doing("open the server's log"))?,
        program: options.binaries.postgres(),
        arguments: arguments(cluster, options, port, &sockets),
        sockets,
    })
    .map_err(doing("run Postgres"))?;
    let data = cluster.data();
    let mut ready = false;
    wait_until(START_TIMEOUT, || {
        ready = Postmaster::read(&data).is_some_and(|found| found.is_ready(guard.server()));
        ready || guard.wait(Duration::ZERO)
    });
    Ok(ready.then_some(guard))
}

fn arguments(cluster: &Cluster, options: &Options, port: u16, sockets: &Path) -> Vec<String> {
    let mut arguments = vec!["-D".to_owned(), cluster.data().display().to_string()];
    let mut set = |name: &str, value: &str| {
        arguments.extend(["-c".to_owned(), format!("{name}={value}")]);
    };
    set("listen_addresses", &Ipv4Addr::LOCALHOST.to_string());
    set("port", &port.to_string());
    set("unix_socket_directories", &sockets.display().to_string());
    set("unix_socket_permissions", "0700");
    set("logging_collector", "off");
    match options.durability {
        Durability::Full => {}
        Durability::Off => {
            for name in ["fsync", "synchronous_commit", "full_page_writes"] {
                set(name, "off");
            }
        }
    }
    for (name, value) in &options.settings {
        set(name, value);
    }
    arguments
}

/// Finds a port that nobody listens on, the wanted one if possible.
fn free_port(wanted: Option<u16>) -> io::Result<u16> {
    let try_port = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    if let Some(port) = wanted
        && try_port(port).is_ok()
    {
        return Ok(port);
    }
    let mut tries = 0;
    loop {
        let port = PORT_LOWEST + u16::from_ne_bytes(random_bytes()?) % PORT_COUNT;
        match try_port(port) {
            Ok(_) => return Ok(port),
            Err(error) if tries == 100 => return Err(error),
            Err(_) => tries += 1,
        }
    }
}

fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}
