//! Which signing secrets are known to be stored, so that a signed job costs no look-up of its own.
//!
//! Only what was found is remembered, and not for long: a secret that has just been stored is
//! found at once, and one that was deleted elsewhere is refused a few seconds later. A job that
//! slips through in between ends with `invalid_request` when it is attempted.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// How long a name is believed to be stored.
const BELIEVED_FOR: Duration = Duration::from_secs(5);
/// Names that are remembered.
const NAMES_MAX: usize = 10_000;

/// Names of secrets and when each was last seen.
#[derive(Debug, Default)]
pub(crate) struct KnownSecrets(Mutex<HashMap<String, Instant>>);

impl KnownSecrets {
    /// The names among these that have to be looked up, each once.
    pub(crate) fn unseen<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<String> {
        let known = self.lock();
        let mut unseen: Vec<String> = names
            .filter(|name| {
                known
                    .get(*name)
                    .is_none_or(|seen| seen.elapsed() >= BELIEVED_FOR)
            })
            .map(str::to_owned)
            .collect();
        unseen.sort_unstable();
        unseen.dedup();
        unseen
    }

    /// Remembers names that were found.
    pub(crate) fn seen(&self, names: impl IntoIterator<Item = String>) {
        let mut known = self.lock();
        for name in names {
            if known.len() >= NAMES_MAX {
                known.clear();
            }
            known.insert(name, Instant::now());
        }
    }

    /// Forgets a name that was deleted.
    pub(crate) fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
