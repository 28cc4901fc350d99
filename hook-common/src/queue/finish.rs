//! Finish: records what attempts came to, many in one statement, each fenced.
//!
//! A finish deletes the lease that it holds the fence of. If that lease is no longer there (it
//! expired and was reaped, or a person's action replaced it) nothing is changed and the caller is
//! told that the lease was lost.

use std::{collections::HashSet, time::Duration};

use uuid::Uuid;

use crate::{
    job::{ErrorKind, JobId, Outcome, Status},
    queue::{Lease, Queue, SHARD, enqueue::millis},
};

/// What one attempt came to.
#[derive(Clone, Debug)]
pub struct AttemptRecord {
    /// The outcome.
    pub outcome: Outcome,
    /// Why it did not deliver.
    pub error_kind: Option<ErrorKind>,
    /// Status of the answer, if there was one.
    pub response_status: Option<u16>,
    /// The beginning of the answer's body; any bytes.
    pub response_excerpt: Option<Vec<u8>>,
    /// Whether the body went on behind the excerpt.
    pub response_truncated: bool,
    /// How long it took, from the lease on.
    pub duration: Duration,
}

/// Where the job goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Next {
    /// No attempt will follow.
    End(Status),
    /// Back to wait in the degraded queue for this long.
    Retry(Duration),
    /// Back to where it was, at once; the attempt is not counted and leaves no record.
    Release,
    /// Ended as failed without an attempt having been started; the attempt is not counted.
    EndUnattempted,
}

/// A lease, ended.
#[derive(Debug)]
pub struct Finish {
    /// The lease, consumed.
    pub lease: Lease,
    /// What the attempt came to; ignored for [`Next::Release`].
    pub record: AttemptRecord,
    /// Where the job goes.
    pub next: Next,
}

/// What became of a finish.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Finished {
    /// Written.
    Recorded,
    /// The lease was no longer ours; nothing was changed.
    LeaseLost,
}

// `next` is the target status for an end, and a number outside the statuses for the ways back.
const RETRY: i16 = 10;
const RELEASE: i16 = 11;

// One look-up by ctid for each result: a list of ctids, joined to the input, is compared with all of
// it for each row once the plan is generic, which knows no length of an array. A plan test
// (tests/it/queue/plans.rs) holds that.
macro_rules! finish_sql {
    () => {
        "WITH input AS MATERIALIZED (
    SELECT * FROM unnest($2::text[]::tid[], $3::uuid[], $4::bigint[], $5::smallint[], $6::smallint[], $7::bigint[],
        $8::smallint[], $9::smallint[], $10::smallint[], $11::bytea[], $12::boolean[], $13::int[])
    AS i (tid, job_id, fence, next, uncount, delay_ms, outcome, error_kind, response_status, excerpt, truncated,
        duration_ms)
), joined AS (
    DELETE FROM hook.lease AS l USING input AS i
    WHERE l.ctid = i.tid
        AND l.shard = $1 AND l.job_id = i.job_id AND l.fence = i.fence
    RETURNING l.target_id, l.tier, l.run_at, l.job_id, l.fence, l.attempt, l.bucket, l.leased_at, l.expires_at,
        l.timeout_ms, l.worker, i.next, i.uncount, i.delay_ms, i.outcome, i.error_kind, i.response_status, i.excerpt,
        i.truncated, i.duration_ms
), ended AS (
    INSERT INTO hook.finished (shard, bucket, tier, job_id, target_id, finished_at, status, fence, attempt,
        outcome, error_kind, response_status, duration_ms, started_at, worker, response_excerpt,
        response_truncated)
    SELECT $1, bucket, tier, job_id, target_id, now(), next, fence, attempt - uncount,
        CASE WHEN uncount = 0 THEN outcome END, error_kind, response_status,
        CASE WHEN uncount = 0 THEN duration_ms END, CASE WHEN uncount = 0 THEN leased_at END,
        CASE WHEN uncount = 0 THEN worker END, excerpt, truncated
    FROM joined WHERE next < 10
), waiting AS (
    INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, fence, attempt, bucket, expires_at, timeout_ms)
    SELECT $1, CASE WHEN next = 10 THEN 2 ELSE tier END, target_id,
        CASE WHEN next = 10 THEN now() + delay_ms * interval '1 millisecond' ELSE run_at END,
        job_id, fence, attempt - uncount, bucket, expires_at, timeout_ms
    FROM joined WHERE next >= 10
), log AS (
    INSERT INTO hook.attempt (shard, bucket, job_id, target_id, fence, attempt, started_at, duration_ms,
        outcome, error_kind, response_status, response_excerpt, response_truncated, worker)
    SELECT $1, bucket, job_id, target_id, fence, attempt, leased_at, duration_ms, outcome, error_kind,
        response_status, excerpt, truncated, worker
    FROM joined WHERE next = 10
), tallied AS (
    INSERT INTO hook.tally (shard, ended_at, target_id, outcome, error_kind, duration_ms)
    SELECT $1, now(), array_agg(target_id), array_agg(outcome), array_agg(error_kind), array_agg(duration_ms)
    FROM joined WHERE uncount = 0 HAVING count(*) > 0
)
SELECT job_id FROM joined"
    };
}

const FINISH: &str = concat!("-- finish\n", finish_sql!());

/// The statement of the finish as a prepared one, so that `EXPLAIN EXECUTE hook_finish (…)` shows
/// what Postgres makes of it.
pub const PREPARE_FINISH: &str = concat!("PREPARE hook_finish AS ", finish_sql!());

const LEASE_TIDS: &str = "-- lease_tids
SELECT job_id, fence, ctid::text AS tid FROM hook.lease WHERE shard = $1 AND job_id = ANY ($2)";

impl Queue {
    /// Records `finishes` and returns what became of each, in their order.
    ///
    /// # Errors
    /// Whether they were recorded is not known. Recording them again is harmless: whatever was
    /// written before comes back as [`Finished::LeaseLost`].
    ///
    /// # Cancel safety
    /// Not safe: a dropped call may or may not have recorded them.
    pub async fn finish(&self, finishes: &mut [Finish]) -> sqlx::Result<Vec<Finished>> {
        let mut recorded = self.finish_where_leased(finishes).await?;
        if recorded.len() < finishes.len() && self.find_moved_leases(finishes, &recorded).await? {
            recorded.extend(self.finish_where_leased(finishes).await?);
        }
        Ok(finishes
            .iter()
            .map(|finish| {
                if recorded.contains(&finish.lease.job_id) {
                    Finished::Recorded
                } else {
                    Finished::LeaseLost
                }
            })
            .collect())
    }

    /// Runs the one finish statement and returns the jobs whose lease it ended.
    async fn finish_where_leased(&self, finishes: &[Finish]) -> sqlx::Result<HashSet<JobId>> {
        let column = Columns::from_finishes(finishes);
        let recorded: Vec<Uuid> = sqlx::query_scalar(FINISH)
            .bind(SHARD)
            .bind(column.tid)
            .bind(column.job_id)
            .bind(column.fence)
            .bind(column.next)
            .bind(column.uncount)
            .bind(column.delay_ms)
            .bind(column.outcome)
            .bind(column.error_kind)
            .bind(column.response_status)
            .bind(column.excerpt)
            .bind(column.truncated)
            .bind(column.duration_ms)
            .fetch_all(&self.pool())
            .await?;
        Ok(recorded.into_iter().map(JobId).collect())
    }

    /// Looks for leases that are still held but lie elsewhere, as after a VACUUM FULL, and takes
    /// over where they lie; true if there is one.
    async fn find_moved_leases(
        &self,
        finishes: &mut [Finish],
        recorded: &HashSet<JobId>,
    ) -> sqlx::Result<bool> {
        let missing: Vec<Uuid> = finishes
            .iter()
            .filter(|finish| !recorded.contains(&finish.lease.job_id))
            .map(|finish| finish.lease.job_id.0)
            .collect();
        let held: Vec<(Uuid, i64, String)> = sqlx::query_as(LEASE_TIDS)
            .bind(SHARD)
            .bind(missing)
            .fetch_all(&self.pool())
            .await?;
        let mut found = false;
        for (job_id, fence, tid) in held {
            let moved = finishes
                .iter_mut()
                .find(|finish| finish.lease.job_id.0 == job_id && finish.lease.fence == fence);
            if let Some(finish) = moved {
                finish.lease.tid = tid;
                found = true;
            }
        }
        Ok(found)
    }
}

/// The finishes, turned into one array per column.
#[derive(Default)]
struct Columns<'a> {
    tid: Vec<&'a str>,
    job_id: Vec<Uuid>,
    fence: Vec<i64>,
    next: Vec<i16>,
    uncount: Vec<i16>,
    delay_ms: Vec<i64>,
    outcome: Vec<i16>,
    error_kind: Vec<Option<i16>>,
    response_status: Vec<Option<i16>>,
    excerpt: Vec<Option<&'a [u8]>>,
    truncated: Vec<bool>,
    duration_ms: Vec<i32>,
}

impl<'a> Columns<'a> {
    fn from_finishes(finishes: &'a [Finish]) -> Self {
        let mut column = Self::default();
        for Finish {
            lease,
            record,
            next,
        } in finishes
        {
            let (code, uncount, delay) = match *next {
                Next::End(status) => (status.code(), 0, Duration::ZERO),
                Next::Retry(delay) => (RETRY, 0, delay),
                Next::Release => (RELEASE, 1, Duration::ZERO),
                Next::EndUnattempted => (Status::Failed.code(), 1, Duration::ZERO),
            };
            column.tid.push(&lease.tid);
            column.job_id.push(lease.job_id.0);
            column.fence.push(lease.fence);
            column.next.push(code);
            column.uncount.push(uncount);
            column.delay_ms.push(millis(delay));
            column.outcome.push(record.outcome.code());
            column
                .error_kind
                .push(record.error_kind.map(ErrorKind::code));
            column.response_status.push(
                record
                    .response_status
                    .and_then(|status| i16::try_from(status).ok()),
            );
            column.excerpt.push(record.response_excerpt.as_deref());
            column.truncated.push(record.response_truncated);
            column
                .duration_ms
                .push(i32::try_from(record.duration.as_millis()).unwrap_or(i32::MAX));
        }
        column
    }
}
