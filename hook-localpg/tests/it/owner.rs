//! The server does not outlive its owner, and what a dead owner left behind fools nobody.
//!
//! The owner is this test binary, run once more with a variable that makes [`holder`] start a
//! server and hold it until somebody kills it.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::iter;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use hook_localpg::options::{Durability, Options, WhenRunning};
use hook_localpg::server::PgServer;
use rustix::process::{Signal, geteuid};

use crate::support::{ask, is_alive, kept, parents, place, quick, run, signal, wait_until};

/// Names the directory of the holder's server, or is empty for a private one.
const HOLD: &str = "HOOK_LOCALPG_TEST_HOLD";

/// Not a test by itself: the process that others kill.
#[test]
fn holder() {
    let Some(directory) = std::env::var_os(HOLD) else {
        return;
    };
    let options = if directory.is_empty() {
        quick()
    } else {
        kept(Path::new(&directory))
    };
    let server = PgServer::start(options).unwrap();
    println!(
        "HOLDING {} {} {}",
        server.pid().unwrap(),
        server.directory().display(),
        server.url()
    );
    // The end of the pipe is the end of the test that started us.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// A process that holds a server.
struct Holder {
    process: Child,
    server: i32,
    directory: PathBuf,
    url: String,
}

impl Holder {
    fn start(mut command: Command, directory: &Path) -> Self {
        let mut process = command
            .args([
                "owner::holder",
                "--exact",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(HOLD, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this binary runs once more");
        let output = BufReader::new(process.stdout.take().expect("it has a pipe"));
        let line = output
            .lines()
            .map_while(Result::ok)
            .find_map(|line| Some(line.split_once("HOLDING ")?.1.to_owned()))
            .expect("the holder starts a server");
        let words: Vec<&str> = line.split(' ').collect();
        Self {
            process,
            server: words[0].parse().expect("a process id"),
            directory: PathBuf::from(words[1]),
            url: words[2].to_owned(),
        }
    }

    fn here(directory: &Path) -> Self {
        Self::start(
            Command::new(std::env::current_exe().expect("we are a file")),
            directory,
        )
    }

    fn kill(&mut self) {
        self.process.kill().expect("our child can be killed");
        self.process.wait().expect("our child can be waited for");
    }
}

#[test]
fn killing_the_owner_ends_the_server_and_removes_its_private_directory() {
    let mut holder = Holder::here(Path::new(""));
    assert_eq!(ask(&holder.url, "SELECT 'alive'").unwrap(), "alive");
    holder.kill();
    wait_until("the server has ended", || !is_alive(holder.server));
    wait_until("its directory is gone", || !holder.directory.exists());
}

#[test]
fn killing_the_owner_ends_a_frozen_server_too() {
    let mut holder = Holder::here(Path::new(""));
    let frozen = iter::once(holder.server).chain(children(holder.server));
    signal(frozen, Signal::STOP);
    holder.kill();
    wait_until("the server has ended", || !is_alive(holder.server));
    wait_until("its directory is gone", || !holder.directory.exists());
}

#[test]
fn killing_the_owner_and_the_shell_of_the_guard_ends_the_server() {
    let mut holder = Holder::here(Path::new(""));
    signal([parent(holder.server)], Signal::KILL);
    holder.kill();
    // Nobody may wait for this orphan, so its process is no sign of life.
    wait_until("its directory is gone", || !holder.directory.exists());
}

#[test]
fn a_start_right_after_the_owner_was_killed_gets_the_data() {
    let place = place();
    let mut holder = Holder::here(place.path());
    run(&holder.url, "CREATE TABLE kept AS SELECT 'here' AS word");
    holder.kill();
    let server = PgServer::start(kept(place.path())).unwrap();
    assert!(server.is_owner());
    assert_eq!(ask(&server.url(), "SELECT word FROM kept").unwrap(), "here");
}

#[test]
fn a_server_without_owner_and_guard_is_taken_over() {
    let place = place();
    let mut holder = Holder::here(place.path());
    let guard = parent(holder.server);
    let watcher = children(guard)
        .into_iter()
        .filter(|pid| *pid != holder.server);
    signal(watcher.chain([guard]), Signal::KILL);
    holder.kill();
    assert!(
        ask(&holder.url, "SELECT 'alive'").is_ok(),
        "nobody is left to end it"
    );
    let options = Options {
        when_running: WhenRunning::Reuse,
        ..kept(place.path())
    };
    let server = PgServer::start(options).unwrap();
    assert!(server.is_owner());
    assert_ne!(server.pid(), Some(holder.server));
    assert_eq!(ask(&server.url(), "SELECT 'alive'").unwrap(), "alive");
}

fn parent(pid: i32) -> i32 {
    let found = parents().into_iter().find(|(child, _)| *child == pid);
    found.expect("it is alive").1
}

fn children(pid: i32) -> Vec<i32> {
    let pairs = parents().into_iter();
    pairs
        .filter(|(_, parent)| *parent == pid)
        .map(|(child, _)| child)
        .collect()
}

#[test]
fn a_pid_file_that_names_another_program_does_not_stop_a_start() {
    let place = place();
    let options = Options {
        durability: Durability::Full,
        ..kept(place.path())
    };
    let mut server = PgServer::start(options).unwrap();
    run(&server.url(), "CREATE TABLE kept AS SELECT 'here' AS word");
    server.kill().unwrap();
    let file = server.directory().join("data/postmaster.pid");
    let left = fs::read_to_string(&file).expect("a killed server leaves its file");
    let (_, rest) = left.split_once('\n').unwrap();
    let ours = std::process::id();
    for (what, text) in [
        ("the id of a live stranger", format!("{ours}\n{rest}")),
        ("nothing but an id", format!("{ours}\n")),
        ("nothing", String::new()),
        ("rubbish", "\0\0\0\0".to_owned()),
    ] {
        fs::write(&file, text).unwrap();
        server
            .start_again()
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(
            ask(&server.url(), "SELECT word FROM kept").unwrap(),
            "here",
            "{what}"
        );
        server.kill().unwrap();
    }
}

#[test]
fn a_start_that_was_cut_off_is_begun_anew() {
    let place = place();
    fs::create_dir(place.path().join("data.new")).unwrap();
    fs::write(place.path().join("data.new/PG_VERSION"), "15\n").unwrap();
    fs::write(
        place.path().join("password"),
        "of the start that was cut off",
    )
    .unwrap();
    let server = PgServer::start(kept(place.path())).unwrap();
    assert_eq!(ask(&server.url(), "SELECT 'alive'").unwrap(), "alive");
}

#[test]
fn root_hands_the_server_to_an_ordinary_user() {
    if !geteuid().is_root() {
        return;
    }
    let server = PgServer::start(quick()).unwrap();
    let process = format!("/proc/{}", server.pid().unwrap());
    if let Ok(metadata) = fs::metadata(process) {
        assert_ne!(metadata.uid(), 0);
    }
}

#[test]
fn root_finds_a_place_for_data_that_the_user_could_not_reach() {
    if !geteuid().is_root() {
        return;
    }
    let closed = tempfile::tempdir().unwrap();
    fs::set_permissions(closed.path(), Permissions::from_mode(0o700)).unwrap();
    let wanted = closed.path().join("pg");
    let mut server = PgServer::start(kept(&wanted)).unwrap();
    let directory = server.directory().to_owned();
    assert!(!directory.starts_with(closed.path()));
    assert_eq!(ask(&server.url(), "SELECT 'alive'").unwrap(), "alive");
    server.stop().unwrap();
    drop(server);
    let server = PgServer::start(kept(&wanted)).unwrap();
    assert_eq!(server.directory(), directory);
    let pid = server.pid().unwrap();
    drop(server);
    wait_until("the server has ended", || !is_alive(pid));
    fs::remove_dir_all(directory).unwrap();
}

/// Root runs the tests of processes and rights once more as an ordinary user, so that both cases are covered in a
/// container as well as on a developer's machine.
#[test]
fn an_ordinary_user_can_do_all_of_this() {
    if !geteuid().is_root() || Command::new("setpriv").arg("--version").output().is_err() {
        return;
    }
    let place = place();
    let program = place.path().join("tests");
    // Copied by another process: a program that one of our own descriptors may still write to, in a
    // child that another test is just starting, cannot be run.
    let copied = Command::new("cp")
        .arg(std::env::current_exe().unwrap())
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(program)
        .args(["private_server", "killing_the_owner", "taken_over"])
        .current_dir("/")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(said.contains("test owner::killing_the_owner"), "{said}");
}
