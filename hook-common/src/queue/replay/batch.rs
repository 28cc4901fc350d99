//! Working a replay off, in bounded batches, oldest job first.
//!
//! A batch is one statement: it locks the replay, walks a bounded number of finished jobs behind its
//! cursor, puts those that match back, and moves the cursor. So a kill between two batches loses and
//! doubles nothing, and anybody can go on. Who comes second with an old cursor does nothing.
//!
//! The rate is kept by the rows: each job becomes due a little later than the one before, and the
//! replay remembers when the next one may.

use std::time::Duration;

use uuid::Uuid;

use crate::{
    queue::{Queue, SHARD, enqueue::millis, jobs::kept_history},
    target::TargetId,
};

/// Finished jobs that one batch looks at.
const WALKED_MAX: i64 = 2000;

/// The least that it looks at, so that few matches among many jobs are found in few steps.
const WALKED_MIN: i64 = 200;

/// Jobs that one batch puts back.
const BATCH_JOBS_MAX: i32 = 500;

/// Replays are worked off in turn; more than can be under way are never found.
const REPLAYS_MAX: i64 = super::REPLAYS_UNDER_WAY_MAX * 2;

/// A replay that has something to do.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct ReplayWork {
    replay_id: Uuid,
    state: i16,
    job_status: i16,
    target_id: Option<i64>,
    tiers: Vec<i16>,
    error_kind: Option<i16>,
    cursor: Uuid,
    end_job: Uuid,
    total: i64,
    done: i64,
    job_limit: i32,
    rate_per_second: i32,
}

const WORK: &str = "-- replay_work
SELECT replay_id, state, job_status, target_id, tiers, error_kind, cursor, end_job, total, done, job_limit,
    rate_per_second
FROM hook.replay
WHERE shard = $1 AND state < 2 AND next_at <= now() + $2::bigint * interval '1 millisecond'
ORDER BY replay_id LIMIT $3";

/// The jobs that a batch is about, if nobody else has moved the replay on: `walked` are those it looks
/// at, `matching` those that are its own. Each walk has an index of its own (a
/// target is a range of one, see listing.rs); all but one of them are never begun. Whether a job's time to live is over is looked up for one job at a time: as a join it
/// might read all jobs.
macro_rules! jobs_of_batch {
    () => {
        "mine AS MATERIALIZED (
    SELECT next_at FROM hook.replay
    WHERE shard = $1 AND replay_id = $2 AND state = $3 AND cursor = $4
    FOR UPDATE SKIP LOCKED
), walked AS MATERIALIZED (
    (SELECT job_id, bucket, status, target_id, tier, error_kind FROM hook.finished
     WHERE shard = $1 AND status = $6::smallint AND status <> 2 AND $7::bigint IS NULL
        AND job_id > $4 AND job_id < $5 AND EXISTS (SELECT FROM mine)
     ORDER BY job_id LIMIT $10)
    UNION ALL
    (SELECT job_id, bucket, status, target_id, tier, error_kind FROM hook.finished
     WHERE shard = $1 AND status = $6::smallint AND status <> 2
        AND target_id >= $7::bigint AND target_id <= $7::bigint
        AND job_id > $4 AND job_id < $5 AND EXISTS (SELECT FROM mine)
     ORDER BY target_id, job_id LIMIT $10)
    UNION ALL
    (SELECT job_id, bucket, status, target_id, tier, error_kind FROM hook.finished
     WHERE shard = $1 AND $6::smallint = 2
        AND job_id > $4 AND job_id < $5 AND EXISTS (SELECT FROM mine)
     ORDER BY job_id LIMIT $10)
), matching AS MATERIALIZED (
    SELECT job_id, bucket FROM walked AS w
    WHERE status = $6::smallint AND ($7::bigint IS NULL OR target_id = $7::bigint) AND tier = ANY ($8)
        AND ($9::smallint IS NULL OR error_kind = $9::smallint)
        AND COALESCE((SELECT expires_at > now() FROM hook.job AS j
            WHERE j.shard = $1 AND j.job_id = w.job_id AND j.bucket = w.bucket LIMIT 1), true)
    ORDER BY job_id LIMIT $11
)"
    };
}

const COUNT: &str = concat!(
    "-- count_replay
WITH ",
    jobs_of_batch!(),
    ", found AS (
    SELECT count(*) AS jobs, (SELECT count(*) FROM walked) < $10 OR count(*) >= $11 AS is_last FROM matching
)
UPDATE hook.replay AS r SET
    total = r.total + found.jobs,
    state = CASE WHEN is_last THEN 1 ELSE 0 END,
    cursor = CASE WHEN is_last THEN r.first_job
        ELSE (SELECT job_id FROM walked ORDER BY job_id DESC LIMIT 1) END
FROM found
WHERE r.shard = $1 AND r.replay_id = $2 AND EXISTS (SELECT FROM mine)"
);

// As a retry of one job (jobs.rs), for many; they start over in the degraded queue. A job that
// somebody else puts back meanwhile is no longer there to be deleted, and left out.
const PUT_BACK: &str = concat!(
    "-- put_back
WITH ",
    jobs_of_batch!(),
    ", gone AS (
    DELETE FROM hook.finished AS f USING matching AS m
    WHERE f.shard = $1 AND f.job_id = m.job_id AND f.bucket = m.bucket
    RETURNING f.*
)",
    kept_history!(),
    ", waiting AS (
    INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, fence, attempt, bucket, expires_at,
        timeout_ms)
    SELECT $1, 1, g.target_id,
        GREATEST(mine.next_at, now())
            + (row_number() OVER (ORDER BY g.job_id) - 1) * interval '1 second' / $12::integer,
        g.job_id, g.fence, 0, -1, k.expires_at, k.timeout_ms
    FROM gone AS g JOIN kept_job AS k ON k.job_id = g.job_id CROSS JOIN mine
    RETURNING target_id
), moved AS (
    UPDATE hook.replay AS r SET
        done = r.done + batch.jobs,
        cursor = COALESCE(batch.cursor, r.cursor),
        next_at = GREATEST(r.next_at, now()) + batch.jobs * interval '1 second' / $12::integer,
        state = CASE WHEN is_last OR r.done + batch.jobs >= r.job_limit THEN 2 ELSE 1 END,
        finished_at = CASE WHEN is_last OR r.done + batch.jobs >= r.job_limit THEN now() END
    FROM (
        SELECT (SELECT count(*) FROM waiting) AS jobs,
            found.jobs < $11 AND (SELECT count(*) FROM walked) < $10 AS is_last,
            CASE WHEN found.jobs = $11 THEN (SELECT job_id FROM matching ORDER BY job_id DESC LIMIT 1)
                ELSE (SELECT job_id FROM walked ORDER BY job_id DESC LIMIT 1) END AS cursor
        FROM (SELECT count(*) AS jobs FROM matching) AS found
    ) AS batch
    WHERE r.shard = $1 AND r.replay_id = $2 AND EXISTS (SELECT FROM mine)
)
SELECT DISTINCT target_id FROM waiting"
);

const PURGE_REPLAYS: &str = "-- purge_replays
DELETE FROM hook.replay WHERE shard = $1 AND state >= 2 AND replay_id IN (
    SELECT replay_id FROM (
        SELECT replay_id, finished_at FROM hook.replay WHERE shard = $1 ORDER BY replay_id LIMIT $3
    ) AS oldest
    WHERE finished_at < now() - $2::bigint * interval '1 millisecond')";

impl ReplayWork {
    /// Which replay it is.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.replay_id
    }

    /// Jobs that the next batch may put back: what falls due within a second.
    fn batch_jobs(&self) -> i64 {
        let in_a_second = i64::from(self.rate_per_second.min(BATCH_JOBS_MAX));
        in_a_second.min(i64::from(self.job_limit) - self.done)
    }
}

impl Queue {
    /// Returns replays whose next batch may be put back within `ahead`, the oldest first.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the replays.
    pub async fn replay_work(&self, ahead: Duration) -> sqlx::Result<Vec<ReplayWork>> {
        sqlx::query_as(WORK)
            .bind(SHARD)
            .bind(millis(ahead))
            .bind(REPLAYS_MAX)
            .fetch_all(&self.pool())
            .await
    }

    /// Goes one step on with a replay: counts some of its jobs, or puts a batch of them back, and
    /// returns whose jobs are new in the degraded queue.
    ///
    /// # Errors
    /// Whether the step was made is not known; if it was, trying it again does nothing.
    pub async fn replay_step(&self, work: &ReplayWork) -> sqlx::Result<Vec<TargetId>> {
        let counts = work.state == super::ReplayState::Counting.code();
        let (statement, jobs, walked) = if counts {
            let jobs = i64::from(work.job_limit) - work.total;
            (COUNT, jobs, WALKED_MAX)
        } else {
            let jobs = work.batch_jobs();
            (PUT_BACK, jobs, (jobs * 2).max(WALKED_MIN))
        };
        let query = sqlx::query_scalar(statement)
            .bind(SHARD)
            .bind(work.replay_id)
            .bind(work.state)
            .bind(work.cursor)
            .bind(work.end_job)
            .bind(work.job_status)
            .bind(work.target_id)
            .bind(&work.tiers)
            .bind(work.error_kind)
            .bind(walked)
            .bind(jobs);
        let query = if counts {
            query
        } else {
            query.bind(work.rate_per_second)
        };
        let targets: Vec<i64> = query.fetch_all(&self.pool()).await?;
        Ok(targets.into_iter().map(TargetId).collect())
    }

    /// Removes replays that ended longer ago than `retention`, among the `limit` oldest; returns how
    /// many.
    ///
    /// # Errors
    /// Whether they were removed is not known; removing them again is harmless.
    pub async fn purge_replays(&self, retention: Duration, limit: i64) -> sqlx::Result<u64> {
        let purged = sqlx::query(PURGE_REPLAYS)
            .bind(SHARD)
            .bind(millis(retention))
            .bind(limit)
            .execute(&self.pool())
            .await?;
        Ok(purged.rows_affected())
    }
}
