//! What a process uses, as the kernel reports it under `/proc`.

use std::fs;
use std::time::Duration;

/// Length of one tick of the kernel's CPU accounting, which user space sees as 100 a second.
const TICK: Duration = Duration::from_millis(10);

/// The use of resources at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Memory that is resident now, in bytes.
    pub rss_bytes: u64,
    /// The most memory that was ever resident, in bytes.
    pub rss_peak_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// Open file descriptors of any kind.
    pub open_files: usize,
    /// Open sockets.
    pub open_sockets: usize,
    /// CPU time used since the start, in user and kernel mode.
    pub cpu_time: Duration,
}

impl Usage {
    /// Reads the use of a process.
    ///
    /// # Panics
    /// When the process is gone.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        let read = |file: &str| {
            fs::read_to_string(format!("/proc/{pid}/{file}"))
                .unwrap_or_else(|error| panic!("reading {file} of process {pid}: {error}"))
        };
        let status = read("status");
        let (open_files, open_sockets) = descriptors(pid);
        Self {
            rss_bytes: status_number(&status, "VmRSS") * 1024,
            rss_peak_bytes: status_number(&status, "VmHWM") * 1024,
            threads: status_number(&status, "Threads"),
            open_files,
            open_sockets,
            cpu_time: cpu_time(&read("stat")),
        }
    }
}

/// The number on a line of `/proc/<pid>/status`; 0 where a dead process has no such line.
fn status_number(status: &str, name: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or_default()
}

fn descriptors(pid: u32) -> (usize, usize) {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return (0, 0);
    };
    let mut sockets = 0;
    let mut all = 0;
    for entry in entries.flatten() {
        all += 1;
        // A descriptor may be closed between the listing and this look.
        if fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:")) {
            sockets += 1;
        }
    }
    (all, sockets)
}

/// Adds up user and kernel time, the 14th and 15th field; the second may hold spaces.
fn cpu_time(stat: &str) -> Duration {
    let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks: u32 = after_name
        .split(' ')
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u32>().ok())
        .sum();
    TICK * ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_memory_threads_and_files() {
        let usage = Usage::of(std::process::id());
        assert!(usage.rss_bytes > 100_000, "{usage:?}");
        assert!(usage.rss_peak_bytes >= usage.rss_bytes / 2, "{usage:?}");
        assert!(usage.threads >= 1, "{usage:?}");
        assert!(usage.open_files >= 3, "{usage:?}");
    }

    #[test]
    fn the_time_on_the_cpu_is_the_sum_of_two_fields() {
        let stat = "12 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 1 0";
        assert_eq!(cpu_time(stat), Duration::from_secs(2));
    }
}
