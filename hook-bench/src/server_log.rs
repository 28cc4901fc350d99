//! What Postgres writes down about statements that take long.

use std::{
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom},
    path::PathBuf,
};

use anyhow::Context as _;

/// Settings by which it does: the program's name first, then the statement and what it took.
pub(crate) const SETTINGS: [(&str, &str); 2] = [
    ("log_min_duration_statement", "20"),
    ("log_line_prefix", "%a "),
];

/// The log of a server that has these settings.
#[derive(Clone, Debug)]
pub(crate) struct ServerLog(PathBuf);

/// The statement of a service that took longest.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Longest {
    pub(crate) ms: f64,
    /// Whose it was, and its name.
    pub(crate) what: String,
}

impl ServerLog {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Where the log ends now.
    pub(crate) fn end(&self) -> anyhow::Result<u64> {
        let file = fs::metadata(&self.0).context("looking for the server's log")?;
        Ok(file.len())
    }

    /// The longest statement of a service since the log ended there; none took no time.
    pub(crate) fn longest_since(&self, end: u64) -> anyhow::Result<Longest> {
        let mut text = Vec::new();
        let mut file = File::open(&self.0).context("opening the server's log")?;
        file.seek(SeekFrom::Start(end))
            .and_then(|_| file.read_to_end(&mut text))
            .context("reading the server's log")?;
        Ok(longest(&String::from_utf8_lossy(&text)))
    }
}

fn longest(log: &str) -> Longest {
    let of_services = log.lines().filter(|line| line.starts_with("hook-"));
    let taken = of_services.filter_map(|line| {
        let (program, rest) = line.split_once(" LOG:  duration: ")?;
        let (ms, statement) = rest.split_once(" ms")?;
        let name = statement.split("-- ").nth(1).unwrap_or(statement.trim());
        Some(Longest {
            ms: ms.parse().ok()?,
            what: format!("{program} {name}"),
        })
    });
    taken
        .max_by(|a, b| a.ms.total_cmp(&b.ms))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_statement_of_a_service_is_found_among_other_lines() {
        let log = "hook-worker LOG:  duration: 21.5 ms  execute sqlx_s_3: -- dequeue\n\
            WITH mine AS (\n\
            hook-janitor LOG:  duration: 340.25 ms  execute sqlx_s_9: -- truncate_bucket\n\
            hook-api LOG:  duration: 30.1 ms  statement: SELECT 1\n\
             LOG:  duration: 9000.0 ms  statement: -- fill\n\
            hook-worker ERROR:  canceling statement\n";
        let found = longest(log);
        assert_eq!(found.ms, 340.25);
        assert_eq!(found.what, "hook-janitor truncate_bucket");
        assert_eq!(longest("nothing"), Longest::default());
    }
}
