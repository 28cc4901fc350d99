//! What these tests share: an installed Postgres, a client, bounded waits.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hook_localpg::find::{Binaries, Search};
use hook_localpg::options::{Durability, Options, Place};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use sqlx::{Connection, PgConnection};
use tempfile::TempDir;

/// Longest wait for something that takes a second on a quiet machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The Postgres that is installed here, or fetched.
pub(crate) fn binaries() -> Binaries {
    let lookup = |name: &str| std::env::var_os(name).and_then(|value| value.into_string().ok());
    Search::from_vars(lookup)
        .find()
        .expect("these tests need a Postgres")
}

/// A private server that does not wait for disks.
pub(crate) fn quick() -> Options {
    Options {
        durability: Durability::Off,
        in_memory: true,
        ..Options::new(binaries())
    }
}

/// A directory that every user can reach, because the server's user may be another than ours.
pub(crate) fn place() -> TempDir {
    tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o755))
        .tempdir()
        .expect("a directory can be made")
}

/// The same in a directory that is kept.
pub(crate) fn kept(directory: &Path) -> Options {
    Options {
        place: Place::Kept(directory.to_owned()),
        ..quick()
    }
}

/// Asks a server one question. An error is given as its text.
pub(crate) fn ask(url: &str, sql: &'static str) -> Result<String, String> {
    on_runtime(async {
        let mut connection = PgConnection::connect(url).await?;
        sqlx::query_scalar(sql).fetch_one(&mut connection).await
    })
}

/// Runs statements.
pub(crate) fn run(url: &str, sql: &'static str) {
    on_runtime(async {
        let mut connection = PgConnection::connect(url).await?;
        sqlx::raw_sql(sql).execute(&mut connection).await
    })
    .expect("the server does it");
}

fn on_runtime<T>(work: impl Future<Output = sqlx::Result<T>>) -> Result<T, String> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be built")
        .block_on(async {
            match tokio::time::timeout(LIMIT, work).await {
                Ok(answer) => answer.map_err(|error| error.to_string()),
                Err(_) => Err("no answer in time".to_owned()),
            }
        })
}

pub(crate) fn is_alive(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid).is_ok())
}

/// Every process and its parent.
pub(crate) fn parents() -> Vec<(i32, i32)> {
    // A slim container has no ps, another system no /proc.
    if !Path::new("/proc/self/stat").exists() {
        let output = Command::new("ps")
            .args(["-A", "-o", "pid=", "-o", "ppid="])
            .output();
        return String::from_utf8_lossy(&output.expect("ps runs").stdout)
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
            })
            .collect();
    }
    fs::read_dir("/proc")
        .expect("we have just looked into it")
        .flatten()
        .filter_map(|entry| {
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let parent = stat.rsplit(')').next()?.split_whitespace().nth(1)?;
            Some((
                entry.file_name().to_str()?.parse().ok()?,
                parent.parse().ok()?,
            ))
        })
        .collect()
}

/// Sends a signal to processes, which may have ended.
pub(crate) fn signal(pids: impl IntoIterator<Item = i32>, signal: Signal) {
    for pid in pids {
        if let Some(pid) = Pid::from_raw(pid) {
            match kill_process(pid, signal) {
                Ok(()) | Err(_) => {}
            }
        }
    }
}

/// Waits until a condition holds.
#[expect(clippy::disallowed_types, reason = "no runtime in these tests")]
#[expect(clippy::disallowed_methods, reason = "the one sleep of these tests")]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Writes a program that is a shell script.
pub(crate) fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).expect("a script can be written");
    fs::set_permissions(path, Permissions::from_mode(0o755)).expect("it can be made executable");
}

/// Makes a directory of programs that claim to be a version of Postgres.
pub(crate) fn pretend(parent: &Path, name: &str, version: &str) -> PathBuf {
    let directory = parent.join(name);
    fs::create_dir_all(&directory).expect("a directory can be made");
    script(
        &directory.join("postgres"),
        &format!("echo 'postgres (PostgreSQL) {version}'"),
    );
    script(&directory.join("initdb"), "exit 1");
    directory
}
