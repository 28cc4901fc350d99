//! Replay: puts many finished jobs back, oldest first, in bounded batches.
//!
//! The rate is kept by the rows themselves: each job of a batch becomes due a little later than
//! the one before, so nothing has to go on running for the rest of a replay to go out slowly.

use std::time::Duration;

use crate::{
    job::{ErrorKind, Status},
    queue::{JobFilter, Queue, SHARD, enqueue::millis, listing::tier_codes},
    target::TargetId,
};

/// What the picks of a replay have in common.
macro_rules! matching {
    () => {
        "AND job_id >= $4 AND job_id < $5 AND tier = ANY ($6) AND ($10::smallint IS NULL OR error_kind = $10)
        AND COALESCE((SELECT expires_at > now() FROM hook.job AS j
            WHERE j.shard = $1 AND j.job_id = f.job_id AND j.bucket = f.bucket LIMIT 1), true)
     ORDER BY job_id LIMIT $7"
    };
}

// As a retry of one job (jobs.rs), for many; they start over in the degraded queue. A job that
// somebody else puts back meanwhile is no longer there to be deleted, and left out; so is one whose
// time to live is over. That is looked up for one job at a time: as a join it might read all jobs.
const REPLAY: &str = concat!("-- replay
WITH pick AS MATERIALIZED (
    (SELECT job_id, bucket FROM hook.finished AS f
     WHERE shard = $1 AND status = $2::smallint AND status <> 2 AND $3::bigint IS NULL
        ", matching!(), ")
    UNION ALL
    (SELECT job_id, bucket FROM hook.finished AS f
     WHERE shard = $1 AND status = $2::smallint AND status <> 2 AND target_id = $3
        ", matching!(), ")
    UNION ALL
    (SELECT job_id, bucket FROM hook.finished AS f
     WHERE shard = $1 AND $2 = 2 AND status = 2 AND ($3::bigint IS NULL OR target_id = $3)
        ", matching!(), ")
), gone AS (
    DELETE FROM hook.finished AS f USING pick AS p
    WHERE f.shard = $1 AND f.job_id = p.job_id AND f.bucket = p.bucket
    RETURNING f.*
), kept_job AS (
    UPDATE hook.job AS j SET bucket = -1 FROM gone AS g
    WHERE j.shard = $1 AND j.job_id = g.job_id AND j.bucket = g.bucket
    RETURNING j.job_id, j.expires_at, j.timeout_ms
), kept_attempts AS (
    UPDATE hook.attempt AS a SET bucket = -1 FROM gone AS g
    WHERE a.shard = $1 AND a.job_id = g.job_id AND a.bucket = g.bucket
), log AS (
    INSERT INTO hook.attempt (shard, bucket, job_id, target_id, fence, attempt, started_at, duration_ms,
        outcome, error_kind, response_status, response_excerpt, response_truncated, worker)
    SELECT $1, -1, job_id, target_id, fence, attempt, started_at, duration_ms, outcome, error_kind,
        response_status, response_excerpt, response_truncated, worker
    FROM gone WHERE outcome IS NOT NULL
)
INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, fence, attempt, bucket, expires_at, timeout_ms)
SELECT $1, 1, g.target_id,
    now() + $8::bigint * interval '1 millisecond'
        + (row_number() OVER (ORDER BY g.job_id) - 1) * $9::bigint * interval '1 microsecond',
    g.job_id, g.fence, 0, -1, k.expires_at, k.timeout_ms
FROM gone AS g JOIN kept_job AS k ON k.job_id = g.job_id
RETURNING target_id");

/// One batch of a replay.
#[derive(Clone, Copy, Debug)]
pub struct ReplayBatch {
    /// Jobs at most.
    pub limit: usize,
    /// The first job is due so much later.
    pub after: Duration,
    /// Each further job is due so much after the one before.
    pub spacing: Duration,
}

impl Queue {
    /// Puts finished jobs of `status` that match `filter`, and ended for `error_kind` if it is
    /// given, back into the degraded queue and returns the target of each. Attempts are counted from 0 again, the history stays.
    ///
    /// # Errors
    /// Whether the batch was put back is not known; jobs that were are not found again.
    pub async fn replay(
        &self,
        status: Status,
        filter: &JobFilter,
        error_kind: Option<ErrorKind>,
        batch: ReplayBatch,
    ) -> sqlx::Result<Vec<TargetId>> {
        let ids = filter.ids();
        let targets: Vec<i64> = sqlx::query_scalar(REPLAY)
            .bind(SHARD)
            .bind(status.code())
            .bind(filter.target.as_ref().map(|target| target.id().0))
            .bind(ids.start)
            .bind(ids.end)
            .bind(tier_codes(filter.queue))
            .bind(i64::try_from(batch.limit).unwrap_or(i64::MAX))
            .bind(millis(batch.after))
            .bind(i64::try_from(batch.spacing.as_micros()).unwrap_or(i64::MAX))
            .bind(error_kind.map(ErrorKind::code))
            .fetch_all(&self.pool())
            .await?;
        Ok(targets.into_iter().map(TargetId).collect())
    }
}
