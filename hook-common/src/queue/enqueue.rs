//! Enqueue: inserts jobs, each with its body once and one narrow row in `ready`.
//!
//! One statement stores any number of jobs, so that many requests share one commit. The answer
//! comes back in the order of the jobs.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serializer as _;
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use crate::{
    job::{Due, Expiry, JobId, NewJob, Tier},
    queue::{Queue, SHARD},
};

/// A job and the tier it starts in.
#[derive(Clone, Debug)]
pub struct Enqueue {
    /// What to deliver.
    pub job: NewJob,
    /// Primary, or degraded for a target that is penalised.
    pub tier: Tier,
    /// Header values that must not be stored in clear, sealed; they are not among `job.headers`.
    pub headers_sealed: Option<Vec<u8>>,
}

/// What became of one job of an enqueue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Enqueued {
    /// Stored under this id.
    Stored(JobId),
    /// Not stored: its idempotency key is in use. Ask [`Queue::key_uses`] by whom.
    KeyTaken,
}

/// The job that an idempotency key stands for.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct KeyUse {
    /// The key.
    pub key: String,
    /// Digest of the request that used it first.
    pub request_sha256: Vec<u8>,
    /// The job that request stored; it may have been purged since.
    pub job_id: Uuid,
    /// The tier that the job started in.
    pub tier: i16,
    /// The job's target.
    pub target: String,
}

const ENQUEUE: &str = "-- enqueue
WITH base AS MATERIALIZED (
    SELECT at, (extract(epoch FROM at) * 1000000)::bigint AS us, (
        SELECT bucket FROM hook.bucket WHERE shard = $1 AND opened_at IS NOT NULL AND closed_at IS NULL
    ) AS bucket
    FROM (SELECT clock_timestamp() AS at) AS clock
), input AS MATERIALIZED (
    SELECT i.*, base.bucket, base.at AS created_at,
        hook.new_job_id(base.us + i.ord) AS job_id,
        greatest(base.at, COALESCE(i.due_at, base.at + i.delay_ms * interval '1 millisecond')) AS due,
        COALESCE(i.expires_at, base.at + i.ttl_ms * interval '1 millisecond') AS expiry
    FROM base, unnest($2::text[], $3::text[], $4::bigint[], $5::smallint[], $6::smallint[],
        $7::text[], $8::bytea[], $9::text[], $10::timestamptz[], $11::bigint[], $12::timestamptz[],
        $13::bigint[], $14::smallint[], $15::int[], $16::text[], $17::text[], $18::bytea[], $20::bytea[]
    ) WITH ORDINALITY AS i (url, target, target_id, tier, method, headers, body, metadata,
        due_at, delay_ms, expires_at, ttl_ms, max_attempts, timeout_ms, signing,
        key, request_sha256, headers_sealed, ord)
), keyed AS (
    INSERT INTO hook.idempotency AS k (shard, key, request_sha256, job_id, tier, target, expires_at)
    SELECT $1, key, request_sha256, job_id, tier, target,
        created_at + $19::bigint * interval '1 millisecond'
    FROM input WHERE key IS NOT NULL ORDER BY key
    ON CONFLICT (shard, key) DO UPDATE SET request_sha256 = excluded.request_sha256,
        job_id = excluded.job_id, tier = excluded.tier, target = excluded.target,
        expires_at = excluded.expires_at
    WHERE k.expires_at <= now()
    RETURNING k.job_id
), fresh AS MATERIALIZED (
    SELECT * FROM input WHERE key IS NULL OR job_id IN (SELECT job_id FROM keyed)
), targets AS (
    INSERT INTO hook.target (shard, target_id, name)
    SELECT DISTINCT ON (target_id) $1, target_id, target FROM fresh ORDER BY target_id
    ON CONFLICT DO NOTHING
), jobs AS (
    INSERT INTO hook.job (shard, bucket, job_id, created_at, scheduled_at, expires_at, target_id,
        target, method, url, headers, headers_sealed, metadata, max_attempts, timeout_ms, signing, body)
    SELECT $1, bucket, job_id, created_at, nullif(due, created_at), expiry, target_id, target, method, url,
        headers::jsonb, headers_sealed, metadata, max_attempts, timeout_ms, string_to_array(signing, E'\\n'), body
    FROM fresh
), ready AS (
    INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, bucket, expires_at, timeout_ms)
    SELECT $1, tier, target_id, due, job_id, bucket, expiry, timeout_ms FROM fresh
)
SELECT ord, job_id, key IS NULL OR job_id IN (SELECT job_id FROM keyed) AS stored FROM input";

impl Queue {
    /// Stores `jobs` and returns what became of each, in their order.
    ///
    /// A job whose idempotency key is in use is left out; the others are stored all the same.
    /// Two jobs of one call must not share a key. `key_ttl` is how long a key is remembered.
    ///
    /// # Errors
    /// Nothing was stored, except where the connection was lost after the statement was sent:
    /// then nobody knows, see `db::Fault::OutcomeUnknown`.
    ///
    /// # Cancel safety
    /// Not safe: a dropped call may or may not have stored the jobs. Run it in a task of its own.
    pub async fn enqueue(
        &self,
        jobs: &[Enqueue],
        key_ttl: Duration,
    ) -> sqlx::Result<Vec<Enqueued>> {
        let mut connection = self.pool().acquire().await?;
        self.enqueue_on(&mut connection, jobs, key_ttl).await
    }

    /// As [`Queue::enqueue`], on a connection that the caller holds, so that a failure to get one
    /// is not taken for a failure of the statement.
    ///
    /// # Errors
    /// As [`Queue::enqueue`].
    ///
    /// # Cancel safety
    /// Not safe; run it in a task of its own.
    pub async fn enqueue_on(
        &self,
        connection: &mut PgConnection,
        jobs: &[Enqueue],
        key_ttl: Duration,
    ) -> sqlx::Result<Vec<Enqueued>> {
        insert(connection, jobs, key_ttl).await
    }

    /// Stores all of `jobs`, or none if a key is in use; then the answer is `None`.
    ///
    /// # Errors
    /// As [`Queue::enqueue`].
    ///
    /// # Cancel safety
    /// Not safe; run it in a task of its own.
    pub async fn enqueue_all(
        &self,
        jobs: &[Enqueue],
        key_ttl: Duration,
    ) -> sqlx::Result<Option<Vec<JobId>>> {
        let mut connection = self.pool().acquire().await?;
        self.enqueue_all_on(&mut connection, jobs, key_ttl).await
    }

    /// As [`Queue::enqueue_all`], on a connection that the caller holds.
    ///
    /// # Errors
    /// As [`Queue::enqueue`].
    ///
    /// # Cancel safety
    /// Not safe; run it in a task of its own.
    pub async fn enqueue_all_on(
        &self,
        connection: &mut PgConnection,
        jobs: &[Enqueue],
        key_ttl: Duration,
    ) -> sqlx::Result<Option<Vec<JobId>>> {
        let mut transaction = connection.begin().await?;
        let stored: Option<Vec<JobId>> = insert(&mut transaction, jobs, key_ttl)
            .await?
            .into_iter()
            .map(|enqueued| match enqueued {
                Enqueued::Stored(id) => Some(id),
                Enqueued::KeyTaken => None,
            })
            .collect();
        match stored {
            Some(_) => transaction.commit().await?,
            None => transaction.rollback().await?,
        }
        Ok(stored)
    }

    /// Returns the unexpired uses of these keys, in no order.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the keys.
    pub async fn key_uses(&self, keys: &[&str]) -> sqlx::Result<Vec<KeyUse>> {
        sqlx::query_as(
            "-- key_uses
            SELECT key, request_sha256, job_id, tier, target FROM hook.idempotency
            WHERE shard = $1 AND key = ANY($2) AND expires_at > now()",
        )
        .bind(SHARD)
        .bind(keys)
        .fetch_all(&self.pool())
        .await
    }
}

/// Runs the one insert statement.
async fn insert(
    connection: &mut PgConnection,
    jobs: &[Enqueue],
    key_ttl: Duration,
) -> sqlx::Result<Vec<Enqueued>> {
    let column = Columns::from_jobs(jobs);
    let rows: Vec<(i64, Uuid, bool)> = sqlx::query_as(ENQUEUE)
        .bind(SHARD)
        .bind(&column.url)
        .bind(&column.target)
        .bind(&column.target_id)
        .bind(&column.tier)
        .bind(&column.method)
        .bind(&column.headers)
        .bind(&column.body)
        .bind(&column.metadata)
        .bind(&column.due_at)
        .bind(&column.delay_ms)
        .bind(&column.expires_at)
        .bind(&column.ttl_ms)
        .bind(&column.max_attempts)
        .bind(&column.timeout_ms)
        .bind(&column.signing)
        .bind(&column.key)
        .bind(&column.request_sha256)
        .bind(millis(key_ttl))
        .bind(&column.headers_sealed)
        .fetch_all(connection)
        .await?;
    assert_eq!(rows.len(), jobs.len(), "the statement answers every job");
    let mut enqueued = vec![Enqueued::KeyTaken; jobs.len()];
    for (ord, id, stored) in rows {
        let index = usize::try_from(ord - 1).expect("ordinality starts at 1");
        if stored {
            enqueued[index] = Enqueued::Stored(JobId(id));
        }
    }
    Ok(enqueued)
}

/// The jobs, turned into one array per column.
#[derive(Default)]
struct Columns<'a> {
    url: Vec<&'a str>,
    target: Vec<&'a str>,
    target_id: Vec<i64>,
    tier: Vec<i16>,
    method: Vec<i16>,
    headers: Vec<Option<String>>,
    body: Vec<&'a [u8]>,
    metadata: Vec<Option<&'a str>>,
    due_at: Vec<Option<DateTime<Utc>>>,
    delay_ms: Vec<Option<i64>>,
    expires_at: Vec<Option<DateTime<Utc>>>,
    ttl_ms: Vec<Option<i64>>,
    max_attempts: Vec<Option<i16>>,
    timeout_ms: Vec<Option<i32>>,
    signing: Vec<Option<String>>,
    key: Vec<Option<&'a str>>,
    request_sha256: Vec<Option<&'a [u8]>>,
    headers_sealed: Vec<Option<&'a [u8]>>,
}

impl<'a> Columns<'a> {
    fn from_jobs(jobs: &'a [Enqueue]) -> Self {
        let mut column = Self::default();
        for Enqueue {
            job,
            tier,
            headers_sealed,
        } in jobs
        {
            column.headers_sealed.push(headers_sealed.as_deref());
            column.url.push(&job.url);
            column.target.push(job.target.as_str());
            column.target_id.push(job.target.id().0);
            column.tier.push(tier.code());
            column.method.push(job.method.code());
            column.headers.push(headers_json(&job.headers));
            column.body.push(&job.body);
            column.metadata.push(job.metadata.as_deref());
            column.due_at.push(match job.due {
                Due::At(time) => Some(time),
                Due::Now | Due::After(_) => None,
            });
            column.delay_ms.push(match job.due {
                Due::After(delay) => Some(millis(delay)),
                Due::Now | Due::At(_) => None,
            });
            column.expires_at.push(match job.expires {
                Expiry::At(time) => Some(time),
                Expiry::Never | Expiry::After(_) => None,
            });
            column.ttl_ms.push(match job.expires {
                Expiry::After(ttl) => Some(millis(ttl)),
                Expiry::Never | Expiry::At(_) => None,
            });
            column.max_attempts.push(job.max_attempts);
            column.timeout_ms.push(job.timeout.map(|timeout| {
                i32::try_from(timeout.as_millis()).expect("a timeout is at most 60 s")
            }));
            column
                .signing
                .push((!job.signing.is_empty()).then(|| job.signing.join("\n")));
            column
                .key
                .push(job.idempotency.as_ref().map(|used| used.key.as_str()));
            column.request_sha256.push(
                job.idempotency
                    .as_ref()
                    .map(|used| used.request_sha256.as_slice()),
            );
        }
        column
    }
}

/// The headers as a JSON object; `None` when there are none.
fn headers_json(headers: &[(String, String)]) -> Option<String> {
    if headers.is_empty() {
        return None;
    }
    let mut text = Vec::with_capacity(64 * headers.len());
    serde_json::Serializer::new(&mut text)
        .collect_map(headers.iter().map(|(name, value)| (name, value)))
        .expect("texts can be written as JSON");
    Some(String::from_utf8(text).expect("JSON is UTF-8"))
}

/// Milliseconds for a bind; what does not fit lies beyond any time that Postgres can hold.
pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
