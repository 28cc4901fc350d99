//! Who runs a server on a data directory, if anybody.
//!
//! Postgres leaves `postmaster.pid` behind when it is killed, and after a restart of the machine or
//! of a container its process id may belong to some other program. Believing the file would stop us
//! from starting; ignoring it could start a second server on live data. So the process itself is
//! asked: its command line names the data directory, and its socket lies in a directory of ours.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::wait::output_within;

/// A process id that no system gives out: Linux stops at 2^22, the others far below.
const NEVER_A_PID: i32 = 999_999_999;

/// How long a healthy server may take to answer on its socket.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// State of a data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Occupant {
    /// No server runs here.
    Nobody,
    /// The file names a process that is alive but is not a server on this directory.
    Stranger,
    /// A server runs here and takes connections.
    Ready(Postmaster),
    /// A server runs here, but it is starting, stopping or stuck.
    Busy(Pid),
}

/// What a running server says about itself in `postmaster.pid`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Postmaster {
    pub(crate) pid: Pid,
    pub(crate) port: u16,
    pub(crate) sockets: PathBuf,
    ready: bool,
}

impl Postmaster {
    /// Reads the file of a server; `None` when there is none, or it is not written to its end.
    pub(crate) fn read(data: &Path) -> Option<Self> {
        let text = fs::read_to_string(pid_file(data)).ok()?;
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        Some(Self {
            pid: lines.first()?.parse().ok().and_then(Pid::from_raw)?,
            port: lines.get(3)?.parse().ok()?,
            sockets: PathBuf::from(lines.get(4)?),
            ready: lines.get(7) == Some(&"ready"),
        })
    }

    /// Says whether the process `pid` wrote the file and takes connections.
    pub(crate) fn is_ready(&self, pid: Pid) -> bool {
        self.pid == pid && self.ready
    }

    /// Path of the server's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.sockets.join(format!(".s.PGSQL.{}", self.port))
    }
}

/// Looks at a data directory.
pub(crate) fn look(data: &Path) -> io::Result<Occupant> {
    let pid = match fs::read_to_string(pid_file(data)) {
        Ok(text) => text
            .lines()
            .next()
            .and_then(|line| line.trim().parse().ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Occupant::Nobody),
        Err(error) => return Err(error),
    };
    // A machine that lost power may leave an empty file, which Postgres takes for a live server.
    let Some(pid) = pid.and_then(Pid::from_raw) else {
        return Ok(Occupant::Stranger);
    };
    if !is_alive(pid) {
        return Ok(Occupant::Nobody);
    }
    if !serves(pid, data) {
        return Ok(Occupant::Stranger);
    }
    Ok(match Postmaster::read(data) {
        Some(postmaster) if postmaster.is_ready(pid) && answers(&postmaster.socket()) => {
            Occupant::Ready(postmaster)
        }
        Some(_) | None => Occupant::Busy(pid),
    })
}

/// Makes the file of a [`Occupant::Stranger`] harmless.
///
/// Only the process id is replaced: the rest lets Postgres find out by itself whether children of
/// the server that wrote the file still use the data, which a deleted file would not.
pub(crate) fn disown(data: &Path) -> io::Result<()> {
    let path = pid_file(data);
    let text = fs::read_to_string(&path)?;
    let rest: Vec<&str> = text.lines().skip(1).collect();
    if rest.is_empty() {
        return fs::remove_file(path);
    }
    fs::write(path, format!("{NEVER_A_PID}\n{}\n", rest.join("\n")))
}

/// Says whether a process exists, whoever owns it.
fn is_alive(pid: Pid) -> bool {
    test_kill_process(pid) != Err(Errno::SRCH)
}

/// Says whether a process is a server on this data directory, by its command line.
///
/// A process whose command line cannot be read counts as one: a start refused in error is a
/// nuisance, a second server on live data destroys it.
fn serves(pid: Pid, data: &Path) -> bool {
    command_line(pid)
        .is_none_or(|line| line.contains("postgres") && line.contains(&*data.to_string_lossy()))
}

fn command_line(pid: Pid) -> Option<String> {
    let pid = pid.as_raw_nonzero();
    if let Ok(bytes) = fs::read(format!("/proc/{pid}/cmdline")) {
        return Some(String::from_utf8_lossy(&bytes).replace('\0', " "));
    }
    let mut ps = Command::new("ps");
    ps.args(["-ww", "-o", "command=", "-p", &pid.to_string()]);
    let output = output_within(&mut ps, ANSWER_TIMEOUT).ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Says whether a Postgres answers on a socket.
///
/// The question is whether it speaks TLS, which any server answers with one letter before it asks
/// who we are. The kernel alone accepts a connection for a server that is stuck, so connecting
/// proves nothing.
fn answers(socket: &Path) -> bool {
    const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
    let ask = || -> io::Result<u8> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.write_all(&TLS_REQUEST)?;
        let mut letter = [0];
        stream.read_exact(&mut letter)?;
        Ok(letter[0])
    };
    matches!(ask(), Ok(b'N' | b'S'))
}

fn pid_file(data: &Path) -> PathBuf {
    data.join("postmaster.pid")
}
