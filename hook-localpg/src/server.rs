//! A private Postgres server, owned by a handle.
//!
//! The server listens on loopback and on a socket in a directory of its own, and lets nobody in
//! without a random password, since loopback is shared with every user of the machine.
//!
//! Invariants: at most one process owns a directory's server (a lock held for the owner's life says
//! so), and the server does not outlive its owner (see `guard`). Deliberately absent: users,
//! databases and SQL; callers connect with [`PgServer::url`] and do that themselves.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::claim::{Claim, claim, evict};
use crate::cluster::{Cluster, USER};
use crate::freeze::Frozen;
use crate::guard::Guard;
use crate::launch::launch;
use crate::occupant::Postmaster;
use crate::options::{Options, Place};
use crate::seed;

/// Longest start; recovery after a crash of a large development database takes a while.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Longest orderly stop, which writes everything to disk.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a server did not start, or did not obey.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another process runs a server here.
    #[error("another process runs a Postgres server in {}", .directory.display())]
    Running {
        /// Directory of the server.
        directory: PathBuf,
    },
    /// A server without an owner runs here and does not end.
    #[error("process {pid} runs a Postgres server in {} and does not end", .directory.display())]
    Stuck {
        /// Directory of the server.
        directory: PathBuf,
        /// Process id of the server.
        pid: i32,
    },
    /// The data was written by another major version.
    #[error(
        "{} holds data of Postgres {data}, but Postgres {programs} is to run it; name the bin \
         directory of version {data} in HOOK_DEV_PG_BIN, or remove the directory",
        .directory.display()
    )]
    Version {
        /// Directory of the server.
        directory: PathBuf,
        /// Version of the data.
        data: u32,
        /// Version of the programs.
        programs: u32,
    },
    /// The data directory could not be made.
    #[error("initdb failed: {said}")]
    Initdb {
        /// What initdb printed.
        said: String,
    },
    /// The server ended, or did not get ready in time.
    #[error("Postgres did not start, the end of its log is: {log}")]
    Failed {
        /// Last lines of the server's log.
        log: String,
    },
    /// The server did not stop in time.
    #[error("Postgres did not stop within {}s", STOP_TIMEOUT.as_secs())]
    NotStopped,
    /// Our own files or processes failed us.
    #[error("cannot {doing}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The fault.
        #[source]
        source: io::Error,
    },
}

pub(crate) fn doing(doing: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::Io { doing, source }
}

/// A running server, and the right to use it.
///
/// Dropping the handle of an owner stops the server without waiting for it, and removes a private
/// directory. Every method blocks.
#[derive(Debug)]
pub struct PgServer {
    options: Options,
    cluster: Cluster,
    port: u16,
    password: Password,
    hold: Hold,
    frozen: Option<Frozen>,
}

/// What ties the handle to the server.
#[derive(Debug)]
enum Hold {
    /// We run it. The lock is held for as long as this value lives.
    Owner { guard: Option<Guard>, _lock: File },
    /// Somebody else runs it.
    Guest,
}

struct Password(String);

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl PgServer {
    /// Starts a server, or joins one, and returns when it takes connections.
    ///
    /// # Errors
    ///
    /// [`StartError::Running`] is the caller's to handle; the others say what is broken.
    pub fn start(options: Options) -> Result<Self, StartError> {
        let cluster = Cluster::prepare(&options.place, options.in_memory)
            .map_err(doing("prepare the server's directory"))?;
        let (hold, port) = match claim(&cluster, options.when_running)? {
            Claim::Owner(lock) => (
                Hold::Owner {
                    guard: None,
                    _lock: lock,
                },
                0,
            ),
            Claim::Guest(postmaster) => (Hold::Guest, postmaster.port),
        };
        // From here on the value cleans up after itself, whatever fails.
        let mut server = Self {
            options,
            cluster,
            port,
            password: Password(String::new()),
            hold,
            frozen: None,
        };
        if server.is_owner() {
            evict(&server.cluster)?;
            server.initialise()?;
        }
        server.password = Password(
            server
                .cluster
                .password()
                .map_err(doing("read the server's password"))?,
        );
        if server.is_owner() {
            let wanted = server.cluster.port();
            server.launch(wanted)?;
            server
                .cluster
                .remember_port(server.port)
                .map_err(doing("write down the port"))?;
        }
        Ok(server)
    }

    /// Address of the database `postgres`, with the password, over TCP.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// Address of a database, whose name must need no escaping in a URL.
    pub fn url_of(&self, database: &str) -> String {
        let Self {
            port,
            password: Password(password),
            ..
        } = self;
        format!("postgres://{USER}:{password}@127.0.0.1:{port}/{database}")
    }

    /// TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Major version of the server.
    pub fn major(&self) -> u32 {
        self.options.binaries.major()
    }

    /// Directory that holds everything of this server.
    pub fn directory(&self) -> &Path {
        &self.cluster.directory
    }

    /// Directory of the server's socket; `None` while it does not run. Another after each start.
    pub fn socket_directory(&self) -> Option<PathBuf> {
        Postmaster::read(&self.cluster.data()).map(|postmaster| postmaster.sockets)
    }

    /// Process id of the server; `None` while it does not run.
    pub fn pid(&self) -> Option<i32> {
        match &self.hold {
            Hold::Owner { guard, .. } => guard.as_ref().map(|guard| guard.server().as_raw_pid()),
            Hold::Guest => {
                Postmaster::read(&self.cluster.data()).map(|found| found.pid.as_raw_pid())
            }
        }
    }

    /// Says whether this handle started the server, rather than joined it.
    pub fn is_owner(&self) -> bool {
        matches!(self.hold, Hold::Owner { .. })
    }

    /// Stops the server in good order and waits for its end. Does nothing to a joined server.
    pub fn stop(&mut self) -> Result<(), StartError> {
        self.end("INT")
    }

    /// Stops the server as if it had crashed: connections break, the next start recovers.
    pub fn stop_immediate(&mut self) -> Result<(), StartError> {
        self.end("QUIT")
    }

    /// Kills the server, which leaves its socket and pid file behind.
    pub fn kill(&mut self) -> Result<(), StartError> {
        self.end("KILL")
    }

    /// Stops every process of the server in its tracks: connections stay open, nothing answers.
    ///
    /// Lasts until [`PgServer::resume`], a stop, or the end of the handle.
    pub fn pause(&mut self) -> Result<(), StartError> {
        if let Hold::Owner {
            guard: Some(guard), ..
        } = &self.hold
            && self.frozen.is_none()
        {
            self.frozen = Some(Frozen::new(guard.server()).map_err(doing("pause Postgres"))?);
        }
        Ok(())
    }

    /// Lets a paused server go on.
    pub fn resume(&mut self) {
        self.frozen = None;
    }

    /// Starts a server that has ended, by whatever way, with the same data on the same port.
    pub fn start_again(&mut self) -> Result<(), StartError> {
        let Hold::Owner { guard: slot, .. } = &mut self.hold else {
            return Ok(());
        };
        if let Some(guard) = slot
            && !guard.wait(Duration::ZERO)
        {
            return Ok(());
        }
        *slot = None;
        evict(&self.cluster)?;
        self.options.port = Some(self.port);
        self.launch(None)
    }

    fn launch(&mut self, wanted: Option<u16>) -> Result<(), StartError> {
        let (running, port) = launch(&self.cluster, &self.options, wanted)?;
        self.port = port;
        if let Hold::Owner { guard, .. } = &mut self.hold {
            *guard = Some(running);
        }
        Ok(())
    }

    /// Makes the data if there is none yet, and checks whose it is otherwise.
    fn initialise(&self) -> Result<(), StartError> {
        let binaries = &self.options.binaries;
        match self.cluster.major() {
            None => self
                .cluster
                .create(binaries, self.options.durability)
                .map_err(doing("make the data directory"))?
                .map_err(|said| StartError::Initdb { said }),
            Some(data) if data != binaries.major() => {
                let directory = self.cluster.directory.clone();
                Err(StartError::Version {
                    directory,
                    data,
                    programs: binaries.major(),
                })
            }
            Some(_) => Ok(()),
        }
    }

    fn end(&mut self, signal: &str) -> Result<(), StartError> {
        let Hold::Owner { guard: slot, .. } = &mut self.hold else {
            return Ok(());
        };
        let Some(guard) = slot else { return Ok(()) };
        // A server that has ended by itself leaves a closed pipe, and there is nothing to stop.
        let sent = guard.signal(signal);
        // A stopped process gets its signal when it goes on.
        self.frozen = None;
        let ended = guard.wait(STOP_TIMEOUT);
        match (ended, sent) {
            (true, _) => {
                *slot = None;
                Ok(())
            }
            (false, Ok(())) => Err(StartError::NotStopped),
            (false, Err(source)) => Err(StartError::Io {
                doing: "signal Postgres",
                source,
            }),
        }
    }
}

impl Drop for PgServer {
    fn drop(&mut self) {
        seed::forget_in(&self.cluster.directory);
        self.frozen = None;
        let Hold::Owner { guard, .. } = &mut self.hold else {
            return;
        };
        let running = guard.take().and_then(|mut guard| {
            // A guard whose server ended by itself has ended too, and cleans up no more.
            let has_ended = guard.wait(Duration::ZERO);
            (!has_ended).then_some(guard)
        });
        match running {
            // The guard removes a private directory once the server has ended.
            Some(guard) => drop(guard),
            None if self.options.place == Place::Private => {
                // A directory left in a place for temporary files is all that a failure costs.
                drop(fs::remove_dir_all(&self.cluster.directory));
            }
            None => {}
        }
    }
}
