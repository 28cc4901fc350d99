//! The directory that keeps everything between two runs.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Key that seals secrets in the database, made once.
const SECRET_KEY: &str = "secret-key";

/// The data directory.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    secret_key: String,
}

impl Directory {
    /// Opens the directory, and makes it if it is not there.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let place = || format!("preparing the data directory {}", path.display());
        fs::create_dir_all(path).with_context(place)?;
        let path = path.canonicalize().with_context(place)?;
        // Nobody wants it in a repository.
        write_once(&path.join(".gitignore"), "*\n").with_context(place)?;
        let key = STANDARD.encode(rand::random::<[u8; 32]>());
        let file = path.join(SECRET_KEY);
        write_once(&file, &key).with_context(place)?;
        let secret_key = fs::read_to_string(&file).with_context(place)?;
        Ok(Self { path, secret_key })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where Postgres lives.
    pub(super) fn postgres(&self) -> PathBuf {
        self.path.join("postgres")
    }

    pub(super) fn secret_key(&self) -> &str {
        self.secret_key.trim()
    }
}

/// Writes a file that nobody else can read, unless it is there already.
fn write_once(file: &Path, text: &str) -> io::Result<()> {
    let opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file);
    match opened {
        Ok(mut file) => file.write_all(text.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}
