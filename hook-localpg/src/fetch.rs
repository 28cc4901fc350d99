//! Fetches a prebuilt Postgres where none is installed.
//!
//! The archives are those of the `postgresql-binaries` project of theseus-rs on GitHub, of one
//! fixed release, or a mirror with the same layout. Nothing is unpacked before its SHA-256 has
//! been checked against `CHECKSUMS`. Where that table has no line for a platform, the `.sha256`
//! file that lies beside each archive must be there and must match. That proves the archive
//! complete, but not more honest than the server both came from, which TLS vouches for.
//!
//! An installation appears in the cache by a rename once it has been unpacked and answers to
//! `postgres --version`, so a download that was cut off leaves nothing that looks like one.

use std::fs::{self, File, Permissions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::account::Account;
use crate::directories::reachable_directory;
use crate::find::Binaries;

/// Release that is fetched.
pub const RELEASE: &str = "17.5.0";

/// Where releases are fetched from, unless the caller names a mirror.
pub const BASE_URL: &str = "https://github.com/theseus-rs/postgresql-binaries/releases/download";

/// SHA-256 of the archive for a platform, for [`RELEASE`]. Empty: no line has been verified yet,
/// so the file beside the archive is used on every platform.
const CHECKSUMS: &[(&str, &str)] = &[];

/// Largest archive; the real ones have about 20 MiB.
const ARCHIVE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Most bytes that an archive may unpack to, so that a small one cannot fill the disk.
const UNPACKED_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;

/// Largest checksum file.
const CHECKSUM_BYTES_MAX: u64 = 4096;

/// Longest connect, and longest whole download: 20 MiB within this is 0.3 Mbit/s.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(600);

/// Where to get a prebuilt Postgres, and where to keep it.
#[derive(Debug, Clone)]
pub struct Fetch {
    cache: PathBuf,
    base_url: String,
}

impl Fetch {
    /// Keeps installations in `cache`; `base_url` replaces [`BASE_URL`].
    ///
    /// A mirror serves `<base_url>/<release>/postgresql-<release>-<platform>.tar.gz` and the same
    /// with `.sha256` appended. When it is an `https` address, no redirect may lead to `http`.
    pub fn new(cache: PathBuf, base_url: Option<String>) -> Self {
        Self {
            cache,
            base_url: base_url.unwrap_or_else(|| BASE_URL.to_owned()),
        }
    }

    /// Gives the installation from the cache, fetched first if it is not there.
    ///
    /// # Errors
    ///
    /// Every error leaves the cache as it was; the caller can only report it.
    pub fn get(&self) -> Result<Binaries, FetchError> {
        let platform = platform().ok_or(FetchError::Platform)?;
        // Root hands the programs over to another user, who must be able to reach them.
        let account = Account::for_programs().map_err(FetchError::Cache)?;
        let cache = reachable_directory(&self.cache, account).map_err(FetchError::Cache)?;
        let name = format!("postgresql-{RELEASE}-{platform}");
        let installed = cache.join(&name);
        if let Ok(binaries) = Binaries::check(&installed.join("bin")) {
            return Ok(binaries);
        }
        let url = format!(
            "{}/{RELEASE}/{name}.tar.gz",
            self.base_url.trim_end_matches('/')
        );
        tracing::info!(url = %url, directory = %cache.display(), "fetching postgres");
        let client = Client::new(&url);
        let expected = match CHECKSUMS.iter().find(|(known, _)| *known == platform) {
            Some((_, checksum)) => (*checksum).to_owned(),
            None => client.checksum(&format!("{url}.sha256"))?,
        };
        let work = tempfile::Builder::new()
            .prefix(".fetch-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir_in(&cache)
            .map_err(FetchError::Cache)?;
        let archive = work.path().join("archive.tar.gz");
        let found = client.download(&url, &archive)?;
        if found != expected {
            return Err(FetchError::Checksum {
                url,
                expected,
                found,
            });
        }
        let tree = unpack(&archive, work.path())?;
        Binaries::check(&tree.join("bin")).map_err(FetchError::Unusable)?;
        install(&tree, &installed).map_err(FetchError::Cache)?;
        Binaries::check(&installed.join("bin")).map_err(FetchError::Unusable)
    }
}

/// Why no Postgres could be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// There is no prebuilt Postgres for this kind of machine.
    #[error(
        "there is no prebuilt Postgres for {} on {}",
        std::env::consts::ARCH,
        std::env::consts::OS
    )]
    Platform,
    /// The server could not be reached, or did not give the file.
    #[error("cannot fetch {url}")]
    Http {
        /// What was asked for.
        url: String,
        /// The fault.
        #[source]
        source: Box<ureq::Error>,
    },
    /// The download broke off, was too large, or could not be written.
    #[error("cannot download {url}")]
    Download {
        /// What was asked for.
        url: String,
        /// The fault.
        #[source]
        source: io::Error,
    },
    /// What lies beside the archive is not a checksum.
    #[error("{url} holds no SHA-256 checksum")]
    ChecksumMissing {
        /// What was asked for.
        url: String,
    },
    /// The archive is not the one that was meant.
    #[error("{url} has the SHA-256 checksum {found}, but {expected} is expected")]
    Checksum {
        /// What was asked for.
        url: String,
        /// Checksum of the right archive.
        expected: String,
        /// Checksum of what was downloaded.
        found: String,
    },
    /// The archive cannot be unpacked.
    #[error("cannot unpack the archive")]
    Archive(#[source] io::Error),
    /// What was unpacked cannot run a server; the text says why.
    #[error("the fetched Postgres {0}")]
    Unusable(String),
    /// The cache directory cannot be used.
    #[error("cannot use the cache directory")]
    Cache(#[source] io::Error),
}

/// Name that the releases give to this kind of machine.
fn platform() -> Option<&'static str> {
    Some(
        match (
            std::env::consts::ARCH,
            std::env::consts::OS,
            cfg!(target_env = "musl"),
        ) {
            ("x86_64", "linux", false) => "x86_64-unknown-linux-gnu",
            ("x86_64", "linux", true) => "x86_64-unknown-linux-musl",
            ("aarch64", "linux", false) => "aarch64-unknown-linux-gnu",
            ("aarch64", "linux", true) => "aarch64-unknown-linux-musl",
            ("x86_64", "macos", _) => "x86_64-apple-darwin",
            ("aarch64", "macos", _) => "aarch64-apple-darwin",
            _ => return None,
        },
    )
}

struct Client(ureq::Agent);

impl Client {
    fn new(url: &str) -> Self {
        let mut config = ureq::Agent::config_builder()
            .https_only(url.starts_with("https://"))
            .max_redirects(5)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(DOWNLOAD_TIMEOUT));
        // A company's proxy, which ureq takes from the environment, cannot reach our loopback.
        if ["http://127.0.0.1", "http://localhost", "http://[::1]"]
            .iter()
            .any(|loopback| url.starts_with(loopback))
        {
            config = config.proxy(None);
        }
        Self(config.build().into())
    }

    /// Fetches a file of the form that `sha256sum` writes.
    fn checksum(&self, url: &str) -> Result<String, FetchError> {
        let mut text = String::new();
        self.open(url, CHECKSUM_BYTES_MAX)?
            .read_to_string(&mut text)
            .map_err(|source| FetchError::Download {
                url: url.to_owned(),
                source,
            })?;
        parse_checksum(&text).ok_or_else(|| FetchError::ChecksumMissing {
            url: url.to_owned(),
        })
    }

    /// Writes a file and gives its checksum.
    fn download(&self, url: &str, path: &Path) -> Result<String, FetchError> {
        let mut source = self.open(url, ARCHIVE_BYTES_MAX)?;
        let mut copy = || -> io::Result<String> {
            let mut file = BufWriter::new(File::create_new(path)?);
            let mut hash = Sha256::new();
            let mut buffer = vec![0; 64 * 1024];
            loop {
                let length = source.read(&mut buffer)?;
                if length == 0 {
                    break;
                }
                hash.update(&buffer[..length]);
                file.write_all(&buffer[..length])?;
            }
            file.flush()?;
            Ok(hash
                .finalize()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect())
        };
        copy().map_err(|source| FetchError::Download {
            url: url.to_owned(),
            source,
        })
    }

    fn open(&self, url: &str, bytes_max: u64) -> Result<impl Read + use<>, FetchError> {
        let response = self.0.get(url).call().map_err(|source| FetchError::Http {
            url: url.to_owned(),
            source: Box::new(source),
        })?;
        Ok(response
            .into_body()
            .into_with_config()
            .limit(bytes_max)
            .reader())
    }
}

fn parse_checksum(text: &str) -> Option<String> {
    let word = text.split_whitespace().next()?;
    let is_checksum = word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_checksum.then(|| word.to_ascii_lowercase())
}

/// Unpacks an archive below `parent` and gives the directory that holds `bin`.
///
/// The archives have one directory at their top; one without is accepted too.
fn unpack(archive: &Path, parent: &Path) -> Result<PathBuf, FetchError> {
    let tree = parent.join("tree");
    let work = || -> io::Result<PathBuf> {
        fs::create_dir(&tree)?;
        let packed = BufReader::new(File::open(archive)?);
        // Stopping short makes the archive look cut off, which is an error like any other.
        let unpacked = flate2::read::GzDecoder::new(packed).take(UNPACKED_BYTES_MAX);
        tar::Archive::new(unpacked).unpack(&tree)?;
        if tree.join("bin").is_dir() {
            return Ok(tree.clone());
        }
        for entry in fs::read_dir(&tree)? {
            let path = entry?.path();
            if path.join("bin").is_dir() {
                return Ok(path);
            }
        }
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            "it has no directory bin",
        ))
    };
    work().map_err(FetchError::Archive)
}

/// Puts an unpacked tree in its place.
fn install(tree: &Path, installed: &Path) -> io::Result<()> {
    fs::set_permissions(tree, Permissions::from_mode(0o755))?;
    let Err(error) = fs::rename(tree, installed) else {
        return Ok(());
    };
    // Another process was quicker, or something useless lies there: ours replaces the latter.
    if Binaries::check(&installed.join("bin")).is_ok() {
        return Ok(());
    }
    if !installed.is_dir() {
        return Err(error);
    }
    fs::remove_dir_all(installed)?;
    fs::rename(tree, installed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_file_is_read_in_each_of_its_forms() {
        let hash = "0123456789abcdef".repeat(4);
        for text in [
            hash.clone(),
            format!("{hash}\n"),
            format!("{hash}  postgresql.tar.gz\n"),
            format!("{}  postgresql.tar.gz\n", hash.to_uppercase()),
        ] {
            assert_eq!(
                parse_checksum(&text).as_deref(),
                Some(hash.as_str()),
                "{text:?}"
            );
        }
        for text in [
            "",
            "\n",
            "<html>",
            &hash[1..],
            &format!("{hash}0"),
            &"g".repeat(64),
        ] {
            assert_eq!(parse_checksum(text), None, "{text:?}");
        }
    }

    #[test]
    fn every_compiled_in_checksum_is_one() {
        for (platform, checksum) in CHECKSUMS {
            assert_eq!(
                parse_checksum(checksum).as_deref(),
                Some(*checksum),
                "{platform}"
            );
        }
    }
}
