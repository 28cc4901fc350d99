//! This worker's part of a limit that holds for all workers together.
//!
//! Every worker knows who lives and works its own part out; there is no shared counter. Parts are
//! equal; what cannot be divided goes to the workers that come first for this target by a hash, so
//! that small limits of many targets spread over the workers.

use std::time::Duration;

use hook_common::{
    queue::{LiveWorker, Serves},
    target::TargetId,
};

/// A worker that has just started keeps away from limited targets for this long, unless it is
/// alone: the others need a moment to hear of it and to give up its part.
const NEWCOMER_FOR: Duration = Duration::from_millis(2500);

/// The workers that live.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Crew {
    me: LiveWorker,
    all: Vec<LiveWorker>,
    newcomer: bool,
}

impl Crew {
    /// `all` are the workers that live; `age` is how long ago this one was announced first.
    pub(crate) fn new(me: LiveWorker, all: Vec<LiveWorker>, age: Duration) -> Self {
        let newcomer = all.len() > 1 && age < NEWCOMER_FOR;
        Self { me, all, newcomer }
    }

    /// This worker's part of `total` slots.
    ///
    /// A queue that has workers of its own is never left without a slot, even if the limit is
    /// smaller than the number of such groups.
    pub(crate) fn slots_of(&self, target_id: TargetId, total: usize) -> usize {
        if self.newcomer {
            return 0;
        }
        let workers = self.all.len().max(1);
        let mine = rank(self.me, target_id);
        let ahead = |worker: &&LiveWorker| rank(**worker, target_id) < mine;
        let place = self.all.iter().filter(ahead).count();
        let part = total / workers + usize::from(place < total % workers);
        let stands_in = self.all.iter().filter(ahead);
        if part == 0 && !any_covers(stands_in, self.me.serves) {
            return 1;
        }
        part
    }

    /// This worker's part of a rate.
    pub(crate) fn rate_of(&self, total: f64) -> f64 {
        let workers = u32::try_from(self.all.len().max(1)).unwrap_or(u32::MAX);
        total / f64::from(workers)
    }
}

fn any_covers<'w>(mut workers: impl Iterator<Item = &'w LiveWorker>, serves: Serves) -> bool {
    workers.any(|worker| worker.serves.covers(serves))
}

/// The order of the workers for a target: the same in each of them (splitmix64's finaliser).
fn rank(worker: LiveWorker, target_id: TargetId) -> (u64, i64) {
    let mut mixed = (worker.worker_id ^ target_id.0).cast_unsigned();
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31), worker.worker_id)
}
