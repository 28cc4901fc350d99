//! Freshly made data that further private servers of this process begin with.
//!
//! initdb takes most of a second of processor time, a copy of what it made a tenth of that. So a
//! private server whose data initdb made keeps an untouched copy of it, the seed, in its directory.
//! The seed goes with that server; the next private server that finds none makes one again.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::account::Account;
use crate::cluster::remove_directory;
use crate::find::Binaries;
use crate::guard::tame;
use crate::wait::output_within;

/// Longest time a copy of some 40 MB may take.
const COPY_TIMEOUT: Duration = Duration::from_secs(60);

static SEED: Mutex<Option<Seed>> = Mutex::new(None);

#[derive(Debug)]
struct Seed {
    /// Of the programs that made it.
    binaries: PathBuf,
    account: Option<Account>,
    data: PathBuf,
    password: String,
}

/// Gives up a seed in a directory that is about to be removed. A copy of it that is under way is
/// finished first.
pub(crate) fn forget_in(directory: &Path) {
    let mut turn = Turn::wait();
    let lies_there = |seed: &Seed| seed.data.starts_with(directory);
    if turn.0.as_ref().is_some_and(lies_there) {
        *turn.0 = None;
    }
}

/// The right to use the seed, or to make one, while others wait.
#[derive(Debug)]
pub(crate) struct Turn(MutexGuard<'static, Option<Seed>>);

impl Turn {
    pub(crate) fn wait() -> Self {
        Self(SEED.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Copies the seed to `data`, which does not exist, and gives the password in it; `None` if
    /// there is no seed for these programs and this account, or it cannot be copied.
    pub(crate) fn copy(
        &self,
        binaries: &Binaries,
        account: Option<Account>,
        data: &Path,
    ) -> io::Result<Option<String>> {
        let fits = |seed: &&Seed| seed.binaries == binaries.directory() && seed.account == account;
        let Some(seed) = self.0.as_ref().filter(fits) else {
            return Ok(None);
        };
        if copy(&seed.data, data, account)? {
            return Ok(Some(seed.password.clone()));
        }
        remove_directory(data)?;
        Ok(None)
    }

    /// Keeps a copy of `data`, in which no server has run yet, at `place`.
    pub(crate) fn keep(
        &mut self,
        binaries: &Binaries,
        account: Option<Account>,
        (data, password): (&Path, &str),
        place: PathBuf,
    ) -> io::Result<()> {
        if copy(data, &place, account)? {
            *self.0 = Some(Seed {
                binaries: binaries.directory().to_owned(),
                account,
                data: place,
                password: password.to_owned(),
            });
        }
        Ok(())
    }
}

/// Copies a directory as its owner; false if that failed, as on a full disk.
fn copy(from: &Path, to: &Path, account: Option<Account>) -> io::Result<bool> {
    let mut command = Command::new("cp");
    command.arg("-Rp").arg(from).arg(to);
    tame(&mut command, account);
    Ok(output_within(&mut command, COPY_TIMEOUT)?.status.success())
}
