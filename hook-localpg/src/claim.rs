//! Who may run the server of a directory.
//!
//! Invariant: whoever holds the directory's lock and has called [`evict`] is alone with the data.
//! The lock belongs to a process, not to the server, so it is free as soon as its owner is dead;
//! the server that the owner's guard is just ending then still has to be waited for.

use std::fs::{File, TryLockError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::Cluster;
use crate::occupant::{self, Occupant, Postmaster};
use crate::options::WhenRunning;
use crate::server::{START_TIMEOUT, StartError, doing};
use crate::wait::wait_until;

/// How long the guard of an owner that has just died may take to end its server.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(15);

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
        WhenRunning::Refuse => Duration::ZERO,
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
/// A server found here has lost its owner. Its guard is about to end it; if the guard was killed
/// too, we end it.
pub(crate) fn evict(cluster: &Cluster) -> Result<(), StartError> {
    let data = cluster.data();
    let look = || occupant::look(&data).map_err(doing("look for a running server"));
    for signal in [None, Some(Signal::INT), Some(Signal::QUIT)] {
        let pid = match look()? {
            Occupant::Nobody => return Ok(()),
            Occupant::Stranger => {
                return occupant::disown(&data).map_err(doing("replace a stale pid file"));
            }
            Occupant::Ready(postmaster) => postmaster.pid,
            Occupant::Busy(pid) => pid,
        };
        if let Some(signal) = signal {
            // A process that has ended meanwhile is just what we want.
            match kill_process(pid, signal) {
                Ok(()) | Err(_) => {}
            }
        }
        wait_until(ORPHAN_TIMEOUT, || !occupant::is_alive(pid));
    }
    match look()? {
        Occupant::Nobody => Ok(()),
        Occupant::Stranger => occupant::disown(&data).map_err(doing("replace a stale pid file")),
        Occupant::Ready(Postmaster { pid, .. }) | Occupant::Busy(pid) => {
            let pid = Pid::as_raw_pid(pid);
            Err(StartError::Stuck {
                directory: cluster.directory.clone(),
                pid,
            })
        }
    }
}
