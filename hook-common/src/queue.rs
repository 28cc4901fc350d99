//! The queue: every statement that touches a job.
//!
//! One job's way: [`Queue::enqueue`] → `ready` → [`Queue::dequeue`] → `lease` →
//! [`Queue::finish`] → `finished`, or `ready` again. Each step is one statement that deletes the
//! row of the state it leaves and inserts the row of the next, so a job is in exactly one place.
//! Whoever comes too late finds no row to delete, changes nothing and is told so.
//!
//! Deliberately absent: transactions that stay open between steps, session state, sequences,
//! foreign keys, and any clock but Postgres's.

use std::time::Duration;

use sqlx::PgPool;

use crate::db::{Db, Fault};

mod audit;
mod dequeue;
mod enqueue;
mod failing;
mod finish;
mod gauges;
mod history;
mod jobs;
mod leader;
mod listing;
mod missing_targets;
mod notify;
mod orphans;
mod overview;
mod purge;
mod reap;
mod rehearsal;
mod replay;
mod sample;
mod secrets;
mod stats;
mod sweep;
mod tally;
mod targets;
mod targets_admin;
mod targets_view;
mod wakeups;
mod workers;

pub use audit::{AuditEntry, Change};
pub use dequeue::{Dequeued, Head, Lease, LeaseTerm, LeasedJob, PREPARE_DEQUEUE};
pub use enqueue::{Enqueue, Enqueued, KeyUse};
pub use failing::{FailingPiece, FailingTarget, PREPARE_FAILING, RETRIES_PENALISED_MIN};
pub use finish::{AttemptRecord, Finish, Finished, Next, PREPARE_FINISH};
pub use gauges::{
    BucketUse, DeadRows, FinishedJobs, Sample, TableSize, TargetGauge, Vitals, WaitingJobs,
};
pub use history::TargetHour;
pub use jobs::{AttemptView, JobView};
pub use listing::{JobFilter, JobPage};
pub use missing_targets::TargetsAdded;
pub use notify::Wake;
pub use orphans::DeadWorker;
pub use overview::{DueGroup, FAILED_SAMPLED_MAX, FailureGroup, TargetCounts};
pub use purge::{ClosedBucket, FinishedMoved, Patience, Retention, Truncated};
pub use reap::{ReapLeases, Reaped};
pub use replay::{NewReplay, REPLAYS_UNDER_WAY_MAX, Replay, ReplayStart, ReplayState, ReplayWork};
pub use secrets::{HEADERS_CONTEXT, SecretRow, secret_context};
pub use stats::QueueStats;
pub use sweep::SweptHead;
pub use tally::{AttemptCounts, AttemptTotals};
pub use targets::{CircuitNews, Finding, NextProbe, SpecialTarget};
pub use targets_admin::{TargetChange, TargetOrder};
pub use targets_view::{PenaltyReason, TargetView};
pub use wakeups::WakeListener;
pub use workers::{LiveWorker, Serves};

/// What a statement returns; `db::Fault` says what follows from its error.
pub type Result<T> = sqlx::Result<T>;

/// The shard that a statement works on; a single server has only this one.
pub const SHARD: i16 = 0;

/// A finding about a target counts until so many refreshes of the penalties have passed without a
/// worker confirming it.
pub const STALE_REFRESHES: u32 = 4;

/// The queue in one database.
///
/// Cheap to clone: all clones share one pool.
#[derive(Clone, Debug)]
pub struct Queue {
    db: Db,
}

impl Queue {
    /// Works on the database behind `db`, which must have the schema.
    #[must_use]
    pub fn new(db: Db) -> Self {
        Self { db }
    }

    /// Judges the error of a statement, counts it, and has broken connections replaced.
    #[must_use]
    pub fn judge(&self, error: &sqlx::Error) -> Fault {
        self.db.observe(error)
    }

    /// Waits for one of these statements, as [`Db::answer`] does.
    ///
    /// # Cancel safety
    /// As safe as the statement.
    pub async fn answer<T>(
        &self,
        limit: Duration,
        statement: impl Future<Output = T>,
    ) -> Option<T> {
        self.db.answer(limit, statement).await
    }

    fn pool(&self) -> PgPool {
        self.db.pool()
    }
}
