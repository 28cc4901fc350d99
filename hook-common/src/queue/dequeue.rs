//! Dequeue: leases jobs, target by target, in the order the caller wants them served.
//!
//! The caller sends one entry per head (target and tier) with the number of jobs it may take.
//! Postgres makes one short index probe per head and stops as soon as the batch is full, so the
//! order of the array is the policy, and worse targets are not even looked at. The attempt is
//! counted here, in the statement that leases: a job that kills its worker has used it up.

use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use sqlx::{Arguments as _, postgres::PgArguments};
use uuid::Uuid;

use crate::{
    job::{JobId, Tier},
    queue::{Queue, SHARD, enqueue::millis},
    target::TargetId,
};

/// Before every time that a row can hold (`hook.instant`).
const EARLIEST: DateTime<Utc> = DateTime::from_timestamp(-62_135_596_800, 0).expect("year 1");

/// One head to take jobs from.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Whose jobs.
    pub target_id: TargetId,
    /// From which of the target's lines.
    pub tier: Tier,
    /// How many at most; 1 or more.
    pub take: i32,
    /// Jobs due before this are known to be gone, so that dead index entries are not walked again.
    /// `None` looks from the beginning.
    pub low: Option<DateTime<Utc>>,
}

/// For how long, and to whom, jobs are leased.
#[derive(Clone, Debug)]
pub struct LeaseTerm {
    /// How long a lease lasts.
    pub lease: Duration,
    /// How much longer than its own timeout a job is leased at least, where it has one.
    pub margin: Duration,
    /// Name of the worker.
    pub worker: String,
}

/// The right to attempt one job until `leased_until`.
///
/// Not `Clone`, and consumed by whoever ends it. Dropping it is safe: the lease expires and the
/// janitor gives the job back.
#[derive(Debug)]
#[must_use = "a dropped lease keeps its job waiting until the lease expires"]
pub struct Lease {
    /// The job.
    pub job_id: JobId,
    /// Proves that this lease is the job's newest.
    pub fence: i64,
    /// The attempt that it allows, counted from 1.
    pub attempt: i32,
    /// The job's target.
    pub target_id: TargetId,
    /// The line that the job was taken from.
    pub tier: Tier,
    /// Where the lease's row lies; a hint that saves an index, worth nothing without the fence.
    pub(super) tid: String,
}

/// A leased job with all that an attempt needs. Texts are as stored: rows made by SQL may hold
/// anything, so the worker checks them again.
#[derive(Debug)]
pub struct LeasedJob {
    /// The right to attempt it.
    pub lease: Lease,
    /// When it was due.
    pub run_at: DateTime<Utc>,
    /// True if its time to live had ended when it was leased.
    pub expired: bool,
    /// Attempts in all, where the producer said so.
    pub max_attempts: Option<i16>,
    /// Whole-attempt deadline in milliseconds, where the producer said so.
    pub timeout_ms: Option<i32>,
    /// Number of the HTTP method.
    pub method: i16,
    /// The target's name.
    pub target: String,
    /// The URL.
    pub url: String,
    /// The headers: the text of a JSON value that should be an object.
    pub headers: Option<String>,
    /// Sealed header values.
    pub headers_sealed: Option<Vec<u8>>,
    /// Names of signing secrets: the text of a JSON value that should be a list.
    pub signing: Option<String>,
    /// The body.
    pub body: Bytes,
}

/// What a dequeue brought.
#[derive(Debug, Default)]
pub struct Dequeued {
    /// The leased jobs, in no order.
    pub jobs: Vec<LeasedJob>,
    /// Postgres's time at the dequeue, where there were jobs.
    pub now: Option<DateTime<Utc>>,
}

// Whatever a row holds must be readable here: a value that cannot be decoded would fail the whole
// batch, again and again. So JSON and arrays come as text, and the attempt judges them.
//
// The probe must stay a nested loop over an index scan that stops at the limit: an ORDER BY on
// the outside, or a join of the DELETE by key, would lock rows that are then dropped. The LIMIT
// in the look-up of the job keeps it from being turned into a scan of all jobs. A plan test
// (tests/it/queue/plans.rs) holds that.
macro_rules! dequeue_sql {
    () => {
        "WITH pick AS MATERIALIZED (
    SELECT r.tid
    FROM unnest($2::bigint[], $3::smallint[], $4::int[], $5::timestamptz[]) AS head (target_id, tier, take, low)
    CROSS JOIN LATERAL (
        SELECT ready.ctid AS tid FROM hook.ready
        WHERE shard = $1 AND tier = head.tier AND target_id = head.target_id
            AND run_at >= head.low AND run_at <= now()
        ORDER BY run_at, job_id
        LIMIT head.take
        FOR UPDATE SKIP LOCKED) AS r
    LIMIT $6
), taken AS (
    DELETE FROM hook.ready WHERE ctid = ANY (ARRAY(SELECT tid FROM pick))
    RETURNING target_id, tier, run_at, job_id, fence, attempt, bucket, expires_at, timeout_ms
), leased AS (
    INSERT INTO hook.lease (shard, target_id, tier, run_at, job_id, fence, attempt, bucket, leased_at,
        leased_until, expires_at, timeout_ms, worker)
    SELECT $1, target_id, tier, run_at, job_id, fence + 1, attempt + 1, bucket, now(),
        now() + greatest($7::bigint, timeout_ms + $8::bigint) * interval '1 millisecond', expires_at, timeout_ms, $9
    FROM taken
    RETURNING lease.ctid::text AS tid, target_id, tier, run_at, job_id, fence, attempt, bucket, expires_at, timeout_ms
)
SELECT l.tid, l.job_id, l.fence, l.attempt, l.target_id, l.tier, l.run_at, now() AS now,
    COALESCE(l.expires_at <= now(), false) AS expired, j.max_attempts, l.timeout_ms, j.method, j.target,
    j.url, j.headers::text AS headers, j.headers_sealed, to_json(j.signing)::text AS signing, j.body
FROM leased AS l LEFT JOIN LATERAL (
    SELECT * FROM hook.job WHERE shard = $1 AND job_id = l.job_id AND bucket = l.bucket LIMIT 1
) AS j ON true"
    };
}

const DEQUEUE: &str = concat!("-- dequeue\n", dequeue_sql!());

/// The statement of the dequeue as a prepared one, so that `EXPLAIN EXECUTE hook_dequeue (…)` shows
/// what Postgres makes of it.
pub const PREPARE_DEQUEUE: &str = concat!("PREPARE hook_dequeue AS ", dequeue_sql!());

const EXPLAIN_DEQUEUE: &str = concat!(
    "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)\n-- dequeue\n",
    dequeue_sql!()
);

#[derive(sqlx::FromRow)]
struct Row {
    tid: String,
    job_id: Uuid,
    fence: i64,
    attempt: i32,
    target_id: i64,
    tier: i16,
    run_at: DateTime<Utc>,
    now: DateTime<Utc>,
    expired: bool,
    max_attempts: Option<i16>,
    timeout_ms: Option<i32>,
    method: Option<i16>,
    target: Option<String>,
    url: Option<String>,
    headers: Option<String>,
    headers_sealed: Option<Vec<u8>>,
    signing: Option<String>,
    body: Option<Vec<u8>>,
}

impl Queue {
    /// Leases up to `limit` due jobs from `heads`, the first heads first.
    ///
    /// Jobs that another worker is taking at this moment are skipped. Within a head, jobs come in
    /// the order they were due.
    ///
    /// # Errors
    /// Nothing is known to be leased; what was leased all the same comes back when its lease
    /// expires.
    ///
    /// # Cancel safety
    /// Not safe: a dropped call may have leased jobs that nobody attempts until their leases end.
    pub async fn dequeue(
        &self,
        heads: &[Head],
        limit: usize,
        term: &LeaseTerm,
    ) -> sqlx::Result<Dequeued> {
        let rows: Vec<Row> = sqlx::query_as_with(DEQUEUE, arguments(heads, limit, term)?)
            .fetch_all(&self.pool())
            .await?;
        assert!(
            rows.len() <= limit,
            "a dequeue leases no more than it was asked for"
        );
        Ok(Dequeued {
            now: rows.first().map(|row| row.now),
            jobs: rows.into_iter().map(LeasedJob::from).collect(),
        })
    }

    /// Leases as [`Queue::dequeue`] does, and returns what Postgres did for it and which pages it
    /// touched, as `EXPLAIN` writes it. The jobs come back only when their leases are over.
    ///
    /// # Errors
    /// As [`Queue::dequeue`].
    ///
    /// # Cancel safety
    /// As [`Queue::dequeue`].
    pub async fn explain_dequeue(
        &self,
        heads: &[Head],
        limit: usize,
        term: &LeaseTerm,
    ) -> sqlx::Result<serde_json::Value> {
        sqlx::query_scalar_with(EXPLAIN_DEQUEUE, arguments(heads, limit, term)?)
            .fetch_one(&self.pool())
            .await
    }
}

/// What the statement is given.
fn arguments(heads: &[Head], limit: usize, term: &LeaseTerm) -> sqlx::Result<PgArguments> {
    let target_ids: Vec<i64> = heads.iter().map(|head| head.target_id.0).collect();
    let tiers: Vec<i16> = heads.iter().map(|head| head.tier.code()).collect();
    let takes: Vec<i32> = heads.iter().map(|head| head.take).collect();
    let lows: Vec<DateTime<Utc>> = heads
        .iter()
        .map(|head| head.low.unwrap_or(EARLIEST))
        .collect();
    let mut arguments = PgArguments::default();
    let added = arguments
        .add(SHARD)
        .and_then(|()| arguments.add(target_ids))
        .and_then(|()| arguments.add(tiers))
        .and_then(|()| arguments.add(takes))
        .and_then(|()| arguments.add(lows))
        .and_then(|()| arguments.add(i64::try_from(limit).unwrap_or(i64::MAX)))
        .and_then(|()| arguments.add(millis(term.lease)))
        .and_then(|()| arguments.add(millis(term.margin)))
        .and_then(|()| arguments.add(&term.worker));
    added.map_err(sqlx::Error::Encode)?;
    Ok(arguments)
}

impl From<Row> for LeasedJob {
    fn from(row: Row) -> Self {
        Self {
            lease: Lease {
                tid: row.tid,
                job_id: JobId(row.job_id),
                fence: row.fence,
                attempt: row.attempt,
                target_id: TargetId(row.target_id),
                tier: Tier::from_code(row.tier).expect("a CHECK constraint allows no other tier"),
            },
            run_at: row.run_at,
            expired: row.expired,
            max_attempts: row.max_attempts,
            timeout_ms: row.timeout_ms,
            // A ready row without its job can only be made by hand; the empty URL ends it as
            // an invalid request instead of losing it from sight.
            method: row.method.unwrap_or(0),
            target: row.target.unwrap_or_default(),
            url: row.url.unwrap_or_default(),
            headers: row.headers,
            headers_sealed: row.headers_sealed,
            signing: row.signing,
            body: row.body.unwrap_or_default().into(),
        }
    }
}
