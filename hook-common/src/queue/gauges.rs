//! Gauges: how many jobs there are, how old they are, and which targets are worst.
//!
//! Each statement is bounded in what it reads. Small tables are counted; of large ones a share of
//! the pages is read, chosen at random, and the count is projected from it. The caller chooses
//! the share.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::queue::{Queue, SHARD, enqueue::millis};

/// The share of a table's pages that is read, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample(f32);

/// Waiting jobs of one tier.
#[derive(Clone, Copy, Debug, Eq, PartialEq, sqlx::FromRow)]
pub struct WaitingJobs {
    /// Number of the [`crate::job::Tier`].
    pub tier: i16,
    /// Jobs, due or not.
    pub jobs: i64,
    /// How long the oldest of those that are due has been due; `None` if none is.
    pub oldest_due_ms: Option<i64>,
}

/// Finished jobs of one tier and status.
#[derive(Clone, Copy, Debug, Eq, PartialEq, sqlx::FromRow)]
pub struct FinishedJobs {
    /// Number of the [`crate::job::Tier`].
    pub tier: i16,
    /// Number of the [`crate::job::Status`].
    pub status: i16,
    /// Jobs.
    pub jobs: i64,
}

/// A bucket that holds jobs, or may.
#[derive(Clone, Copy, Debug, Eq, PartialEq, sqlx::FromRow)]
pub struct BucketUse {
    /// Its place in the ring; -1 is the kept bucket.
    pub bucket: i16,
    /// When it was opened; `None` for the kept bucket.
    pub opened_at: Option<DateTime<Utc>>,
    /// True if it gets no new jobs.
    pub closed: bool,
    /// Size of its table of finished jobs.
    pub finished_pages: i64,
}

/// What there is to know about one target, or about all that are not named.
#[derive(Clone, Debug, Eq, PartialEq, sqlx::FromRow)]
pub struct TargetGauge {
    /// The target; `None` sums up the rest.
    pub target_id: Option<i64>,
    /// Its name; `None` for the rest.
    pub name: Option<String>,
    /// Waiting jobs.
    pub waiting: i64,
    /// Its penalty; the highest one for the rest.
    pub penalty: i16,
}

/// How the database is doing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, sqlx::FromRow)]
pub struct Vitals {
    /// Age of the oldest open transaction.
    pub oldest_transaction_ms: i64,
    /// Age of about the oldest finished job.
    pub oldest_finished_ms: i64,
}

/// Dead rows of one table, by Postgres's own estimate.
#[derive(Clone, Debug, Eq, PartialEq, sqlx::FromRow)]
pub struct DeadRows {
    /// The table.
    pub table_name: String,
    /// The estimate.
    pub dead: i64,
}

/// Size of one table with its partitions, indexes and long values.
#[derive(Clone, Debug, Eq, PartialEq, sqlx::FromRow)]
pub struct TableSize {
    /// The table; the whole database where there is none.
    pub table_name: Option<String>,
    /// The size.
    pub bytes: i64,
}

impl Sample {
    /// Reads about `pages_max` of a table's pages, or all if there are not more.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "a share needs no more than six digits"
    )]
    pub fn of(pages: i64, pages_max: i64) -> Self {
        if pages <= pages_max {
            return Self(100.0);
        }
        Self((100.0 * pages_max as f64 / pages as f64) as f32)
    }

    /// Whether the whole table is read, so that the counts are exact.
    #[must_use]
    pub fn is_exact(self) -> bool {
        self.0 >= 100.0
    }
}

const COUNT_WAITING: &str = "-- count_waiting
SELECT tier, round(count(*) * 100 / $2::real)::bigint AS jobs,
    (extract(epoch FROM now() - min(run_at) FILTER (WHERE run_at <= now())) * 1000)::bigint AS oldest_due_ms
FROM hook.ready TABLESAMPLE SYSTEM ($2::real)
WHERE shard = $1
GROUP BY tier";

// The first job of each head; the index walk of the sweep (queue/sweep.rs).
const OLDEST_DUE: &str = "-- oldest_due
WITH RECURSIVE head (n, tier, target_id, run_at) AS (
    (SELECT 1, tier, target_id, run_at FROM hook.ready WHERE shard = $1
     ORDER BY tier, target_id, run_at LIMIT 1)
    UNION ALL
    SELECT head.n + 1, next.* FROM head CROSS JOIN LATERAL (
        SELECT tier, target_id, run_at FROM hook.ready
        WHERE shard = $1 AND (ready.tier, ready.target_id) > (head.tier, head.target_id)
        ORDER BY tier, target_id, run_at LIMIT 1) AS next
    WHERE head.n < $2
)
SELECT tier, (extract(epoch FROM now() - min(run_at)) * 1000)::bigint AS oldest_due_ms
FROM head WHERE run_at <= now() GROUP BY tier";

const COUNT_RUNNING: &str = "-- count_running
SELECT tier, count(*) AS jobs FROM hook.lease WHERE shard = $1 GROUP BY tier";

const BUCKETS: &str = "-- buckets
SELECT b.bucket, b.opened_at, b.closed,
    pg_relation_size(format('hook.finished_%s', CASE WHEN b.bucket < 0 THEN 'kept' ELSE b.bucket::text END)::regclass)
        / current_setting('block_size')::bigint AS finished_pages
FROM (
    SELECT bucket, opened_at, closed_at IS NOT NULL AS closed FROM hook.bucket
    WHERE shard = $1 AND opened_at IS NOT NULL
    UNION ALL SELECT -1::smallint, NULL, false
) AS b
ORDER BY b.opened_at NULLS FIRST";

const COUNT_FINISHED: &str = "-- count_finished
SELECT tier, status, round(count(*) * 100 / $3::real)::bigint AS jobs
FROM hook.finished TABLESAMPLE SYSTEM ($3::real)
WHERE bucket = $2 AND shard = $1
GROUP BY tier, status";

// Busy is who held slots in this hour or the one before, whatever came of it. A target may bear the
// name of the label for the rest, and then belongs to it.
const WORST_TARGETS: &str = "-- worst_targets
WITH waiting AS MATERIALIZED (
    SELECT target_id, round(count(*) * 100 / $2::real)::bigint AS jobs
    FROM hook.ready TABLESAMPLE SYSTEM ($2::real)
    WHERE shard = $1 GROUP BY target_id
), penalised AS MATERIALIZED (
    SELECT target_id, COALESCE(penalty_pin,
        CASE WHEN changed_at > now() - $3::bigint * interval '1 millisecond' THEN penalty ELSE 0::smallint END) AS penalty
    FROM hook.target
    WHERE shard = $1 AND (paused OR max_in_flight IS NOT NULL OR rate_per_second IS NOT NULL
        OR penalty_pin IS NOT NULL OR penalty > 0 OR held_until IS NOT NULL)
), busy AS MATERIALIZED (
    SELECT target_id, sum(duration_ms)::bigint AS ms FROM hook.target_hour
    WHERE shard = $1 AND hour >= date_trunc('hour', now() - interval '1 hour', 'UTC') GROUP BY target_id
), known AS MATERIALIZED (
    SELECT target_id, sum(jobs)::bigint AS jobs, max(penalty) AS penalty, sum(ms) AS ms FROM (
        SELECT target_id, jobs, 0::smallint AS penalty, 0::bigint AS ms FROM waiting
        UNION ALL SELECT target_id, 0, penalty, 0 FROM penalised WHERE penalty > 0
        UNION ALL SELECT target_id, 0, 0::smallint, ms FROM busy) AS each
    GROUP BY target_id
), ranked AS (
    SELECT t.target_id, t.name, k.jobs, k.penalty, row_number() OVER (
        ORDER BY t.name IS NULL OR t.name = $5, k.penalty DESC, k.jobs DESC, k.ms DESC, k.target_id) AS place
    FROM known AS k LEFT JOIN hook.target AS t ON t.shard = $1 AND t.target_id = k.target_id
), judged AS (
    SELECT place <= $4 AND name <> $5 AS shown, * FROM ranked
)
SELECT CASE WHEN shown THEN target_id END AS target_id, CASE WHEN shown THEN name END AS name,
    sum(jobs)::bigint AS waiting, max(penalty) AS penalty
FROM judged
GROUP BY 1, 2";

// Rows lie about in the order in which they finished, so the first of a bucket is one of its
// oldest. Sessions of other roles show no times unless this one may see them.
const VITALS: &str = "-- vitals
SELECT COALESCE((extract(epoch FROM clock_timestamp() - (
        SELECT min(xact_start) FROM (
            SELECT xact_start FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
            UNION ALL SELECT prepared FROM pg_prepared_xacts WHERE database = current_database()) AS open
    )) * 1000)::bigint, 0) AS oldest_transaction_ms,
    COALESCE((extract(epoch FROM clock_timestamp() - LEAST(
        (SELECT min(first.finished_at) FROM hook.bucket AS b CROSS JOIN LATERAL (
            SELECT f.finished_at FROM hook.finished AS f WHERE f.bucket = b.bucket AND f.shard = $1 LIMIT 1) AS first
         WHERE b.shard = $1 AND b.opened_at IS NOT NULL),
        (SELECT min(first.finished_at) FROM unnest('{2,3,4}'::smallint[]) AS s (status) CROSS JOIN LATERAL (
            SELECT f.finished_at FROM hook.finished_kept AS f WHERE f.shard = $1 AND f.status = s.status
            ORDER BY f.finished_at LIMIT 1) AS first)
    )) * 1000)::bigint, 0) AS oldest_finished_ms";

const DEAD_ROWS: &str = "-- dead_rows
SELECT relname::text AS table_name, n_dead_tup AS dead FROM pg_stat_user_tables
WHERE schemaname = 'hook'
    AND relname = ANY ('{ready,lease,target,idempotency,tally,target_hour,target_total,job_kept,finished_kept,attempt_kept}'::name[])";

const TABLE_SIZES: &str = "-- table_sizes
SELECT COALESCE(p.relname, c.relname)::text AS table_name, sum(pg_total_relation_size(c.oid))::bigint AS bytes
FROM pg_class AS c LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid LEFT JOIN pg_class AS p ON p.oid = i.inhparent
WHERE c.relnamespace = 'hook'::regnamespace AND c.relkind = 'r'
GROUP BY 1
UNION ALL SELECT NULL, pg_database_size(current_database())";

impl Queue {
    /// Counts the waiting jobs.
    ///
    /// # Errors
    /// Postgres could not be asked, as for all gauges.
    pub async fn count_waiting(&self, sample: Sample) -> sqlx::Result<Vec<WaitingJobs>> {
        sqlx::query_as(COUNT_WAITING)
            .bind(SHARD)
            .bind(sample.0)
            .fetch_all(&self.pool())
            .await
    }

    /// Looks for the oldest job that is due, in up to `heads_max` heads; pairs of tier and age in
    /// milliseconds.
    ///
    /// # Errors
    /// As [`Queue::count_waiting`].
    pub async fn oldest_due(&self, heads_max: i32) -> sqlx::Result<Vec<(i16, i64)>> {
        sqlx::query_as(OLDEST_DUE)
            .bind(SHARD)
            .bind(heads_max)
            .fetch_all(&self.pool())
            .await
    }

    /// Counts the running jobs; pairs of tier and number.
    ///
    /// # Errors
    /// As [`Queue::count_waiting`].
    pub async fn count_running(&self) -> sqlx::Result<Vec<(i16, i64)>> {
        sqlx::query_as(COUNT_RUNNING)
            .bind(SHARD)
            .fetch_all(&self.pool())
            .await
    }

    /// Returns the buckets in use and the kept bucket.
    ///
    /// # Errors
    /// As [`Queue::count_waiting`].
    pub async fn buckets(&self) -> sqlx::Result<Vec<BucketUse>> {
        sqlx::query_as(BUCKETS)
            .bind(SHARD)
            .fetch_all(&self.pool())
            .await
    }

    /// Counts the finished jobs of one bucket.
    ///
    /// # Errors
    /// As [`Queue::count_waiting`].
    pub async fn count_finished(
        &self,
        bucket: i16,
        sample: Sample,
    ) -> sqlx::Result<Vec<FinishedJobs>> {
        sqlx::query_as(COUNT_FINISHED)
            .bind(SHARD)
            .bind(bucket)
            .bind(sample.0)
            .fetch_all(&self.pool())
            .await
    }

    /// Returns the `limit` worst targets (by penalty, then by waiting jobs, then by the time that
    /// they held slots lately) and the sum of all others, a target called `rest` among them.
    ///
    /// A penalty that no worker has confirmed for `stale_after` does not count. A target without
    /// penalty, waiting jobs and attempts in this hour and the one before is not there.
    ///
    /// # Errors
    /// As [`Queue::count_waiting`].
    pub async fn worst_targets(
        &self,
        sample: Sample,
        stale_after: Duration,
        limit: usize,
        rest: &str,
    ) -> sqlx::Result<Vec<TargetGauge>> {
        sqlx::query_as(WORST_TARGETS)
            .bind(SHARD)
            .bind(sample.0)
            .bind(millis(stale_after))
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .bind(rest)
            .fetch_all(&self.pool())
            .await
    }

    /// Returns ages that tell how the database is doing.
    ///
    /// # Errors
    /// As [`Queue::count_waiting`].
    pub async fn vitals(&self) -> sqlx::Result<Vitals> {
        sqlx::query_as(VITALS)
            .bind(SHARD)
            .fetch_one(&self.pool())
            .await
    }

    /// Returns the dead rows of the tables whose rows change.
    ///
    /// # Errors
    /// As [`Queue::count_waiting`].
    pub async fn dead_rows(&self) -> sqlx::Result<Vec<DeadRows>> {
        sqlx::query_as(DEAD_ROWS).fetch_all(&self.pool()).await
    }
    /// Returns the sizes of all tables and of the database.
    ///
    /// # Errors
    /// As [`Queue::count_waiting`].
    pub async fn table_sizes(&self) -> sqlx::Result<Vec<TableSize>> {
        sqlx::query_as(TABLE_SIZES).fetch_all(&self.pool()).await
    }
}
