//! What became of one job of a group, and how that follows from what Postgres says.

use std::collections::HashMap;

use hook_common::{
    db::Fault,
    job::{JobId, Tier},
    queue::{Enqueue, Enqueued, KeyUse},
    target::Target,
};

use super::Placed;

/// What became of one job.
#[derive(Clone, Debug)]
pub(super) enum Fate {
    /// It is stored.
    Stored(JobId),
    /// An earlier request of the same content stored it.
    Known(Placed),
    /// Its key was used for another request; it is not stored.
    KeyReused,
    /// Its statement failed.
    Failed(Fault),
}

/// The fate of a job by the answer of its statement; `None` when its key is taken.
pub(super) fn stored(enqueued: Enqueued) -> Option<Fate> {
    match enqueued {
        Enqueued::Stored(id) => Some(Fate::Stored(id)),
        Enqueued::KeyTaken => None,
    }
}

/// The fate of a job by the uses of its key; `None` when the key is not in use.
pub(super) fn known(job: &Enqueue, uses: &HashMap<String, KeyUse>) -> Option<Fate> {
    let idempotency = job.job.idempotency.as_ref()?;
    let used = uses.get(&idempotency.key)?;
    if used.request_sha256 != idempotency.request_sha256 {
        return Some(Fate::KeyReused);
    }
    let tier = Tier::from_code(used.tier).unwrap_or(Tier::Primary);
    let target = Target::new(used.target.clone()).unwrap_or_else(|_| job.job.target.clone());
    let mut placed = Placed::new(JobId(used.job_id), tier, target);
    placed.duplicate = true;
    Some(Fate::Known(placed))
}

/// The fate of a job that repeats one in the same statement.
pub(super) fn repeated(fate: &Fate, first: &Enqueue) -> Fate {
    match fate {
        Fate::Stored(id) => {
            let mut placed = Placed::new(*id, first.tier, first.job.target.clone());
            placed.duplicate = true;
            Fate::Known(placed)
        }
        Fate::Known(_) | Fate::KeyReused | Fate::Failed(_) => fate.clone(),
    }
}
