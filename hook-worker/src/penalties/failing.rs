//! The targets with many waiting retries, as far as the walk over them has come.
//!
//! Each piece of the walk replaces what was known about its range of ids, so the list is never
//! empty in between, and a target that recovered leaves it when the walk comes by again.

use std::collections::BTreeMap;

use hook_common::{
    queue::{FailingPiece, RETRIES_PENALISED_MIN},
    target::TargetId,
};

/// Targets remembered at most; those with the most retries stay.
const REMEMBERED_MAX: usize = 10_000;

/// What the walk has found.
#[derive(Debug, Default)]
pub(super) struct Failing {
    /// Where the next piece begins; `None` is the start of a round.
    after: Option<TargetId>,
    jobs: BTreeMap<i64, i64>,
}

impl Failing {
    /// Where the next piece begins.
    pub(super) fn after(&self) -> Option<TargetId> {
        self.after
    }

    /// Takes over a piece that was read from [`Self::after`] on.
    pub(super) fn take_over(&mut self, piece: &FailingPiece) {
        let from = self
            .after
            .map_or(i64::MIN, |after| after.0.saturating_add(1));
        let to = piece.next.map_or(i64::MAX, |next| next.0);
        let stale: Vec<i64> = self.jobs.range(from..=to).map(|(id, _)| *id).collect();
        for id in stale {
            self.jobs.remove(&id);
        }
        let many = piece
            .targets
            .iter()
            .filter(|target| target.jobs >= RETRIES_PENALISED_MIN);
        self.jobs
            .extend(many.map(|target| (target.target_id.0, target.jobs)));
        if self.jobs.len() > REMEMBERED_MAX {
            let kept = self.ranked(REMEMBERED_MAX);
            self.jobs = kept.into_iter().collect();
        }
        self.after = piece.next;
    }

    /// The targets with the most retries, up to `limit`.
    pub(super) fn worst(&self, limit: usize) -> impl Iterator<Item = TargetId> {
        self.ranked(limit).into_iter().map(|(id, _)| TargetId(id))
    }

    fn ranked(&self, limit: usize) -> Vec<(i64, i64)> {
        let mut ranked: Vec<(i64, i64)> = self.jobs.iter().map(|(id, jobs)| (*id, *jobs)).collect();
        ranked.sort_unstable_by_key(|(id, jobs)| (std::cmp::Reverse(*jobs), *id));
        ranked.truncate(limit);
        ranked
    }
}

#[cfg(test)]
mod tests {
    use hook_common::queue::FailingTarget;

    use super::*;

    fn piece(targets: &[(i64, i64)], next: Option<i64>) -> FailingPiece {
        let target = |(id, jobs): &(i64, i64)| FailingTarget {
            target_id: TargetId(*id),
            jobs: *jobs,
        };
        FailingPiece {
            targets: targets.iter().map(target).collect(),
            next: next.map(TargetId),
        }
    }

    fn worst(failing: &Failing, limit: usize) -> Vec<i64> {
        failing.worst(limit).map(|target_id| target_id.0).collect()
    }

    #[test]
    fn a_round_in_pieces_finds_the_worst_and_forgets_who_recovered() {
        let mut failing = Failing::default();
        failing.take_over(&piece(&[(-5, 100), (1, 4)], Some(1)));
        failing.take_over(&piece(&[(7, 5000)], Some(7)));
        failing.take_over(&piece(&[(8, 6), (9, 50)], None));
        assert_eq!(worst(&failing, 3), [7, -5, 9]);
        // The next round: the first has recovered, the others are not looked at yet.
        failing.take_over(&piece(&[(1, 7)], Some(6)));
        assert_eq!(worst(&failing, 9), [7, 9, 1, 8]);
        assert_eq!(failing.after(), Some(TargetId(6)));
        failing.take_over(&piece(&[], None));
        assert_eq!((worst(&failing, 9), failing.after()), (vec![1], None));
    }
}
