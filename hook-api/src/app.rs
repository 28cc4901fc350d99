//! What the handlers share: the way in, the way to the queue, and what is known by heart.

use std::{sync::Arc, time::Duration};

use hook_common::{
    db::{Db, Fault},
    envelope,
    gate::Gate,
    headers::is_secret,
    job::NewJob,
    lifecycle::within,
    logging::Repeats,
    queue::{Enqueue, HEADERS_CONTEXT, Queue},
    seal::Sealer,
};
use tokio::time::Instant;
use tracing::error;

use crate::{
    admission::Admission,
    depth::Depth,
    group_commit::Enqueuer,
    known_secrets::KnownSecrets,
    penalties::Penalties,
    problem::{Changes, Refusal},
    wake::Waker,
};

/// A statement of a handler is answered within this, or the request is refused.
const ASK_LIMIT: Duration = Duration::from_millis(1700);

/// What every handler is given.
#[derive(Debug)]
pub(crate) struct App {
    /// Who gets in.
    pub(crate) admission: Admission,
    /// Stores jobs.
    pub(crate) enqueuer: Enqueuer,
    /// Tells workers of jobs that were put back and of targets that were changed.
    pub(crate) waker: Waker,
    /// Every other statement.
    pub(crate) queue: Queue,
    /// Judges errors.
    pub(crate) db: Db,
    /// Statements that Postgres refused for good.
    pub(crate) failures: Repeats,
    /// Statements of handlers; fewer than there are connections, so that enqueuing has some left.
    pub(crate) statements: Gate,
    /// Which targets are penalised.
    pub(crate) penalties: Penalties,
    /// How full the queue is.
    pub(crate) depth: Arc<Depth>,
    /// Which signing secrets there are.
    pub(crate) known_secrets: KnownSecrets,
    /// What a job may be.
    pub(crate) envelope: envelope::Limits,
    /// Seals secrets; `None` without a key.
    pub(crate) sealer: Option<Sealer>,
    /// Attempts of a job whose producer gave no number.
    pub(crate) max_attempts: i16,
    /// A penalty that no worker has confirmed for this long does not count.
    pub(crate) penalty_stale_after: Duration,
}

impl App {
    /// Asks Postgres something on behalf of a request.
    ///
    /// # Cancel safety
    /// As safe as the statement: one of its own transaction may or may not take effect.
    pub(crate) async fn ask<T>(
        &self,
        changes: Changes,
        statement: impl Future<Output = sqlx::Result<T>>,
    ) -> Result<T, Refusal> {
        let deadline = Instant::now() + ASK_LIMIT;
        let Some(_permit) = within(ASK_LIMIT, self.statements.enter()).await else {
            return Err(Refusal::overloaded());
        };
        if changes == Changes::Something {
            // A failure to connect is told apart from a statement that was lost.
            let connected = within(ASK_LIMIT, self.db.acquire()).await;
            let connected = connected.unwrap_or(Err(Fault::Unreachable));
            drop(connected.map_err(|fault| Refusal::of_fault(fault, Changes::Nothing))?);
        }
        let time_left = deadline.saturating_duration_since(Instant::now());
        match within(time_left, statement).await {
            Some(Ok(answer)) => {
                self.db.seen();
                Ok(answer)
            }
            Some(Err(error)) => {
                let fault = self.db.observe(&error);
                if !fault.may_pass_later()
                    && let Some(failures) = self.failures.due()
                {
                    // The message may quote a value; the code never does.
                    let sqlstate = error.as_database_error().and_then(|error| error.code());
                    let sqlstate = sqlstate.as_deref().unwrap_or("none");
                    error!(
                        fault = fault.as_str(),
                        sqlstate, failures, "a statement of a request failed"
                    );
                }
                Err(Refusal::of_fault(fault, changes))
            }
            None => Err(match changes {
                Changes::Nothing => Refusal::database_unavailable(),
                Changes::Something => Refusal::outcome_unknown(),
            }),
        }
    }

    /// Decides where new jobs start, and seals what must not be stored in clear.
    pub(crate) fn prepare(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueue>, Refusal> {
        jobs.into_iter().map(|job| self.prepare_one(job)).collect()
    }

    fn prepare_one(&self, mut job: NewJob) -> Result<Enqueue, Refusal> {
        let tier = self.penalties.tier(&job.target);
        let headers_sealed = match &self.sealer {
            Some(sealer) => seal_headers(sealer, &mut job)?,
            None => None,
        };
        Ok(Enqueue {
            job,
            tier,
            headers_sealed,
        })
    }
}

/// Takes the secret headers out of a job and seals them; `None` when it has none.
fn seal_headers(sealer: &Sealer, job: &mut NewJob) -> Result<Option<Vec<u8>>, Refusal> {
    if !job.headers.iter().any(|(name, _)| is_secret(name)) {
        return Ok(None);
    }
    let headers = std::mem::take(&mut job.headers);
    let (secret, plain): (Vec<_>, Vec<_>) =
        headers.into_iter().partition(|(name, _)| is_secret(name));
    job.headers = plain;
    let object: serde_json::Map<String, serde_json::Value> = secret
        .into_iter()
        .map(|(name, value)| (name, value.into()))
        .collect();
    let text = serde_json::Value::Object(object).to_string();
    match sealer.seal(text.as_bytes(), HEADERS_CONTEXT) {
        Ok(sealed) => Ok(Some(sealed)),
        Err(error) => {
            error!(%error, "headers cannot be sealed");
            Err(Refusal::internal())
        }
    }
}
