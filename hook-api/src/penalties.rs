//! The snapshot of penalised targets, by which new jobs are put into one queue or the other.
//!
//! It may be stale: a job in the wrong queue is still delivered, only in another order. A refresh
//! that fails keeps the old snapshot, and its age shows in a metric.

use std::{collections::HashSet, sync::Arc, time::Duration};

use hook_common::{
    job::Tier,
    metrics::api::PENALTY_SNAPSHOT_AGE_SECONDS,
    queue::Queue,
    target::{Target, TargetId},
};
use tokio::{sync::watch, time::Instant};

/// The targets whose new jobs go into the degraded queue; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Penalties {
    snapshot: watch::Receiver<Arc<Snapshot>>,
}

/// How much the snapshot holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Targets at most, the worst ones.
    pub(crate) targets_max: usize,
    /// A penalty that no worker has confirmed for this long does not count.
    pub(crate) stale_after: Duration,
}

/// Refreshes the snapshot.
#[derive(Clone, Debug)]
pub(crate) struct Refresh {
    queue: Queue,
    limits: Limits,
    publish: Arc<watch::Sender<Arc<Snapshot>>>,
}

#[derive(Debug)]
struct Snapshot {
    penalised: HashSet<TargetId>,
    taken: Instant,
}

impl Penalties {
    /// Knows of nothing until the first refresh.
    pub(crate) fn new(queue: Queue, limits: Limits) -> (Self, Refresh) {
        let (publish, snapshot) = watch::channel(Arc::new(Snapshot {
            penalised: HashSet::new(),
            taken: Instant::now(),
        }));
        let refresh = Refresh {
            queue,
            limits,
            publish: Arc::new(publish),
        };
        (Self { snapshot }, refresh)
    }

    /// The tier that a new job of this target starts in.
    pub(crate) fn tier(&self, target: &Target) -> Tier {
        let snapshot = self.snapshot.borrow();
        // Most of the time nobody is penalised, and an id costs a hash.
        if !snapshot.penalised.is_empty() && snapshot.penalised.contains(&target.id()) {
            Tier::DegradedFirst
        } else {
            Tier::Primary
        }
    }

    /// Exports the snapshot's age.
    pub(crate) fn export_age(&self) {
        let age = self.snapshot.borrow().taken.elapsed();
        PENALTY_SNAPSHOT_AGE_SECONDS
            .gauge(&[])
            .set(age.as_secs_f64());
    }
}

impl Refresh {
    /// Reads the penalised targets once.
    ///
    /// # Errors
    /// Postgres could not be asked; the old snapshot stays.
    pub(crate) async fn refresh_once(&self) -> sqlx::Result<()> {
        let Limits {
            targets_max,
            stale_after,
        } = self.limits;
        let penalised = self
            .queue
            .penalised_targets(stale_after, targets_max)
            .await?;
        self.publish.send_replace(Arc::new(Snapshot {
            penalised: penalised.into_iter().collect(),
            taken: Instant::now(),
        }));
        Ok(())
    }
}
