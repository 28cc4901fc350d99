//! The operating system's user that runs Postgres.
//!
//! Postgres refuses to run as root, and containers run everything as root. So root hands the
//! server over to an ordinary user. Anybody else runs the server as himself, and nothing here applies.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::wait::output_within;

/// Users tried in this order: the one that Postgres's packages make, then the one everybody has.
const CANDIDATES: [&str; 2] = ["postgres", "nobody"];

/// Longest time a look-up of a user may take; it may ask a directory service.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// User and group that the server's programs run as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Account {
    uid: u32,
    gid: u32,
}

impl Account {
    /// Chooses the account for a data directory; `None` when we need not change user.
    ///
    /// An existing data directory decides: Postgres accepts one only from its owner.
    pub(crate) fn choose(data: &Path) -> io::Result<Option<Self>> {
        match fs::metadata(data) {
            Ok(metadata) if is_root() => Ok(Some(Self {
                uid: metadata.uid(),
                gid: metadata.gid(),
            })),
            Ok(_) | Err(_) => Self::for_programs(),
        }
    }

    /// Chooses the account for programs that have no data yet; `None` when we need not change user.
    pub(crate) fn for_programs() -> io::Result<Option<Self>> {
        if !is_root() {
            return Ok(None);
        }
        for name in CANDIDATES {
            if let (Some(uid), Some(gid)) = (lookup("-u", name)?, lookup("-g", name)?) {
                return Ok(Some(Self { uid, gid }));
            }
        }
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("Postgres cannot run as root, and none of the users {CANDIDATES:?} exists"),
        ))
    }

    /// Lets a command run as this account, without root's supplementary groups.
    pub(crate) fn apply(self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid);
    }

    /// Gives a file or directory to this account.
    pub(crate) fn own(self, path: &Path) -> io::Result<()> {
        chown(path, Some(self.uid), Some(self.gid))
    }

    /// Says whether this account can reach what lies in an existing directory.
    pub(crate) fn can_traverse(self, directory: &Path) -> io::Result<bool> {
        for ancestor in directory.canonicalize()?.ancestors() {
            if !self.can_enter(&fs::metadata(ancestor)?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn can_enter(self, directory: &Metadata) -> bool {
        let execute = if directory.uid() == self.uid {
            0o100
        } else if directory.gid() == self.gid {
            0o010
        } else {
            0o001
        };
        directory.mode() & execute != 0
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Asks `id` rather than reading a file, because users may live in a directory service.
fn lookup(flag: &str, name: &str) -> io::Result<Option<u32>> {
    let output = output_within(Command::new("id").args([flag, name]), LOOKUP_TIMEOUT)?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().parse().ok())
}
