//! Finds a usable Postgres on this machine, and fetches one when there is none.
//!
//! A directory counts only if it holds both `postgres` and `initdb` and its version is new enough:
//! a client-only package or an old cluster must not shadow a good installation further down the
//! list. A directory that the user named is the only one looked at, so that a typing error is
//! reported rather than silently replaced by some other Postgres.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::fetch::{Fetch, FetchError};
use crate::wait::output_within;

/// Oldest major version that the queue's SQL is written for.
pub const MAJOR_MIN: u32 = 14;

/// Longest time a `postgres --version` may take; it answers in milliseconds when healthy.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

/// Directory of Postgres programs that can run a server of a supported version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    directory: PathBuf,
    major: u32,
}

impl Binaries {
    /// Directory that holds `postgres` and `initdb`.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Major version, such as 17.
    pub fn major(&self) -> u32 {
        self.major
    }

    pub(crate) fn postgres(&self) -> PathBuf {
        self.directory.join("postgres")
    }

    pub(crate) fn initdb(&self) -> PathBuf {
        self.directory.join("initdb")
    }

    /// Checks that a directory can run a server.
    ///
    /// # Errors
    ///
    /// The reason, as a clause that follows the directory's name.
    pub fn check(directory: &Path) -> Result<Self, String> {
        for program in ["postgres", "initdb"] {
            if !directory.join(program).is_file() {
                return Err(format!("has no {program}"));
            }
        }
        let output = output_within(
            Command::new(directory.join("postgres"))
                .arg("--version")
                .current_dir("/"),
            VERSION_TIMEOUT,
        )
        .map_err(|error| format!("cannot run postgres: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let major = parse_major(&text)
            .ok_or_else(|| format!("answers {:?} to postgres --version", text.trim()))?;
        if major < MAJOR_MIN {
            return Err(format!(
                "is version {major}, at least {MAJOR_MIN} is needed"
            ));
        }
        Ok(Self {
            directory: directory.to_path_buf(),
            major,
        })
    }
}

/// Where to look for Postgres.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// Directory named by the user; when set, nothing else is looked at.
    pub named: Option<PathBuf>,
    /// Directories searched in this order.
    pub directories: Vec<PathBuf>,
    /// How to get a prebuilt Postgres when no directory has one; `None` never fetches.
    pub fetch: Option<Fetch>,
}

impl Search {
    /// Reads `HOOK_DEV_PG_BIN`, `PATH`, `HOOK_DEV_PG_URL` and the user's cache directory.
    ///
    /// `var` looks a variable up; the process environment is never read directly. The directories
    /// are those of `PATH`, then the places where packages put Postgres, newest version first.
    /// Without `HOME` and `XDG_CACHE_HOME` there is no place to keep a fetched Postgres, so none
    /// is fetched.
    pub fn from_vars(var: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| var(name).filter(|value| !value.is_empty());
        let mut directories: Vec<PathBuf> = set("PATH")
            .map(|path| {
                std::env::split_paths(&path)
                    .filter(|dir| dir.is_absolute())
                    .collect()
            })
            .unwrap_or_default();
        directories.extend(installed_directories(Path::new("/")));
        let cache = set("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| set("HOME").map(|home| Path::new(&home).join(".cache")));
        Self {
            named: set("HOOK_DEV_PG_BIN").map(PathBuf::from),
            directories,
            fetch: cache.map(|cache| Fetch::new(cache.join("hook"), set("HOOK_DEV_PG_URL"))),
        }
    }

    /// Gives the first usable Postgres, fetched if need be.
    ///
    /// # Errors
    ///
    /// [`FindError::Named`] when the directory named by the user is of no use, and
    /// [`FindError::Missing`] when no Postgres is installed and none could be fetched.
    pub fn find(&self) -> Result<Binaries, FindError> {
        if let Some(named) = &self.named {
            return Binaries::check(named).map_err(|reason| FindError::Named {
                directory: named.clone(),
                reason,
            });
        }
        let mut skipped = Vec::new();
        for directory in &self.directories {
            // Most directories of PATH hold no Postgres at all; only near misses are worth a word.
            if !directory.join("postgres").is_file() {
                continue;
            }
            match Binaries::check(directory) {
                Ok(binaries) => return Ok(binaries),
                Err(reason) => skipped.push(format!("{} {reason}", directory.display())),
            }
        }
        match self.fetch.as_ref().map(Fetch::get) {
            Some(Ok(binaries)) => Ok(binaries),
            Some(Err(source)) => Err(FindError::Missing {
                skipped,
                source: Some(source),
            }),
            None => Err(FindError::Missing {
                skipped,
                source: None,
            }),
        }
    }
}

/// Why there is no Postgres to run.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// The directory that the user named cannot run a server.
    #[error("HOOK_DEV_PG_BIN={} {reason}", .directory.display())]
    Named {
        /// Directory as given.
        directory: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Nothing usable is installed, and nothing was fetched.
    #[error(
        "no Postgres {MAJOR_MIN} or newer found{}; install one ({}), or name its bin directory \
         in HOOK_DEV_PG_BIN",
        describe_skipped(.skipped),
        package_hint()
    )]
    Missing {
        /// Installations that were found but cannot be used, each with the reason.
        skipped: Vec<String>,
        /// Why fetching one failed, if it was tried.
        #[source]
        source: Option<FetchError>,
    },
}

fn describe_skipped(skipped: &[String]) -> String {
    if skipped.is_empty() {
        String::new()
    } else {
        format!(" ({})", skipped.join("; "))
    }
}

fn package_hint() -> &'static str {
    if cfg!(target_os = "macos") {
        "brew install postgresql"
    } else {
        "apt install postgresql, or dnf install postgresql-server"
    }
}

/// Directories where packages put Postgres, below `root`, which is `/` outside tests.
fn installed_directories(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    // Debian and its derivatives keep one directory for each major version.
    found.extend(versioned(&root.join("usr/lib/postgresql"), "", "bin"));
    // The community's packages for Red Hat do the same, the distribution's own do not.
    found.extend(versioned(&root.join("usr"), "pgsql-", "bin"));
    found.push(root.join("usr/bin"));
    for prefix in ["opt/homebrew", "usr/local", "home/linuxbrew/.linuxbrew"] {
        found.extend(versioned(
            &root.join(prefix).join("opt"),
            "postgresql@",
            "bin",
        ));
        found.push(root.join(prefix).join("opt/postgresql/bin"));
        found.push(root.join(prefix).join("bin"));
    }
    found.push(root.join("usr/local/pgsql/bin"));
    found.extend(versioned(
        &root.join("Applications/Postgres.app/Contents/Versions"),
        "",
        "bin",
    ));
    found
}

/// Directories `parent/<prefix><number>/<child>`, highest number first.
fn versioned(parent: &Path, prefix: &str, child: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else {
        return Vec::new();
    };
    let mut found: Vec<(u32, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let number = leading_number(entry.file_name().to_str()?.strip_prefix(prefix)?)?;
            Some((number, entry.path().join(child)))
        })
        .collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, path)| path).collect()
}

/// Reads the major version out of what `postgres --version` prints.
fn parse_major(text: &str) -> Option<u32> {
    let rest = text.trim().strip_prefix("postgres (PostgreSQL) ")?;
    leading_number(rest)
}

/// Reads the digits at the start, as in `17`, `17.5` and `18beta1`.
fn leading_number(text: &str) -> Option<u32> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_read_from_each_form_of_answer() {
        let check =
            |text: &str, major: Option<u32>| assert_eq!(parse_major(text), major, "{text:?}");
        check("postgres (PostgreSQL) 17.5\n", Some(17));
        check(
            "postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n",
            Some(15),
        );
        check("postgres (PostgreSQL) 18beta1", Some(18));
        check("postgres (PostgreSQL) 19devel", Some(19));
        check("postgres (PostgreSQL) 9.6.24", Some(9));
        check("psql (PostgreSQL) 17.5", None);
        check("postgres (PostgreSQL) ", None);
        check("", None);
    }

    #[test]
    fn packages_are_looked_for_where_they_are_put_newest_first() {
        let root = tempfile::tempdir().unwrap();
        for directory in [
            "usr/lib/postgresql/9.6",
            "usr/lib/postgresql/15",
            "usr/lib/postgresql/17",
            "usr/lib/postgresql/lost+found",
            "usr/pgsql-16",
            "opt/homebrew/opt/postgresql@14",
            "Applications/Postgres.app/Contents/Versions/18",
            "Applications/Postgres.app/Contents/Versions/latest",
        ] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        let found: Vec<String> = installed_directories(root.path())
            .iter()
            .map(|path| {
                path.strip_prefix(root.path())
                    .unwrap()
                    .display()
                    .to_string()
            })
            .collect();
        let at = |directory: &str| {
            let place = found.iter().position(|one| one == directory);
            place.unwrap_or_else(|| panic!("{directory} is not among {found:?}"))
        };
        assert_eq!(at("usr/lib/postgresql/17/bin"), 0);
        assert_eq!(at("usr/lib/postgresql/15/bin"), 1);
        assert_eq!(at("usr/lib/postgresql/9.6/bin"), 2);
        assert!(at("usr/pgsql-16/bin") < at("usr/bin"));
        assert!(at("opt/homebrew/opt/postgresql@14/bin") < at("opt/homebrew/bin"));
        at("Applications/Postgres.app/Contents/Versions/18/bin");
        assert!(
            !found
                .iter()
                .any(|one| one.contains("lost+found") || one.contains("latest"))
        );
    }
}
