//! Wake-ups: Postgres tells workers which targets have new jobs, as soon as those are committed.
//!
//! A payload is a comma-separated list of target ids, `d` before those whose jobs went to the
//! degraded queue. Notifications only make the queue quick; whatever is lost here, where nobody
//! listens or a pooler stands between, the sweep finds.
//!
//! The connection that listens is also the one whose end shows that a worker is dead
//! (`queue/orphans.rs`).

use sqlx::postgres::PgListener;
use tracing::warn;

use crate::{
    job::Tier,
    queue::{LiveWorker, orphans},
    target::TargetId,
};

/// The channel that every enqueue notifies; `hook.enqueue` names it too.
const CHANNEL: &str = "hook_ready";

/// A connection of its own that hears of new jobs.
#[derive(Debug)]
pub struct WakeListener {
    listener: PgListener,
    me: LiveWorker,
    name: String,
}

impl WakeListener {
    /// Connects, listens, and notes the session as this worker's; `url` must not lead through a
    /// transaction pooler.
    ///
    /// # Errors
    /// Postgres cannot be reached or refuses.
    pub async fn connect(url: &str, me: LiveWorker, name: &str) -> sqlx::Result<Self> {
        let mut listener = PgListener::connect(url).await?;
        listener.ignore_pool_close_event(true);
        listener.listen(CHANNEL).await?;
        let mut connected = Self {
            listener,
            me,
            name: name.to_owned(),
        };
        connected.note_session().await;
        Ok(connected)
    }

    /// Waits for the next notification and returns the heads that it names; none if the
    /// connection was lost and made again, so that notifications may be missing.
    ///
    /// # Errors
    /// The connection is lost and cannot be made again.
    ///
    /// # Cancel safety
    /// Safe: what a dropped call did not return, the next one does.
    pub async fn next(&mut self) -> sqlx::Result<Vec<(Tier, TargetId)>> {
        let Some(heard) = self.listener.try_recv().await? else {
            self.note_session().await;
            return Ok(Vec::new());
        };
        Ok(heads_of(heard.payload()).collect())
    }

    /// Listening goes on without the note: if this worker dies, its jobs then come back when their
    /// leases are over.
    async fn note_session(&mut self) {
        let noted = orphans::note_session(&mut self.listener, self.me, &self.name).await;
        if let Err(error) = noted {
            warn!(error = %error, "the session of this worker could not be noted");
        }
    }
}

/// The heads that a payload names; what cannot be read is left to the sweep.
fn heads_of(payload: &str) -> impl Iterator<Item = (Tier, TargetId)> {
    payload.split(',').filter_map(|word| {
        let (tier, id) = match word.strip_prefix('d') {
            Some(id) => (Tier::DegradedFirst, id),
            None => (Tier::Primary, word),
        };
        Some((tier, TargetId(id.parse().ok()?)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_names_heads_of_both_queues_and_nonsense_is_skipped() {
        let heads: Vec<_> = heads_of("12,d-7,*,,x1").collect();
        assert_eq!(
            heads,
            [
                (Tier::Primary, TargetId(12)),
                (Tier::DegradedFirst, TargetId(-7))
            ]
        );
    }
}
