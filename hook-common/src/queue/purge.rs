//! Purge: removes finished jobs after their retention, and never a live one.
//!
//! Jobs are stored in a ring of buckets. The open one is closed when it has collected a share of
//! the retention, and once everything in a closed bucket is old enough it is emptied by TRUNCATE,
//! whose cost does not depend on the number of jobs. What has to stay longer (jobs that still
//! wait, failed jobs, late finishers) is moved to the kept bucket first, which is emptied row by
//! row. Tables are read in bounded ranges of pages, so that no statement grows with the table.
//!
//! Several janitors may do all of this at one time: rows that another one holds are skipped, and
//! the bucket's row is the lock for what concerns the bucket.

use std::{ops::Range, time::Duration};

use chrono::{DateTime, Utc};

use crate::queue::{Queue, SHARD, enqueue::millis};

/// How long finished jobs stay.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Delivered ones.
    pub completed: Duration,
    /// Failed and cancelled ones.
    pub failed: Duration,
}

/// A bucket that gets no new jobs any more.
#[derive(Clone, Copy, Debug, Eq, PartialEq, sqlx::FromRow)]
pub struct ClosedBucket {
    /// Its place in the ring.
    pub bucket: i16,
    /// When it was opened; tells this use of the bucket from the next.
    pub opened_at: DateTime<Utc>,
}

/// What one batch of moving finished jobs did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, sqlx::FromRow)]
pub struct FinishedMoved {
    /// Jobs that are in the kept bucket now.
    pub moved: i64,
    /// Jobs that have to be moved yet: beyond the limit, or held by somebody.
    pub left: i64,
    /// Jobs that may go with the bucket.
    pub expendable: i64,
}

/// What became of an attempt to empty a bucket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Truncated {
    /// Empty, and free to be opened again.
    Emptied,
    /// A job in it is not final.
    Live,
    /// Somebody uses its tables; nothing was waited for.
    Busy,
    /// Another janitor has it, or had.
    Gone,
}

/// Whether an attempt to empty a bucket may make traffic wait for a moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Patience {
    /// Takes the tables only in a moment in which nobody uses them.
    None,
    /// Queues for them, for at most 100 ms; traffic queues behind.
    Queue,
}

// Closing comes first by the data flow from `closed`: two open buckets, even for the time of one
// row, would break the index that allows one. Whether the bucket holds a job is asked by a subquery
// that ends at the first in the order of an index: EXISTS becomes a join, which reads all jobs there are.
const ROTATE: &str = "-- rotate
WITH old AS MATERIALIZED (
    SELECT b.bucket FROM hook.bucket AS b
    WHERE b.shard = $1 AND b.opened_at IS NOT NULL AND b.closed_at IS NULL
        AND b.opened_at <= now() - $2::bigint * interval '1 millisecond'
        AND (SELECT true FROM hook.job AS j WHERE j.shard = $1 AND j.bucket = b.bucket ORDER BY j.job_id LIMIT 1)
        AND EXISTS (SELECT FROM hook.bucket AS n
            WHERE n.shard = $1 AND n.bucket = (b.bucket + 1) % 8 AND n.opened_at IS NULL)
    FOR UPDATE OF b SKIP LOCKED
), closed AS (
    UPDATE hook.bucket AS b SET closed_at = now() FROM old
    WHERE b.shard = $1 AND b.bucket = old.bucket AND b.closed_at IS NULL
    RETURNING b.bucket
)
UPDATE hook.bucket AS n SET opened_at = now() FROM closed
WHERE n.shard = $1 AND n.bucket = (closed.bucket + 1) % 8
RETURNING n.bucket";

const BUCKET_TO_EMPTY: &str = "-- bucket_to_empty
SELECT bucket, opened_at FROM hook.bucket
WHERE shard = $1 AND closed_at <= now() - $2::bigint * interval '1 millisecond'
ORDER BY opened_at LIMIT 1";

const READY_PAGES: &str = "-- ready_pages
SELECT pg_relation_size('hook.ready') / current_setting('block_size')::bigint";

const FINISHED_PAGES: &str = "-- finished_pages
SELECT pg_relation_size(format('hook.finished_%s', $1::smallint)::regclass) / current_setting('block_size')::bigint";

// `= ANY (ARRAY(…))` keeps the updates on their indexes; a join could be turned into a scan of a
// whole bucket. Leased jobs are left alone: they come back to `ready`, or finish.
const MOVE_WAITING: &str = "-- move_waiting
WITH pick AS MATERIALIZED (
    SELECT ready.ctid AS tid FROM hook.ready
    WHERE ctid >= $3::text::tid AND ctid < $4::text::tid AND shard = $1 AND bucket = $2
    LIMIT $5 FOR UPDATE SKIP LOCKED
), moved AS (
    UPDATE hook.ready SET bucket = -1 WHERE ctid = ANY (ARRAY(SELECT tid FROM pick))
    RETURNING job_id
), jobs AS (
    UPDATE hook.job SET bucket = -1
    WHERE shard = $1 AND bucket = $2 AND job_id = ANY (ARRAY(SELECT job_id FROM moved))
), attempts AS (
    UPDATE hook.attempt SET bucket = -1
    WHERE shard = $1 AND bucket = $2 AND job_id = ANY (ARRAY(SELECT job_id FROM moved))
)
SELECT count(*) FROM moved";

// By id and not by place: the planner, when it sees the bucket empty, would settle for reading all
// of it, and keep to that when it is full.
const MOVE_FINISHED: &str = "-- move_finished
WITH found AS MATERIALIZED (
    SELECT job_id, finished_at > now() - interval '1 millisecond'
        * CASE WHEN status = 2 THEN $6::bigint ELSE $7::bigint END AS retained
    FROM hook.finished
    WHERE bucket = $2 AND ctid >= $3::text::tid AND ctid < $4::text::tid AND shard = $1
), pick AS MATERIALIZED (
    SELECT job_id FROM hook.finished
    WHERE shard = $1 AND bucket = $2
        AND job_id = ANY (ARRAY(SELECT job_id FROM found WHERE retained LIMIT $5))
    FOR UPDATE SKIP LOCKED
), moved AS (
    UPDATE hook.finished SET bucket = -1
    WHERE shard = $1 AND bucket = $2 AND job_id = ANY (ARRAY(SELECT job_id FROM pick))
    RETURNING job_id
), jobs AS (
    UPDATE hook.job SET bucket = -1
    WHERE shard = $1 AND bucket = $2 AND job_id = ANY (ARRAY(SELECT job_id FROM moved))
), attempts AS (
    UPDATE hook.attempt SET bucket = -1
    WHERE shard = $1 AND bucket = $2 AND job_id = ANY (ARRAY(SELECT job_id FROM moved))
)
SELECT (SELECT count(*) FROM moved) AS moved,
    count(*) FILTER (WHERE retained) - (SELECT count(*) FROM moved) AS left,
    count(*) FILTER (WHERE NOT retained) AS expendable
FROM found";

const FLUSH_BUCKET: &str = "-- flush_bucket
SELECT hook.flush_bucket($1)";

const HAS_LIVE_JOBS: &str = "-- has_live_jobs
SELECT EXISTS (SELECT FROM hook.ready WHERE bucket = $1) OR EXISTS (SELECT FROM hook.lease WHERE bucket = $1)";

const TRUNCATE_BUCKET: &str = "-- truncate_bucket
SELECT hook.truncate_bucket($1, $2, $3, $4)";

const PURGE_KEPT: &str = "-- purge_kept
WITH old AS MATERIALIZED (
    SELECT r.tid FROM unnest('{2,3,4}'::smallint[], ARRAY[$2, $3, $3]::bigint[]) AS s (status, keep_ms)
    CROSS JOIN LATERAL (
        SELECT finished_kept.ctid AS tid FROM hook.finished_kept
        WHERE shard = $1 AND status = s.status AND finished_at <= now() - s.keep_ms * interval '1 millisecond'
        ORDER BY finished_at LIMIT $4 FOR UPDATE SKIP LOCKED) AS r
    LIMIT $4
), gone AS (
    DELETE FROM hook.finished_kept WHERE ctid = ANY (ARRAY(SELECT tid FROM old)) RETURNING job_id
), jobs AS (
    DELETE FROM hook.job_kept WHERE shard = $1 AND job_id = ANY (ARRAY(SELECT job_id FROM gone))
), attempts AS (
    DELETE FROM hook.attempt_kept WHERE shard = $1 AND job_id = ANY (ARRAY(SELECT job_id FROM gone))
)
SELECT count(*) FROM gone";

const PURGE_KEYS: &str = "-- purge_keys
DELETE FROM hook.idempotency WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM hook.idempotency WHERE shard = $1 AND expires_at <= now()
    ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))";

impl Queue {
    /// Closes the open bucket and opens the next, if the open one is older than `age_min` and
    /// holds a job, and the next is empty. Returns the bucket that was opened.
    ///
    /// # Errors
    /// Whether it was done is not known; calling again is harmless.
    pub async fn rotate(&self, age_min: Duration) -> sqlx::Result<Option<i16>> {
        sqlx::query_scalar(ROTATE)
            .bind(SHARD)
            .bind(retention_ms(age_min))
            .fetch_optional(&self.pool())
            .await
    }

    /// Returns the oldest bucket that was closed longer than `retention.completed` ago.
    ///
    /// # Errors
    /// Postgres could not be asked.
    pub async fn bucket_to_empty(
        &self,
        retention: Retention,
    ) -> sqlx::Result<Option<ClosedBucket>> {
        sqlx::query_as(BUCKET_TO_EMPTY)
            .bind(SHARD)
            .bind(retention_ms(retention.completed))
            .fetch_optional(&self.pool())
            .await
    }

    /// Returns the size of the table of waiting jobs, in pages.
    ///
    /// # Errors
    /// Postgres could not be asked.
    pub async fn ready_pages(&self) -> sqlx::Result<i64> {
        sqlx::query_scalar(READY_PAGES)
            .fetch_one(&self.pool())
            .await
    }

    /// Returns the size of a bucket's table of finished jobs, in pages.
    ///
    /// # Errors
    /// Postgres could not be asked.
    pub async fn finished_pages(&self, bucket: i16) -> sqlx::Result<i64> {
        sqlx::query_scalar(FINISHED_PAGES)
            .bind(bucket)
            .fetch_one(&self.pool())
            .await
    }

    /// Moves up to `limit` waiting jobs of a bucket from these pages to the kept bucket, and
    /// returns their number. Jobs that somebody holds at this moment are left where they are.
    ///
    /// # Errors
    /// Whether they were moved is not known; calling again is harmless.
    pub async fn move_waiting(
        &self,
        bucket: i16,
        pages: Range<i64>,
        limit: i64,
    ) -> sqlx::Result<i64> {
        sqlx::query_scalar(MOVE_WAITING)
            .bind(SHARD)
            .bind(bucket)
            .bind(first_of(pages.start))
            .bind(first_of(pages.end))
            .bind(limit)
            .fetch_one(&self.pool())
            .await
    }

    /// Moves up to `limit` finished jobs of a bucket that are inside their retention from these
    /// pages to the kept bucket.
    ///
    /// # Errors
    /// Whether they were moved is not known; calling again is harmless.
    pub async fn move_finished(
        &self,
        bucket: i16,
        pages: Range<i64>,
        limit: i64,
        retention: Retention,
    ) -> sqlx::Result<FinishedMoved> {
        sqlx::query_as(MOVE_FINISHED)
            .bind(SHARD)
            .bind(bucket)
            .bind(first_of(pages.start))
            .bind(first_of(pages.end))
            .bind(limit)
            .bind(retention_ms(retention.completed))
            .bind(retention_ms(retention.failed))
            .fetch_one(&self.pool())
            .await
    }

    /// Waits for a moment until nobody has a transaction open that stored a job in this bucket;
    /// false if somebody has.
    ///
    /// # Errors
    /// Postgres could not be asked.
    pub async fn flush_bucket(&self, bucket: i16) -> sqlx::Result<bool> {
        sqlx::query_scalar(FLUSH_BUCKET)
            .bind(bucket)
            .fetch_one(&self.pool())
            .await
    }

    /// Says whether a job of this bucket waits or runs. Reads all waiting jobs.
    ///
    /// # Errors
    /// Postgres could not be asked.
    pub async fn has_live_jobs(&self, bucket: i16) -> sqlx::Result<bool> {
        sqlx::query_scalar(HAS_LIVE_JOBS)
            .bind(bucket)
            .fetch_one(&self.pool())
            .await
    }

    /// Empties a bucket if no job in it waits or runs, whatever finished jobs it holds: those
    /// that must stay have to be moved before. Reads all waiting jobs.
    ///
    /// # Errors
    /// Whether it was emptied is not known; calling again is harmless.
    pub async fn truncate_bucket(
        &self,
        closed: ClosedBucket,
        patience: Patience,
    ) -> sqlx::Result<Truncated> {
        let word: String = sqlx::query_scalar(TRUNCATE_BUCKET)
            .bind(SHARD)
            .bind(closed.bucket)
            .bind(closed.opened_at)
            .bind(patience == Patience::Queue)
            .fetch_one(&self.pool())
            .await?;
        Ok(match word.as_str() {
            "emptied" => Truncated::Emptied,
            "live" => Truncated::Live,
            "busy" => Truncated::Busy,
            _ => Truncated::Gone,
        })
    }

    /// Removes up to `limit` jobs of the kept bucket whose retention is over, and returns their
    /// number.
    ///
    /// # Errors
    /// Whether they were removed is not known; calling again is harmless.
    pub async fn purge_kept(&self, retention: Retention, limit: i64) -> sqlx::Result<i64> {
        sqlx::query_scalar(PURGE_KEPT)
            .bind(SHARD)
            .bind(retention_ms(retention.completed))
            .bind(retention_ms(retention.failed))
            .bind(limit)
            .fetch_one(&self.pool())
            .await
    }

    /// Removes up to `limit` idempotency keys whose time is over, and returns their number.
    ///
    /// # Errors
    /// Whether they were removed is not known; calling again is harmless.
    pub async fn purge_keys(&self, limit: i64) -> sqlx::Result<u64> {
        let gone = sqlx::query(PURGE_KEYS)
            .bind(SHARD)
            .bind(limit)
            .execute(&self.pool())
            .await?;
        Ok(gone.rows_affected())
    }
}

/// The place before the first row of a page.
fn first_of(page: i64) -> String {
    format!("({page},0)")
}

/// Milliseconds of a retention, at most a thousand years: earlier there is no job, and a time
/// before the year 1 could not be compared with.
fn retention_ms(retention: Duration) -> i64 {
    millis(retention).min(1000 * 365 * 24 * 3_600_000)
}
