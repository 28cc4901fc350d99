//! The directory of one server: what lies in it and how it is made.
//!
//! ```text
//! <directory>/lock        held by the process that runs the server, for as long as it does
//! <directory>/password    of the superuser, readable by its owner only
//! <directory>/port        last port, so that addresses stay the same over restarts
//! <directory>/server.log  of the running server; the one before it is server.log.old
//! <directory>/data        Postgres's own data directory
//! <directory>/seed        of some private servers: what `data` was before the first start
//! ```
//!
//! `data` appears by a rename once it is complete, so a start that was cut off leaves nothing that
//! looks like a cluster.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::account::Account;
use crate::directories::{private_places, reachable_directory, temporary_directory};
use crate::find::Binaries;
use crate::guard::tame;
use crate::options::{Durability, Place};
use crate::seed;
use crate::wait::output_within;

/// Name of the superuser, whom every client of a private server is.
pub(crate) const USER: &str = "hook";

/// Longest time initdb may take; about a second, but disks and virtual machines differ.
const INITDB_TIMEOUT: Duration = Duration::from_secs(120);

/// Directory of one server.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) directory: PathBuf,
    pub(crate) account: Option<Account>,
    /// It goes with its server, so nobody finds it again after a crash of the machine.
    private: bool,
}

impl Cluster {
    /// Makes the directory, which is still empty when it is new.
    pub(crate) fn prepare(place: &Place, in_memory: bool) -> io::Result<Self> {
        match place {
            Place::Private => {
                // The guard, which is the server's user, removes the directory in the end.
                let account = Account::for_programs()?;
                let places = private_places(in_memory);
                let directory = temporary_directory(&places, "hook-pg-", account)?;
                Ok(Self {
                    directory,
                    account,
                    private: true,
                })
            }
            Place::Kept(wanted) => {
                let directory =
                    reachable_directory(wanted, Account::choose(&wanted.join("data"))?)?;
                let account = Account::choose(&directory.join("data"))?;
                if account.is_none() {
                    fs::set_permissions(&directory, Permissions::from_mode(0o700))?;
                }
                Ok(Self {
                    directory,
                    account,
                    private: false,
                })
            }
        }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.directory.join("server.log")
    }

    /// Opens the lock file, which is not locked yet.
    pub(crate) fn lock_file(&self) -> io::Result<File> {
        let path = self.directory.join("lock");
        OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path)
    }

    pub(crate) fn password(&self) -> io::Result<String> {
        fs::read_to_string(self.password_file())
    }

    /// Port of the last start.
    pub(crate) fn port(&self) -> Option<u16> {
        fs::read_to_string(self.directory.join("port"))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    pub(crate) fn remember_port(&self, port: u16) -> io::Result<()> {
        fs::write(self.directory.join("port"), format!("{port}\n"))
    }

    /// Opens an empty log and keeps the one before it.
    pub(crate) fn new_log(&self) -> io::Result<File> {
        let log = self.log();
        match fs::rename(&log, self.directory.join("server.log.old")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        OpenOptions::new()
            .create_new(true)
            .append(true)
            .mode(0o600)
            .open(log)
    }

    /// Major version of the data; `None` when there is none yet.
    pub(crate) fn major(&self) -> Option<u32> {
        fs::read_to_string(self.data().join("PG_VERSION"))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// Makes the data directory and the password.
    ///
    /// The outer result is about our own files; the inner one holds what initdb said when it failed.
    pub(crate) fn create(
        &self,
        binaries: &Binaries,
        durability: Durability,
    ) -> io::Result<Result<(), String>> {
        let unfinished = self.directory.join("data.new");
        remove_directory(&unfinished)?;
        if !self.private {
            return match self.initdb(binaries, durability, &unfinished)? {
                Ok(_) => fs::rename(&unfinished, self.data()).map(Ok),
                Err(said) => Ok(Err(said)),
            };
        }
        let mut turn = seed::Turn::wait();
        if let Some(password) = turn.copy(binaries, self.account, &unfinished)? {
            write_secret(&self.password_file(), &password)?;
        } else {
            match self.initdb(binaries, durability, &unfinished)? {
                Ok(password) => {
                    let made = (unfinished.as_path(), password.as_str());
                    turn.keep(binaries, self.account, made, self.directory.join("seed"))?;
                }
                Err(said) => return Ok(Err(said)),
            }
        }
        fs::rename(&unfinished, self.data()).map(Ok)
    }

    /// Has initdb fill a new directory, and gives the password that it was told.
    fn initdb(
        &self,
        binaries: &Binaries,
        durability: Durability,
        data: &Path,
    ) -> io::Result<Result<String, String>> {
        fs::create_dir(data)?;
        fs::set_permissions(data, Permissions::from_mode(0o700))?;
        let password = random_hex::<24>()?;
        write_secret(&self.password_file(), &password)?;
        // initdb runs as another user, who must not be able to read our copy later on.
        let handed_over = self.directory.join("password.new");
        write_secret(&handed_over, &password)?;
        if let Some(account) = self.account {
            account.own(data)?;
            account.own(&handed_over)?;
        }
        let mut command = Command::new(binaries.initdb());
        command
            .arg("--pgdata")
            .arg(data)
            .arg("--pwfile")
            .arg(&handed_over)
            .args([
                "--username",
                USER,
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
            ]);
        if self.private || durability == Durability::Off {
            command.arg("--no-sync");
        }
        tame(&mut command, self.account);
        let output = output_within(&mut command, INITDB_TIMEOUT)?;
        fs::remove_file(&handed_over)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Ok(Err(said));
        }
        Ok(Ok(password))
    }

    fn password_file(&self) -> PathBuf {
        self.directory.join("password")
    }
}

/// Removes a directory that need not exist.
pub(crate) fn remove_directory(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes a file that only its owner can read, also when it existed with other rights.
fn write_secret(path: &Path, secret: &str) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(secret.as_bytes())
}

/// Random bytes from the operating system, as hexadecimal digits.
fn random_hex<const BYTES: usize>() -> io::Result<String> {
    Ok(random_bytes::<BYTES>()?
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// Random bytes from the operating system.
pub(crate) fn random_bytes<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
