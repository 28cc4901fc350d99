//! Fetches a prebuilt Postgres.

use std::path::PathBuf;

use crate::find::Binaries;

/// Stub.
#[derive(Debug, Clone)]
pub struct Fetch {
    cache: PathBuf,
    base: Option<String>,
}
impl Fetch {
    /// Stub.
    pub fn new(cache: PathBuf, base: Option<String>) -> Self {
        Self { cache, base }
    }
    /// Stub.
    pub fn get(&self) -> Result<Binaries, FetchError> {
        Err(FetchError::Todo(format!(
            "{:?} {:?}",
            self.cache, self.base
        )))
    }
}
/// Stub.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Stub.
    #[error("todo {0}")]
    Todo(String),
}
