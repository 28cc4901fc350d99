//! The signer: finds the secrets of a job, opens what is sealed, and makes the signature header.
//!
//! Secrets are kept opened for [`KEPT`], so that a replaced or deleted one is followed within
//! that time and Postgres is not asked for each attempt. Of several secrets those that are there
//! sign; a job none of whose secrets can be had is not sent, and tried again later.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hook_common::{
    job::ErrorKind,
    queue::{HEADERS_CONTEXT, Queue, secret_context},
    seal::Sealer,
    secret_value::SecretValue,
};
use tokio::time::Instant;
use tracing::warn;

/// How long a secret is used without asking for it again.
const KEPT: Duration = Duration::from_secs(5);

/// Secrets kept at one time; past this, all are forgotten.
const KEPT_MAX: usize = 10_000;

/// Signs attempts.
pub(crate) struct Signer {
    queue: Queue,
    sealer: Option<Sealer>,
    kept: Mutex<HashMap<String, Kept>>,
}

struct Kept {
    secret: Option<Arc<SecretValue>>,
    since: Instant,
}

impl Signer {
    /// Without a `sealer` nothing can be opened, so nothing can be signed.
    pub(crate) fn new(queue: Queue, sealer: Option<Sealer>) -> Self {
        Self {
            queue,
            sealer,
            kept: Mutex::default(),
        }
    }

    /// The header values that were sealed at enqueue.
    pub(crate) fn open_headers(&self, sealed: &[u8]) -> Result<Vec<(String, String)>, ErrorKind> {
        let sealer = self.sealer.as_ref().ok_or(ErrorKind::Internal)?;
        let opened = sealer.open(sealed, HEADERS_CONTEXT).map_err(|error| {
            warn!(error = %error, "sealed headers cannot be opened; is HOOK_SECRET_KEYS_OLD complete?");
            ErrorKind::Internal
        })?;
        let headers: HashMap<String, String> =
            serde_json::from_slice(&opened).map_err(|_| ErrorKind::InvalidRequest)?;
        Ok(headers.into_iter().collect())
    }

    /// The value of `webhook-signature`: one signature per secret; `None` for an unsigned job.
    pub(crate) async fn sign(
        &self,
        names: &[String],
        id: &str,
        timestamp: i64,
        body: &[u8],
    ) -> Result<Option<String>, ErrorKind> {
        if names.is_empty() {
            return Ok(None);
        }
        self.fetch_missing(names).await?;
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let signatures: Vec<String> = names
            .iter()
            .filter_map(|name| kept.get(name)?.secret.as_ref())
            .map(|secret| secret.sign(id, timestamp, body))
            .collect();
        if signatures.is_empty() {
            warn!(
                job.id = id,
                "no signing secret of this job can be had; it is tried again later"
            );
            return Err(ErrorKind::Internal);
        }
        Ok(Some(signatures.join(" ")))
    }

    /// Reads the secrets that are not kept, or have been kept for too long.
    async fn fetch_missing(&self, names: &[String]) -> Result<(), ErrorKind> {
        let missing: Vec<String> = {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            let stale = |name: &&String| {
                kept.get(*name)
                    .is_none_or(|kept| kept.since.elapsed() >= KEPT)
            };
            names.iter().filter(stale).cloned().collect()
        };
        if missing.is_empty() {
            return Ok(());
        }
        let rows = self.queue.secrets(&missing).await.map_err(|error| {
            warn!(error = %error, "reading signing secrets failed");
            ErrorKind::Internal
        })?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() > KEPT_MAX {
            kept.clear();
        }
        for name in missing {
            let secret = rows
                .iter()
                .find(|row| row.name == name)
                .and_then(|row| self.open(&name, &row.sealed));
            kept.insert(
                name,
                Kept {
                    secret,
                    since: Instant::now(),
                },
            );
        }
        Ok(())
    }

    fn open(&self, name: &str, sealed: &[u8]) -> Option<Arc<SecretValue>> {
        let opened = self.sealer.as_ref()?.open(sealed, &secret_context(name));
        let text = opened
            .inspect_err(|error| warn!(secret.name = name, error = %error, "a signing secret cannot be opened"))
            .ok()?;
        SecretValue::parse(std::str::from_utf8(&text).ok()?)
            .ok()
            .map(Arc::new)
    }
}
