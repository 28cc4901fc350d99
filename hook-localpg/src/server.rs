//! A private Postgres server, owned by a handle.
//!
//! The server listens on loopback and on a socket in a directory of its own, and lets nobody in
//! without a random password, since loopback is shared with every user of the machine.
//!
//! Invariants: at most one process owns a directory's server (a lock held for the owner's life says
//! so), and the server does not outlive its owner (see `guard`). Deliberately absent: users,
//! databases and SQL; callers connect with [`PgServer::url`] and do that themselves.

use std::fs::{self, File, Permissions, TryLockError};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::account::{Account, reachable_directory};
use crate::cluster::{Cluster, Flush, USER, random_bytes};
use crate::find::Binaries;
use crate::guard::{Guard, Task};
use crate::occupant::{self, Occupant, Postmaster};
use crate::wait::wait_until;

/// Longest start; recovery after a crash of a large development database takes a while.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Longest orderly stop, which writes everything to disk.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the guard of an owner that has just died may take to end its server.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(15);

/// Ports tried before giving up; each failure means that somebody was quicker.
const PORT_ATTEMPTS: u32 = 10;

/// Lowest port and number of ports to choose from, below those that systems give to outgoing
/// connections. A client that reconnects to a stopped server on such a port can be given that very
/// port as its own and then talks to itself, and the server cannot bind when it comes back.
const PORT_LOWEST: u16 = 20_000;
const PORT_COUNT: u16 = 12_000;

/// How to run a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// Programs to run.
    pub binaries: Binaries,
    /// Where the data lives.
    pub place: Place,
    /// What a crash of the machine may cost.
    pub durability: Durability,
    /// What to do when somebody else runs a server in this place.
    pub when_running: WhenRunning,
    /// Further settings, as in `postgresql.conf`, name and value. They win over ours.
    pub settings: Vec<(String, String)>,
    /// TCP port; `None` takes the one of the last start or any free one.
    pub port: Option<u16>,
}

impl Options {
    /// A durable server in a private place, on any port.
    pub fn new(binaries: Binaries) -> Self {
        Self {
            binaries,
            place: Place::Private,
            durability: Durability::Full,
            when_running: WhenRunning::Refuse,
            settings: Vec::new(),
            port: None,
        }
    }
}

/// Where the data of a server lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A new directory that is removed together with the server.
    Private,
    /// A directory that is kept, and created if need be.
    ///
    /// When we are root and the server's user cannot reach it, a directory in `/var/tmp` stands in
    /// for it, always the same; [`PgServer::directory`] tells.
    Kept(PathBuf),
}

/// What a crash of the machine may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Nothing that was committed.
    Full,
    /// Everything. A crash of the server alone still costs nothing.
    Off,
}

/// What to do when another process runs a server in the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenRunning {
    /// Fail with [`StartError::Running`].
    Refuse,
    /// Use that server. It ends with its owner, not with us.
    Reuse,
    /// Wait this long for its end, then start our own.
    Wait(Duration),
}

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

fn doing(doing: &'static str) -> impl FnOnce(io::Error) -> StartError {
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
        let cluster = prepare(&options.place).map_err(doing("prepare the server's directory"))?;
        let lock = match claim(&cluster, options.when_running)? {
            Claim::Owner(lock) => lock,
            Claim::Guest(postmaster) => {
                let password = Password(
                    cluster
                        .password()
                        .map_err(doing("read the server's password"))?,
                );
                let port = postmaster.port;
                return Ok(Self {
                    options,
                    cluster,
                    port,
                    password,
                    hold: Hold::Guest,
                });
            }
        };
        evict(&cluster)?;
        match cluster.major() {
            None => initialise(&cluster, &options)?,
            Some(data) if data != options.binaries.major() => {
                let (directory, programs) = (cluster.directory.clone(), options.binaries.major());
                return Err(StartError::Version {
                    directory,
                    data,
                    programs,
                });
            }
            Some(_) => {}
        }
        let password = Password(
            cluster
                .password()
                .map_err(doing("read the server's password"))?,
        );
        let wanted = options.port.or_else(|| cluster.port());
        let hold = Hold::Owner {
            guard: None,
            _lock: lock,
        };
        let mut server = Self {
            options,
            cluster,
            port: 0,
            password,
            hold,
        };
        server.launch(wanted)?;
        server
            .cluster
            .remember_port(server.port)
            .map_err(doing("write down the port"))?;
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

    /// Starts a stopped server again, with the same data on the same port.
    pub fn start_again(&mut self) -> Result<(), StartError> {
        match &self.hold {
            Hold::Owner { guard: None, .. } => {}
            Hold::Owner { guard: Some(_), .. } | Hold::Guest => return Ok(()),
        }
        evict(&self.cluster)?;
        self.options.port = Some(self.port);
        self.launch(Some(self.port))
    }

    fn end(&mut self, signal: &str) -> Result<(), StartError> {
        let Hold::Owner { guard: slot, .. } = &mut self.hold else {
            return Ok(());
        };
        let Some(guard) = slot else { return Ok(()) };
        // A server that has ended by itself leaves a closed pipe, and there is nothing to stop.
        let sent = guard.signal(signal);
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

    /// Starts the server process on the wanted port if it is free, and waits until it is ready.
    fn launch(&mut self, wanted: Option<u16>) -> Result<(), StartError> {
        let mut wanted = wanted;
        for attempt in 1.. {
            self.port = match self.options.port {
                Some(port) => port,
                None => free_port(wanted.take()).map_err(doing("find a free port"))?,
            };
            let guard = match self.launch_once()? {
                Launch::Ready(guard) => guard,
                Launch::PortTaken if attempt < PORT_ATTEMPTS => continue,
                Launch::PortTaken | Launch::Failed => {
                    return Err(StartError::Failed {
                        log: end_of_log(&self.cluster.log()),
                    });
                }
            };
            let Hold::Owner { guard: slot, .. } = &mut self.hold else {
                break;
            };
            *slot = Some(guard);
            break;
        }
        Ok(())
    }

    fn launch_once(&self) -> Result<Launch, StartError> {
        let sockets = socket_directory(self.cluster.account)
            .map_err(doing("make a directory for the server's socket"))?;
        let task = Task {
            account: self.cluster.account,
            private: (self.options.place == Place::Private).then_some(self.directory()),
            log: self
                .cluster
                .new_log()
                .map_err(doing("open the server's log"))?,
            program: self.options.binaries.postgres(),
            arguments: self.arguments(&sockets),
            sockets,
        };
        let mut guard = Guard::start(task).map_err(doing("run Postgres"))?;
        let data = self.cluster.data();
        let mut ended = false;
        let mut ready = false;
        wait_until(START_TIMEOUT, || {
            ready = Postmaster::read(&data).is_some_and(|found| found.is_ready(guard.server()));
            ended = guard.wait(Duration::ZERO);
            ready || ended
        });
        if ready && !ended {
            return Ok(Launch::Ready(guard));
        }
        let log = fs::read_to_string(self.cluster.log()).unwrap_or_default();
        Ok(
            if log.contains("could not bind") || log.contains("could not create any TCP/IP") {
                Launch::PortTaken
            } else {
                Launch::Failed
            },
        )
    }

    fn arguments(&self, sockets: &Path) -> Vec<String> {
        let mut settings = vec![
            (
                "listen_addresses".to_owned(),
                Ipv4Addr::LOCALHOST.to_string(),
            ),
            ("port".to_owned(), self.port.to_string()),
            (
                "unix_socket_directories".to_owned(),
                sockets.display().to_string(),
            ),
            ("unix_socket_permissions".to_owned(), "0700".to_owned()),
            ("logging_collector".to_owned(), "off".to_owned()),
        ];
        if self.options.durability == Durability::Off {
            for name in ["fsync", "synchronous_commit", "full_page_writes"] {
                settings.push((name.to_owned(), "off".to_owned()));
            }
        }
        settings.extend(self.options.settings.iter().cloned());
        let mut arguments = vec!["-D".to_owned(), self.cluster.data().display().to_string()];
        for (name, value) in settings {
            arguments.extend(["-c".to_owned(), format!("{name}={value}")]);
        }
        arguments
    }
}

impl Drop for PgServer {
    fn drop(&mut self) {
        let Hold::Owner { guard, .. } = &mut self.hold else {
            return;
        };
        match guard.take() {
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

/// How one start of the server process ended.
enum Launch {
    Ready(Guard),
    PortTaken,
    Failed,
}

/// How we stand to the server of a directory.
enum Claim {
    Owner(File),
    Guest(Postmaster),
}

/// Makes the directory and decides who runs the server.
fn prepare(place: &Place) -> io::Result<Cluster> {
    match place {
        Place::Private => {
            let directory = temporary_directory(&["/var/tmp", "/tmp"], "hook-pg-")?;
            let account = Account::choose(&directory.join("data"))?;
            if let Some(account) = account {
                // The guard, which is that user, removes the directory in the end.
                account.own(&directory)?;
            }
            Ok(Cluster { directory, account })
        }
        Place::Kept(wanted) => {
            let account = Account::choose(&wanted.join("data"))?;
            let directory = reachable_directory(wanted, account)?;
            let account = Account::choose(&directory.join("data"))?;
            if account.is_none() {
                fs::set_permissions(&directory, Permissions::from_mode(0o700))?;
            }
            Ok(Cluster { directory, account })
        }
    }
}

/// Takes the directory's lock, or does what `when_running` says about the one who holds it.
fn claim(cluster: &Cluster, when_running: WhenRunning) -> Result<Claim, StartError> {
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
fn evict(cluster: &Cluster) -> Result<(), StartError> {
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

fn initialise(cluster: &Cluster, options: &Options) -> Result<(), StartError> {
    let flush = match options.durability {
        Durability::Full => Flush::Yes,
        Durability::Off => Flush::No,
    };
    cluster
        .create(&options.binaries, flush)
        .map_err(doing("make the data directory"))?
        .map_err(|said| StartError::Initdb { said })
}

/// Finds a port that nobody listens on, the wanted one if possible.
fn free_port(wanted: Option<u16>) -> io::Result<u16> {
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    if let Some(port) = wanted
        && is_free(port).is_ok()
    {
        return Ok(port);
    }
    let mut tries = 0;
    loop {
        let port = PORT_LOWEST + u16::from_ne_bytes(random_bytes()?) % PORT_COUNT;
        match is_free(port) {
            Ok(_) => return Ok(port),
            Err(error) if tries >= 100 => return Err(error),
            Err(_) => tries += 1,
        }
    }
}

/// Makes a directory for the socket, whose path has to be short: 103 bytes on macOS, socket
/// included.
fn socket_directory(account: Option<Account>) -> io::Result<PathBuf> {
    let directory = temporary_directory(&["/tmp", "/var/tmp"], "hook-sock-")?;
    if let Some(account) = account {
        account.own(&directory)?;
    }
    Ok(directory)
}

/// Makes a directory that nobody else can look into, in the first place that allows it.
fn temporary_directory(places: &[&str], prefix: &str) -> io::Result<PathBuf> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for place in places {
        match tempfile::Builder::new().prefix(prefix).tempdir_in(place) {
            Ok(directory) => return directory.keep().canonicalize(),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn end_of_log(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}
