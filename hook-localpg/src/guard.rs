//! The process that stands between us and Postgres, and ends it when we are gone.
//!
//! A child outlives its parent, and a parent killed with `SIGKILL` cannot clean up. So Postgres is
//! the child of a small shell that reads a pipe whose other end only we hold: the kernel closes
//! that end however we die, and the shell then stops the server. The same pipe carries the
//! signals we want sent, so that no process id is used after its process has been waited for.
//!
//! The invariant: as long as no other process holds the writing end, no server outlives us. Rust
//! opens pipes with close-on-exec, so children that we start do not hold it. What is not covered:
//! somebody who kills the shell itself with `SIGKILL`; `occupant` deals with that at the next start.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::Pid;

use crate::account::Account;
use crate::wait::wait_for_exit;

/// Arguments: directory to remove when we are gone or nothing, socket directory, server, its
/// arguments.
///
/// The shell waits for the server; its child, the watcher, reads the pipe and outlives the shell if
/// need be. Steps of an ending without us: a fast shutdown, after 5 s one without a checkpoint,
/// after another 7 s `SIGKILL`, for a server that somebody has frozen. The watcher must not mind
/// `SIGHUP`: the kernel sends it to a group that loses its last tie to the session while one of its
/// processes is stopped, which is just what happens when the owner of a paused server dies.
const SCRIPT: &str = r#"
private=$1 sockets=$2
shift 2
server=
trap '[ -z "$server" ] || kill -s INT "$server"' HUP INT TERM
exec 3<&0 </dev/null
"$@" 3<&- >&2 &
server=$!
echo "$server"
exec >&2
alive() { kill -s 0 "$server" 2>/dev/null; }
gone_within() {
    tenths=$1
    while alive; do
        [ "$tenths" -gt 0 ] || return 1
        tenths=$((tenths - 1))
        sleep 0.1
    done
}
end_server() {
    kill -s CONT "$server"
    kill -s INT "$server"
    gone_within 50 && return
    kill -s QUIT "$server"
    gone_within 70 && return
    kill -s KILL "$server"
}
(
    trap '' HUP INT
    trap - TERM
    while read -r signal; do kill -s "$signal" "$server"; done
    trap '' TERM
    end_server
    rm -rf "$sockets"
    [ -z "$private" ] || rm -rf "$private"
) <&3 2>/dev/null &
watcher=$!
exec 3<&-
while :; do
    wait "$server"
    status=$?
    alive || break
done
kill -s TERM "$watcher" 2>/dev/null
wait "$watcher" 2>/dev/null
rm -rf "$sockets"
exit "$status"
"#;

/// Variables by which libpq's and Postgres's programs would be led astray.
const FOREIGN_VARIABLES: [&str; 8] = [
    "PGDATA",
    "PGDATABASE",
    "PGHOST",
    "PGOPTIONS",
    "PGPASSWORD",
    "PGPORT",
    "PGSERVICE",
    "PGUSER",
];

/// What a guard runs.
#[derive(Debug)]
pub(crate) struct Task<'a> {
    pub(crate) account: Option<Account>,
    /// Directory that the guard removes when it outlives us.
    pub(crate) private: Option<&'a Path>,
    /// Directory of the server's socket, which the guard removes at its end.
    pub(crate) sockets: PathBuf,
    pub(crate) log: File,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
}

/// A running server and the shell that watches over it.
///
/// Dropping it closes the pipe, so the server stops soon after; nobody waits for it.
#[derive(Debug)]
pub(crate) struct Guard {
    shell: Option<Child>,
    orders: Option<ChildStdin>,
    server: Pid,
}

impl Guard {
    /// Starts the server; it is not ready yet when this returns.
    pub(crate) fn start(task: Task<'_>) -> io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", SCRIPT, "hook-postgres-guard"])
            .arg(task.private.unwrap_or(Path::new("")))
            .arg(&task.sockets)
            .arg(&task.program)
            .args(&task.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(task.log)
            // An interrupt typed at the terminal goes to the whole process group. The server must
            // not stop by itself before we have drained, so it lives in a group of its own.
            .process_group(0);
        tame(&mut command, task.account);
        let mut shell = command.spawn()?;
        let orders = shell.stdin.take();
        let mut line = String::new();
        if let Some(output) = shell.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let Some(server) = line.trim().parse().ok().and_then(Pid::from_raw) else {
            shell.wait()?;
            return Err(io::Error::other(
                "the shell that should run Postgres ended at once",
            ));
        };
        Ok(Self {
            shell: Some(shell),
            orders,
            server,
        })
    }

    /// Process id of the server.
    pub(crate) fn server(&self) -> Pid {
        self.server
    }

    /// Sends the server a signal, by its name without `SIG`.
    pub(crate) fn signal(&mut self, name: &str) -> io::Result<()> {
        match &mut self.orders {
            Some(orders) => writeln!(orders, "{name}"),
            None => Ok(()),
        }
    }

    /// Waits for the end of the server; false when it still runs after `limit`.
    pub(crate) fn wait(&mut self, limit: Duration) -> bool {
        self.shell
            .as_mut()
            .is_none_or(|shell| wait_for_exit(shell, limit))
    }

    /// Lets the guard do what it does when we are gone.
    pub(crate) fn release(&mut self) {
        self.orders = None;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.release();
        if let Some(mut shell) = self.shell.take() {
            // Nobody waits for the server, but a child must be waited for or it stays a zombie.
            // A thread that cannot be started leaves just that: a zombie until we end.
            drop(
                thread::Builder::new()
                    .name("postgres-reaper".into())
                    .spawn(move || shell.wait()),
            );
        }
    }
}

/// Gives a Postgres program the same surroundings wherever it is started.
pub(crate) fn tame(command: &mut Command, account: Option<Account>) {
    for name in FOREIGN_VARIABLES {
        command.env_remove(name);
    }
    // On macOS Postgres refuses to start without a locale; everywhere we read its messages.
    command.env("LC_ALL", "C").env("TZ", "UTC").current_dir("/");
    if let Some(account) = account {
        account.apply(command);
    }
}
