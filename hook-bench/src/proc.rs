//! CPU time and memory of processes, as the kernel counts them under `/proc`.

use std::{fs, time::Duration};

use anyhow::{Context as _, anyhow};

/// The kernel shows CPU time in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

/// The fields of `/proc/<pid>/stat` that count.
struct Stat {
    parent: u32,
    own: Duration,
    /// Of children that have ended and were waited for.
    ended_children: Duration,
}

/// CPU time of one process, in user and kernel mode.
pub(crate) fn cpu(pid: u32) -> anyhow::Result<Duration> {
    Ok(stat(pid)?.own)
}

/// CPU time of a process and of all children it ever had.
pub(crate) fn cpu_of_family(pid: u32) -> anyhow::Result<Duration> {
    let head = stat(pid)?;
    let mut total = head.own + head.ended_children;
    for child in pids()? {
        // Others may end while we look; a child that has just ended is counted by the next look.
        match stat(child) {
            Ok(child) if child.parent == pid => total += child.own,
            Ok(_) | Err(_) => {}
        }
    }
    Ok(total)
}

/// The most memory that a process ever had resident, in bytes.
pub(crate) fn peak_memory(pid: u32) -> anyhow::Result<u64> {
    memory(pid, "VmHWM")
}

/// The memory that a process has resident now, in bytes.
pub(crate) fn resident_memory(pid: u32) -> anyhow::Result<u64> {
    memory(pid, "VmRSS")
}

/// The memory that a process and its children have resident now, in bytes; what several of them
/// share counts once.
pub(crate) fn resident_memory_of_family(pid: u32) -> anyhow::Result<u64> {
    let mut total = proportional_memory(pid)?;
    for child in pids()? {
        // As with CPU time, others may end while we look.
        match stat(child) {
            Ok(stat) if stat.parent == pid => total += proportional_memory(child).unwrap_or(0),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(total)
}

/// The memory of a process, of what it shares only its part.
fn proportional_memory(pid: u32) -> anyhow::Result<u64> {
    field(&format!("/proc/{pid}/smaps_rollup"), "Pss")
}

fn memory(pid: u32, name: &str) -> anyhow::Result<u64> {
    field(&format!("/proc/{pid}/status"), name)
}

/// A field of a file that counts in KiB, in bytes.
fn field(path: &str, field: &str) -> anyhow::Result<u64> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    let kib: u64 = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .ok_or_else(|| anyhow!("{path} has no {field}"))?;
    Ok(kib * 1024)
}

fn pids() -> anyhow::Result<Vec<u32>> {
    let entries = fs::read_dir("/proc").context("listing processes")?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter_map(|name| name.parse().ok()).collect())
}

fn stat(pid: u32) -> anyhow::Result<Stat> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    parse(&text).ok_or_else(|| anyhow!("{path} is not understood"))
}

/// The name of the program may hold spaces and parentheses, so fields count from its end.
fn parse(text: &str) -> Option<Stat> {
    let (_, after_name) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = after_name.split(' ').collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u32>().ok();
    Some(Stat {
        parent: ticks(1)?,
        own: TICK * (ticks(11)? + ticks(12)?),
        ended_children: TICK * (ticks(13)? + ticks(14)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_children_that_ended_is_kept_apart() {
        let stat = parse("12 (a) b) S 7 2 3 4 5 6 7 8 9 10 150 50 30 20 20 0 1 0").unwrap();
        assert_eq!(stat.parent, 7);
        assert_eq!(stat.own, Duration::from_secs(2));
        assert_eq!(stat.ended_children, Duration::from_millis(500));
    }

    #[test]
    fn this_process_has_memory_and_no_less_at_its_peak() {
        let pid = std::process::id();
        assert!(resident_memory(pid).unwrap() > 100_000);
        assert!(peak_memory(pid).unwrap() >= resident_memory(pid).unwrap() / 2);
        // Read first: time goes on between the two.
        let own = cpu(pid).unwrap();
        assert!(cpu_of_family(pid).unwrap() >= own);
        assert!(resident_memory_of_family(pid).unwrap() > 100_000);
    }
}
