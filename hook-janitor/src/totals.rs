//! Totals: counters per target that stay right while targets come into view and leave it.
//!
//! A target in view shows its total from the database. `other` shows the rest, and must neither
//! fall when a target comes into view (a fall reads as a restart, and everything as new) nor jump
//! when one leaves it. So `other` keeps what it had counted of a target that left it, and takes
//! over from a target that joins it only what comes from then on: rates and increases are right,
//! and the sum over all series is the total as long as nothing has changed sides.

use std::collections::HashMap;

use hook_common::{
    queue::{AttemptCounts, AttemptTotals},
    target::TargetId,
};

/// What was shown last.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// `None` before the first time.
    shown: Option<HashMap<TargetId, AttemptCounts>>,
    /// What `other` shows beyond the totals of its targets.
    carried: AttemptCounts,
}

/// What is to be shown.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Shown {
    pub(crate) targets: HashMap<TargetId, AttemptCounts>,
    pub(crate) other: AttemptCounts,
}

impl Totals {
    /// Begins anew, as after a restart.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Shows the targets of `in_view`; those without attempts show zeros.
    pub(crate) fn show(&mut self, in_view: &[TargetId], totals: &AttemptTotals) -> Shown {
        let known: HashMap<TargetId, AttemptCounts> = totals.targets.iter().copied().collect();
        let targets: HashMap<TargetId, AttemptCounts> = in_view
            .iter()
            .map(|id| (*id, known.get(id).copied().unwrap_or_default()))
            .collect();
        if let Some(before) = self.shown.take() {
            for (id, counts) in &targets {
                if !before.contains_key(id) {
                    self.carried += *counts;
                }
            }
            for (id, counts) in &before {
                if !targets.contains_key(id) {
                    self.carried -= *counts;
                }
            }
        }
        let mut other = totals.all;
        other += self.carried;
        for counts in targets.values() {
            other -= *counts;
        }
        self.shown = Some(targets.clone());
        Shown { targets, other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(delivered: i64) -> AttemptCounts {
        AttemptCounts {
            delivered,
            ..AttemptCounts::default()
        }
    }

    fn show(totals: &mut Totals, in_view: &[i64], each: &[i64]) -> (Vec<i64>, i64) {
        let in_view: Vec<TargetId> = in_view.iter().copied().map(TargetId).collect();
        let all = each.iter().sum();
        let targets = each.iter().zip(0..);
        let read = AttemptTotals {
            all: counts(all),
            targets: targets
                .map(|(number, id)| (TargetId(id), counts(*number)))
                .collect(),
        };
        let shown = totals.show(&in_view, &read);
        let own = in_view.iter().map(|id| shown.targets[id].delivered);
        (own.collect(), shown.other.delivered)
    }

    #[test]
    fn the_sum_over_all_series_is_the_total() {
        let mut totals = Totals::default();
        assert_eq!(
            show(&mut totals, &[0, 2], &[10, 20, 30]),
            (vec![10, 30], 20)
        );
        assert_eq!(
            show(&mut totals, &[0, 2], &[11, 25, 30]),
            (vec![11, 30], 25)
        );
    }

    #[test]
    fn a_target_that_comes_into_view_or_leaves_it_makes_other_neither_fall_nor_jump() {
        let mut totals = Totals::default();
        assert_eq!(show(&mut totals, &[0], &[1000, 20, 5]), (vec![1000], 25));
        // Target 1 comes into view after 4 more attempts, which `other` still counts.
        assert_eq!(
            show(&mut totals, &[0, 1], &[1000, 24, 5]),
            (vec![1000, 24], 29)
        );
        assert_eq!(
            show(&mut totals, &[0, 1], &[1001, 26, 6]),
            (vec![1001, 26], 30)
        );
        // Target 0 leaves it: of its attempts only the 3 since the last time go to `other`.
        assert_eq!(show(&mut totals, &[1], &[1004, 26, 6]), (vec![26], 33));
        assert_eq!(show(&mut totals, &[1], &[1005, 27, 6]), (vec![27], 34));
        totals.forget();
        assert_eq!(show(&mut totals, &[1], &[1005, 27, 6]), (vec![27], 1011));
    }
}
