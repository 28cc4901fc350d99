//! Stops a server in its tracks without ending it, as a machine that swaps or a disk that hangs
//! would: connections stay open and nothing answers.

use std::fs;
use std::io;
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::wait::output_within;

/// Longest time that listing the machine's processes may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// Processes that are stopped until this value is thawed or dropped.
#[derive(Debug)]
pub(crate) struct Frozen(Vec<Pid>);

impl Frozen {
    /// Stops a server and all processes that it has started.
    ///
    /// The server itself comes first, so that it starts no other one meanwhile.
    pub(crate) fn new(server: Pid) -> io::Result<Self> {
        let mut frozen = Self(Vec::new());
        frozen.stop(server)?;
        for child in children(server)? {
            frozen.stop(child)?;
        }
        Ok(frozen)
    }

    fn stop(&mut self, pid: Pid) -> io::Result<()> {
        match kill_process(pid, Signal::STOP) {
            Ok(()) => self.0.push(pid),
            // A connection that ended just now.
            Err(Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for pid in &self.0 {
            match kill_process(*pid, Signal::CONT) {
                // One that was killed meanwhile needs no waking.
                Ok(()) | Err(_) => {}
            }
        }
    }
}

fn children(parent: Pid) -> io::Result<Vec<Pid>> {
    let parent = parent.as_raw_pid();
    let pairs = match fs::read_dir("/proc/self/task") {
        Ok(_) => pairs_of_proc()?,
        Err(_) => pairs_of_ps()?,
    };
    Ok(pairs
        .into_iter()
        .filter(|(_, its_parent)| *its_parent == parent)
        .filter_map(|(pid, _)| Pid::from_raw(pid))
        .collect())
}

/// Every process and its parent, on Linux, where a slim container has no `ps`.
fn pairs_of_proc() -> io::Result<Vec<(i32, i32)>> {
    Ok(fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            // The name in parentheses may itself hold spaces and parentheses.
            let (_, rest) = stat.rsplit_once(')')?;
            Some((pid, rest.split_whitespace().nth(1)?.parse().ok()?))
        })
        .collect())
}

/// Every process and its parent, elsewhere.
fn pairs_of_ps() -> io::Result<Vec<(i32, i32)>> {
    let mut ps = Command::new("ps");
    let output = output_within(ps.args(["-A", "-o", "pid=", "-o", "ppid="]), LIST_TIMEOUT)?;
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| {
            let mut numbers = line.split_whitespace().map(str::parse);
            Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_list_processes_know_our_parent() {
        let pid = rustix::process::getpid().as_raw_pid();
        let parent = rustix::process::getppid().unwrap().as_raw_pid();
        if cfg!(target_os = "linux") {
            assert!(pairs_of_proc().unwrap().contains(&(pid, parent)));
        }
        // Some containers have no ps, and then it is not needed.
        if let Ok(pairs) = pairs_of_ps() {
            assert!(pairs.contains(&(pid, parent)));
        }
    }
}
