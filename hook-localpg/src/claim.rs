//! Who may run the server of a directory.
//!
//! Invariant: whoever holds the directory's lock and has called [`evict`] is alone with the data.
//! The lock belongs to a process, not to the server, so it is free as soon as its owner is dead;
//! the server that the owner's guard is just ending then still has to be waited for.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::Cluster;
use crate::occupant::{self, Occupant, Postmaster};
use crate::options::WhenRunning;
use crate::server::{START_TIMEOUT, StartError, doing};
use crate::wait::wait_until;

/// How long a server without an owner may take to end, at each of two requests.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(15);

/// A program that another thread is starting has the lock of an owner who has just let go, until it
/// runs as itself.
const INHERITED: Duration = Duration::from_millis(500);

/// How we stand to the server of a directory.
pub(crate) enum Claim {
    Owner(File),
    Guest(Postmaster),
}

/// Takes the directory's lock, or does what `when_running` says about the one who holds it.
pub(crate) fn claim(cluster: &Cluster, when_running: WhenRunning) -> Result<Claim, StartError> {
    let lock = cluster.lock_file().map_err(doing("open the lock file"))?;
    let data = cluster.data();
    let limit = match when_running {
        WhenRunning::Refuse => INHERITED,
        WhenRunning::Reuse => START_TIMEOUT,
        WhenRunning::Wait(limit) => limit,
    };
    let mut claimed = Ok(None);
    wait_until(limit, || {
        claimed = match lock.try_lock() {
            Ok(()) => Ok(Some(None)),
            Err(TryLockError::Error(source)) => Err(source),
            Err(TryLockError::WouldBlock) if when_running == WhenRunning::Reuse => {
                occupant::look(&data).map(|occupant| match occupant {
                    Occupant::Ready(postmaster) => Some(Some(postmaster)),
                    Occupant::Nobody | Occupant::Stranger | Occupant::Busy(_) => None,
                })
            }
            Err(TryLockError::WouldBlock) => Ok(None),
        };
        !matches!(claimed, Ok(None))
    });
    match claimed.map_err(doing("look for a running server"))? {
        Some(None) => Ok(Claim::Owner(lock)),
        Some(Some(postmaster)) => Ok(Claim::Guest(postmaster)),
        None => Err(StartError::Running {
            directory: cluster.directory.clone(),
        }),
    }
}

/// Makes sure that no server runs on the data, whose lock we hold.
///
/// A server found here has lost its owner. Its guard is just ending it, unless the guard was killed
/// too, so we end it as well: a second request to stop changes nothing.
pub(crate) fn evict(cluster: &Cluster) -> Result<(), StartError> {
    let data = cluster.data();
    for signal in [Signal::INT, Signal::QUIT] {
        let Some(pid) = server_on(&data)? else {
            return Ok(());
        };
        let sockets = Postmaster::read(&data).map(|postmaster| postmaster.sockets);
        for signal in [signal, Signal::CONT] {
            match kill_process(pid, signal) {
                // One that has ended meanwhile is just what we want.
                Ok(()) | Err(_) => {}
            }
        }
        // Its process may stay a zombie where nobody waits for orphans, so that is not the question.
        let has_ended = || !matches!(server_on(&data), Ok(Some(_)));
        if wait_until(ORPHAN_TIMEOUT, has_ended)
            && let Some(sockets) = sockets
        {
            // Without a guard nobody else removes it. One that is not empty is none of ours, or
            // the server's last steps are still to come.
            wait_until(Duration::from_secs(1), || {
                fs::remove_dir(&sockets).is_ok() || !sockets.exists()
            });
        }
    }
    match server_on(&data)? {
        None => Ok(()),
        Some(pid) => Err(StartError::Stuck {
            directory: cluster.directory.clone(),
            pid: pid.as_raw_pid(),
        }),
    }
}

/// Gives the server on the data, and makes a pid file harmless that names some other process.
fn server_on(data: &Path) -> Result<Option<Pid>, StartError> {
    match occupant::look(data).map_err(doing("look for a running server"))? {
        Occupant::Nobody => Ok(None),
        Occupant::Stranger => {
            occupant::disown(data).map_err(doing("replace a stale pid file"))?;
            Ok(None)
        }
        Occupant::Ready(Postmaster { pid, .. }) | Occupant::Busy(pid) => Ok(Some(pid)),
    }
}
