//! Which targets have many waiting retries, read a bounded piece at a time.
//!
//! Counting all retries of a large backlog takes as long as the backlog is large. So the index of
//! retried jobs is walked in its order, a fixed number of entries a statement; a target with more
//! than one statement reads is known to have many and is stepped over.

use crate::{
    queue::{Queue, SHARD},
    target::TargetId,
};

/// Waiting retries from which on a target is pushed back.
pub const RETRIES_PENALISED_MIN: i64 = 5;

/// A target and its waiting jobs that have failed before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FailingTarget {
    /// The target.
    pub target_id: TargetId,
    /// Waiting jobs with at least one attempt behind them; no more than were read.
    pub jobs: i64,
}

/// A piece of the walk.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FailingPiece {
    /// The targets that were counted, in the order of their ids.
    pub targets: Vec<FailingTarget>,
    /// Where the next piece goes on; `None` once the round is complete.
    pub next: Option<TargetId>,
}

macro_rules! failing_sql {
    () => {
        "SELECT target_id, count(*) AS jobs FROM (
    SELECT target_id FROM hook.ready
    WHERE shard = $1 AND attempt > 0 AND target_id > $2
    ORDER BY target_id LIMIT $3) AS walked
GROUP BY target_id ORDER BY target_id"
    };
}

const FAILING_TARGETS: &str = concat!("-- failing_targets\n", failing_sql!());

/// The statement of the walk as a prepared one, so that `EXPLAIN EXECUTE hook_failing (…)` shows
/// what Postgres makes of it.
pub const PREPARE_FAILING: &str = concat!(
    "PREPARE hook_failing (smallint, bigint, bigint) AS ",
    failing_sql!()
);

impl Queue {
    /// Counts the retries of the targets that follow `after`, reading up to `entries_max` entries
    /// of the index.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the targets.
    pub async fn failing_targets(
        &self,
        after: Option<TargetId>,
        entries_max: i64,
    ) -> sqlx::Result<FailingPiece> {
        let rows: Vec<(i64, i64)> = sqlx::query_as(FAILING_TARGETS)
            .bind(SHARD)
            .bind(after.map_or(i64::MIN, |target_id| target_id.0))
            .bind(entries_max)
            .fetch_all(&self.pool())
            .await?;
        Ok(piece(rows, entries_max))
    }
}

/// What was read, without a last target that was perhaps not read to its end.
fn piece(rows: Vec<(i64, i64)>, entries_max: i64) -> FailingPiece {
    let read: i64 = rows.iter().map(|(_, jobs)| jobs).sum();
    let mut targets: Vec<FailingTarget> = rows
        .into_iter()
        .map(|(target_id, jobs)| FailingTarget {
            target_id: TargetId(target_id),
            jobs,
        })
        .collect();
    if read < entries_max {
        return FailingPiece {
            targets,
            next: None,
        };
    }
    if targets.len() > 1 {
        targets.pop();
    }
    FailingPiece {
        next: targets.last().map(|target| target.target_id),
        targets,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_was_cut_off_is_read_again_unless_it_fills_the_piece() {
        let whole = piece(vec![(1, 2), (2, 3)], 6);
        assert_eq!((whole.targets.len(), whole.next), (2, None));
        let cut = piece(vec![(1, 2), (2, 3)], 5);
        assert_eq!((cut.targets.len(), cut.next), (1, Some(TargetId(1))));
        let giant = piece(vec![(2, 5)], 5);
        assert_eq!((giant.targets[0].jobs, giant.next), (5, Some(TargetId(2))));
        assert_eq!(piece(Vec::new(), 5).next, None);
    }
}
