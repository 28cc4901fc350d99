//! Jobs as people see them: one job with its attempts; stopping it; putting it back.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::{
    job::JobId,
    queue::{Queue, SHARD},
};

/// One job, wherever it is.
#[derive(Debug, sqlx::FromRow)]
pub struct JobView {
    /// The job.
    pub job_id: Uuid,
    /// Number of its [`crate::job::Status`].
    pub status: i16,
    /// Number of its [`crate::job::Tier`].
    pub tier: i16,
    /// The target's name.
    pub target: String,
    /// The whole URL.
    pub url: String,
    /// Number of its [`crate::job::Method`].
    pub method: i16,
    /// The headers: a JSON object; `None` when there are none.
    pub headers: Option<serde_json::Value>,
    /// Sealed header values.
    pub headers_sealed: Option<Vec<u8>>,
    /// The metadata as it was written; `None` means `{}`.
    pub metadata: Option<String>,
    /// Attempts started.
    pub attempt: i32,
    /// Attempts in all, where the producer said so.
    pub max_attempts: Option<i16>,
    /// When it was enqueued.
    pub created_at: DateTime<Utc>,
    /// When it is or was due.
    pub scheduled_at: DateTime<Utc>,
    /// After this, no attempt starts.
    pub expires_at: Option<DateTime<Utc>>,
    /// When it reached its final state.
    pub finished_at: Option<DateTime<Utc>>,
    /// Number of the [`crate::job::ErrorKind`] that ended it.
    pub error_kind: Option<i16>,
    /// The body, where it was asked for.
    pub body: Option<Vec<u8>>,
}

/// One attempt of a job.
#[derive(Debug, sqlx::FromRow)]
pub struct AttemptView {
    /// Counted from 1; starts again after a retry by hand.
    pub attempt: i32,
    /// When it started.
    pub started_at: DateTime<Utc>,
    /// How long it took.
    pub duration_ms: i32,
    /// Number of its [`crate::job::Outcome`].
    pub outcome: i16,
    /// Number of its [`crate::job::ErrorKind`].
    pub error_kind: Option<i16>,
    /// Status of the answer.
    pub response_status: Option<i16>,
    /// The beginning of the answer's body.
    pub response_excerpt: Option<Vec<u8>>,
    /// Whether the body went on behind that.
    pub response_truncated: bool,
    /// The worker that made it.
    pub worker: String,
}

// One statement, so that a job on its way from one place to the next is seen in exactly one.
const JOB: &str = "-- job
SELECT j.job_id, s.status, s.tier, j.target, j.url, j.method, j.headers, j.headers_sealed, j.metadata,
    s.attempt, j.max_attempts, j.created_at, COALESCE(s.run_at, j.scheduled_at, j.created_at) AS scheduled_at,
    j.expires_at, s.finished_at, s.error_kind, CASE WHEN $3 THEN j.body END AS body
FROM hook.job AS j CROSS JOIN LATERAL (
    SELECT 0::smallint AS status, tier, attempt, run_at, NULL::timestamptz AS finished_at,
        NULL::smallint AS error_kind
    FROM hook.ready WHERE shard = $1 AND job_id = j.job_id
    UNION ALL
    SELECT 1::smallint, tier, attempt, run_at, NULL, NULL FROM hook.lease WHERE shard = $1 AND job_id = j.job_id
    UNION ALL
    SELECT status, tier, attempt, NULL, finished_at, error_kind
    FROM hook.finished WHERE shard = $1 AND job_id = j.job_id
) AS s
WHERE j.shard = $1 AND j.job_id = $2";

const ATTEMPTS: &str = "-- attempts
SELECT attempt, started_at, duration_ms, outcome, error_kind, response_status, response_excerpt,
    COALESCE(response_truncated, false) AS response_truncated, worker
FROM (
    SELECT fence, attempt, started_at, duration_ms, outcome, error_kind, response_status, response_excerpt,
        response_truncated, worker
    FROM hook.attempt WHERE shard = $1 AND job_id = $2
    UNION ALL
    SELECT fence, attempt, started_at, duration_ms, outcome, error_kind, response_status, response_excerpt,
        response_truncated, worker
    FROM hook.finished WHERE shard = $1 AND job_id = $2 AND outcome IS NOT NULL
) AS a
ORDER BY fence";

const CANCEL: &str = "-- cancel
WITH gone AS (
    DELETE FROM hook.ready WHERE shard = $1 AND job_id = $2
    RETURNING target_id, job_id, fence, attempt, tier, bucket
), ended AS (
    INSERT INTO hook.finished (shard, bucket, tier, job_id, target_id, finished_at, status, fence, attempt)
    SELECT $1, bucket, tier, job_id, target_id, now(), 4, fence, attempt FROM gone
)
SELECT count(*) FROM gone";

/// What a finished job keeps when it waits again: `gone` are the rows of `hook.finished` that were
/// deleted for it. Its body and its attempts leave the ring, and its last attempt joins the others.
macro_rules! kept_history {
    () => {
        ", kept_job AS (
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
)"
    };
}

pub(super) use kept_history;

// The job moves to the kept bucket, so that a bucket of the ring never gets a live job again once
// it is closed; the purge relies on that. No attempt starts after the end of a job's time to live.
const RETRY: &str = concat!(
    "-- retry
WITH gone AS (
    DELETE FROM hook.finished WHERE shard = $1 AND job_id = $2 AND NOT EXISTS (
        SELECT FROM hook.job WHERE shard = $1 AND job_id = $2 AND expires_at <= now())
    RETURNING *
)",
    kept_history!(),
    ", waiting AS (
    INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, fence, attempt, bucket, expires_at,
        timeout_ms)
    SELECT $1, CASE WHEN g.tier = 0 THEN 0 ELSE 1 END, g.target_id, now(), g.job_id, g.fence, 0, -1,
        k.expires_at, k.timeout_ms
    FROM gone AS g JOIN kept_job AS k ON k.job_id = g.job_id
    RETURNING target_id
)
SELECT target_id FROM waiting"
);

impl Queue {
    /// Returns the job, with its body if `with_body`; `None` if there is none (any more).
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the job.
    pub async fn job(&self, id: JobId, with_body: bool) -> sqlx::Result<Option<JobView>> {
        sqlx::query_as(JOB)
            .bind(SHARD)
            .bind(id.0)
            .bind(with_body)
            .fetch_optional(&self.pool())
            .await
    }

    /// Returns the attempts of a job that are over, in the order they were made.
    ///
    /// # Errors
    /// As [`Queue::job`].
    pub async fn attempts(&self, id: JobId) -> sqlx::Result<Vec<AttemptView>> {
        sqlx::query_as(ATTEMPTS)
            .bind(SHARD)
            .bind(id.0)
            .fetch_all(&self.pool())
            .await
    }

    /// Ends a waiting job as cancelled; false if it is not waiting.
    ///
    /// # Errors
    /// Whether it was cancelled is not known; calling again is harmless.
    pub async fn cancel(&self, id: JobId) -> sqlx::Result<bool> {
        let cancelled: i64 = sqlx::query_scalar(CANCEL)
            .bind(SHARD)
            .bind(id.0)
            .fetch_one(&self.pool())
            .await?;
        Ok(cancelled > 0)
    }

    /// Puts a finished job back, its attempts counted from 0 again; false if it is not finished, or
    /// its time to live is over.
    ///
    /// # Errors
    /// Whether it was put back is not known; calling again is harmless.
    pub async fn retry(&self, id: JobId) -> sqlx::Result<bool> {
        let waiting: Option<i64> = sqlx::query_scalar(RETRY)
            .bind(SHARD)
            .bind(id.0)
            .fetch_optional(&self.pool())
            .await?;
        Ok(waiting.is_some())
    }
}
