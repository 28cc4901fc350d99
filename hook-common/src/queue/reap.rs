//! Reap: ends what nobody else will end, in bounded batches.
//!
//! A lease whose worker did not report in time, or is dead, goes back to wait, its lost attempt
//! recorded; if it was the last attempt, the job ends failed. A waiting job whose time to live is
//! over ends failed without an attempt. Several janitors may run at one time: each takes rows the others have not.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::{
    job::JobId,
    queue::{DeadWorker, Queue, SHARD},
};

/// Which leases are reaped, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReapLeases<'a> {
    /// Attempts of a job whose producer gave no number.
    pub max_attempts: i16,
    /// Workers that are known to be dead: their leases are taken for over.
    pub dead_workers: &'a [DeadWorker],
    /// Jobs that are left alone.
    pub except: &'a [JobId],
    /// Only these jobs; `None` means all.
    pub only: Option<&'a [JobId]>,
}

/// What one batch did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, sqlx::FromRow)]
pub struct Reaped {
    /// Jobs that wait again.
    pub returned: i64,
    /// Jobs that ended failed.
    pub failed: i64,
}

const REAP_LEASES: &str = "-- reap_leases
WITH dead AS MATERIALIZED (
    SELECT lease.ctid AS tid FROM hook.lease
    WHERE shard = $1 AND (leased_until < now() OR EXISTS (
            SELECT FROM unnest($4::text[], $7::timestamptz[]) AS dead (name, leased_before)
            WHERE lease.worker = dead.name AND lease.leased_at < dead.leased_before
        ))
        AND job_id <> ALL ($5) AND ($6::uuid[] IS NULL OR job_id = ANY ($6))
    LIMIT $2 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM hook.lease WHERE ctid = ANY (ARRAY(SELECT tid FROM dead))
    RETURNING target_id, run_at, job_id, fence, attempt, tier, bucket, leased_at, expires_at, timeout_ms, worker
), judged AS MATERIALIZED (
    SELECT g.*, g.attempt >= COALESCE(j.max_attempts, $3) AS last,
        LEAST(extract(epoch FROM now() - g.leased_at) * 1000, 2147483647)::int AS duration_ms
    FROM gone AS g LEFT JOIN LATERAL (
        SELECT max_attempts FROM hook.job WHERE shard = $1 AND job_id = g.job_id AND bucket = g.bucket LIMIT 1
    ) AS j ON true
), ended AS (
    INSERT INTO hook.finished (shard, bucket, tier, job_id, target_id, finished_at, status, fence, attempt,
        outcome, error_kind, duration_ms, started_at, worker)
    SELECT $1, bucket, tier, job_id, target_id, now(), 3, fence, attempt, 1, 10, duration_ms, leased_at, worker
    FROM judged WHERE last
), waiting AS (
    INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, fence, attempt, bucket, expires_at, timeout_ms)
    SELECT $1, 2, target_id, now(), job_id, fence, attempt, bucket, expires_at, timeout_ms FROM judged WHERE NOT last
), log AS (
    INSERT INTO hook.attempt (shard, bucket, job_id, target_id, fence, attempt, started_at, duration_ms,
        outcome, error_kind, worker)
    SELECT $1, bucket, job_id, target_id, fence, attempt, leased_at, duration_ms, 1, 10, worker
    FROM judged WHERE NOT last
), tallied AS (
    INSERT INTO hook.tally (shard, ended_at, target_id, outcome, error_kind, duration_ms)
    SELECT $1, now(), array_agg(target_id), array_agg(1::smallint), array_agg(10::smallint), array_agg(duration_ms)
    FROM judged HAVING count(*) > 0
)
SELECT count(*) FILTER (WHERE NOT last) AS returned, count(*) FILTER (WHERE last) AS failed FROM judged";

const OVER_LEASES: &str = "-- over_leases
SELECT job_id FROM hook.lease WHERE shard = $1 AND leased_until < now() AND job_id <> ALL ($3) LIMIT $2";

const REAP_EXPIRED: &str = "-- reap_expired
WITH dead AS MATERIALIZED (
    SELECT ready.ctid AS tid FROM hook.ready
    WHERE shard = $1 AND expires_at IS NOT NULL AND expires_at <= now()
    ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM hook.ready WHERE ctid = ANY (ARRAY(SELECT tid FROM dead))
    RETURNING target_id, job_id, fence, attempt, tier, bucket
), ended AS (
    INSERT INTO hook.finished (shard, bucket, tier, job_id, target_id, finished_at, status, fence, attempt, error_kind)
    SELECT $1, bucket, tier, job_id, target_id, now(), 3, fence, attempt, 9 FROM gone
)
SELECT 0::bigint AS returned, count(*) AS failed FROM gone";

impl Queue {
    /// Ends up to `limit` leases that are over.
    ///
    /// # Errors
    /// Nothing was changed, or it was and the answer was lost; calling again is harmless.
    pub async fn reap_leases(&self, limit: usize, reap: &ReapLeases<'_>) -> sqlx::Result<Reaped> {
        let ids = |jobs: &[JobId]| jobs.iter().map(|id| id.0).collect::<Vec<Uuid>>();
        let dead = reap.dead_workers.iter();
        let (names, leased_before): (Vec<&str>, Vec<DateTime<Utc>>) = dead
            .map(|worker| (worker.name.as_str(), worker.leased_before))
            .unzip();
        sqlx::query_as(REAP_LEASES)
            .bind(SHARD)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .bind(reap.max_attempts)
            .bind(names)
            .bind(ids(reap.except))
            .bind(reap.only.map(ids))
            .bind(leased_before)
            .fetch_one(&self.pool())
            .await
    }

    /// Returns up to `limit` jobs whose leases are over, without those of `except`.
    ///
    /// # Errors
    /// Postgres could not be asked.
    pub async fn over_leases(&self, limit: usize, except: &[JobId]) -> sqlx::Result<Vec<JobId>> {
        let except: Vec<Uuid> = except.iter().map(|id| id.0).collect();
        let ids: Vec<Uuid> = sqlx::query_scalar(OVER_LEASES)
            .bind(SHARD)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .bind(except)
            .fetch_all(&self.pool())
            .await?;
        Ok(ids.into_iter().map(JobId).collect())
    }

    /// Fails up to `limit` waiting jobs whose time to live is over.
    ///
    /// # Errors
    /// As [`Queue::reap_leases`].
    pub async fn reap_expired(&self, limit: usize) -> sqlx::Result<Reaped> {
        sqlx::query_as(REAP_EXPIRED)
            .bind(SHARD)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_one(&self.pool())
            .await
    }
}
