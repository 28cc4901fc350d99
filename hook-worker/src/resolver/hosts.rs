//! The hosts file of the system, reread when it changes.
//!
//! An entry is the whole answer for its name: DNS is not asked for the other address family.

use std::{
    collections::HashMap,
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{Addresses, by_turns};

/// How often the file is looked at. It is a small local file, read in well under a millisecond.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// A larger file is not read; it would be a blocklist and no way to name a receiver.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Names and addresses from a file in the format of `hosts(5)`.
pub(super) struct HostsFile {
    path: PathBuf,
    content: Mutex<Content>,
}

#[derive(Default)]
struct Content {
    names: HashMap<String, Addresses>,
    looked_at: Option<Instant>,
    stamp: Option<Stamp>,
}

/// What tells one version of the file from another.
type Stamp = (u64, Option<std::time::SystemTime>);

impl HostsFile {
    /// The file that every program on this machine goes by.
    pub(super) fn system() -> Self {
        Self::at("/etc/hosts")
    }

    /// The file at `path`, which need not exist.
    pub(super) fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            content: Mutex::default(),
        }
    }

    /// The addresses that the file gives to a name in lower case.
    pub(super) fn addresses(&self, name: &str, now: Instant) -> Option<Addresses> {
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        let due = content
            .looked_at
            .is_none_or(|looked_at| now.duration_since(looked_at) >= LOOK_INTERVAL);
        if due {
            content.looked_at = Some(now);
            self.look(&mut content);
        }
        content.names.get(name).map(Arc::clone)
    }

    fn look(&self, content: &mut Content) {
        let stamp = std::fs::metadata(&self.path)
            .ok()
            .map(|metadata| (metadata.len(), metadata.modified().ok()));
        if stamp == content.stamp {
            return;
        }
        content.stamp = stamp;
        let readable = stamp.is_some_and(|(bytes, _)| bytes <= FILE_BYTES_MAX);
        let text = readable
            .then(|| std::fs::read(&self.path).ok())
            .flatten()
            .unwrap_or_default();
        content.names = parse(&String::from_utf8_lossy(&text));
    }
}

fn parse(text: &str) -> HashMap<String, Addresses> {
    let mut names: HashMap<String, Vec<IpAddr>> = HashMap::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut fields = line.split_ascii_whitespace();
        let Some(Ok(address)) = fields.next().map(str::parse::<IpAddr>) else {
            continue;
        };
        for name in fields {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            let addresses = names.entry(name).or_default();
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }
    names
        .into_iter()
        .map(|(name, addresses)| (name, by_turns(addresses.into_iter()).into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_give_names_to_addresses() {
        let names = parse(
            "127.0.0.1 localhost sink.test # ours\n\
             ::1\tlocalhost ip6-localhost\n\
             #10.0.0.1 commented.test\n\
             not-an-address broken.test\n\
             127.0.0.9 Svc_A.test svc_a.test.\n",
        );
        let of = |name: &str| names.get(name).map(|a| a.to_vec());
        assert_eq!(
            of("localhost"),
            Some(vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()])
        );
        assert_eq!(of("sink.test"), Some(vec!["127.0.0.1".parse().unwrap()]));
        assert_eq!(of("svc_a.test"), Some(vec!["127.0.0.9".parse().unwrap()]));
        assert_eq!(of("commented.test"), None);
        assert_eq!(of("broken.test"), None);
    }

    #[test]
    fn a_changed_file_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hosts");
        let hosts = HostsFile::at(&path);
        let start = Instant::now();
        assert_eq!(hosts.addresses("a.test", start), None);
        std::fs::write(&path, "127.0.0.2 a.test\n").unwrap();
        assert_eq!(hosts.addresses("a.test", start), None, "not looked at yet");
        let later = start + LOOK_INTERVAL;
        assert_eq!(
            hosts.addresses("a.test", later).as_deref(),
            Some(&["127.0.0.2".parse().unwrap()][..])
        );
    }
}
