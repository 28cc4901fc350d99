//! Backlogs made by a few large statements, so that millions of jobs take seconds.
//!
//! The rows are what the API would have written for the same jobs; only their number per statement
//! differs. Nothing is analysed or vacuumed here: that is part of a scenario.

use sqlx::PgPool;

use crate::receiver::{BEFORE_NUMBER, NUMBER_DIGITS};

/// Jobs of one statement.
const CHUNK: i64 = 100_000;

/// Jobs to be made, spread evenly over targets.
#[derive(Clone, Debug)]
pub(crate) struct Backlog {
    /// Number of the first job; the others follow.
    pub(crate) first: i64,
    pub(crate) jobs: i64,
    /// Names of the targets. Job n is for number n modulo their count.
    pub(crate) targets: Vec<String>,
    /// Where a target's jobs go, in the same order.
    pub(crate) urls: Vec<String>,
    /// Bytes of a job's body.
    pub(crate) body_bytes: usize,
    /// Seconds from now until the last is due; the others are due one microsecond apart before.
    pub(crate) due_in: f64,
}

const FILL: &str = "-- fill
WITH base AS MATERIALIZED (
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS us,
        hook.open_bucket(0::smallint) AS bucket
), place AS MATERIALIZED (
    SELECT ord - 1 AS ord, name, hook.target_id(name) AS target_id, url
    FROM unnest($3::text[], $4::text[]) WITH ORDINALITY AS p (name, url, ord)
), made AS MATERIALIZED (
    SELECT n, hook.new_job_id(base.us + n - $1) AS job_id, bucket, name, target_id, url,
        now() + ($5 - ($6 - n) * 1e-6) * interval '1 second' AS due
    FROM base, generate_series($1::bigint, $2::bigint) AS n
    JOIN place ON place.ord = n % cardinality($3)
), targets AS (
    INSERT INTO hook.target (shard, target_id, name)
    SELECT 0, target_id, name FROM place ORDER BY target_id
    ON CONFLICT DO NOTHING
), jobs AS (
    INSERT INTO hook.job (shard, bucket, job_id, created_at, scheduled_at, target_id, target, url, headers, body)
    SELECT 0, bucket, job_id, now(), due, target_id, name, url, '{\"content-type\": \"application/json\"}',
        convert_to($7 || lpad(n::text, $8, '0') || $9, 'UTF8')
    FROM made
)
INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, bucket)
SELECT 0, 0, target_id, due, job_id, bucket FROM made";

/// Makes the backlog.
pub(crate) async fn fill(pool: &PgPool, backlog: &Backlog) -> sqlx::Result<()> {
    let last = backlog.first + backlog.jobs - 1;
    let before_pad = r#"","pad":""#;
    let used = BEFORE_NUMBER.len() + NUMBER_DIGITS + before_pad.len() + 2;
    let pad = "x".repeat(backlog.body_bytes.saturating_sub(used));
    let after_number = format!("{before_pad}{pad}\"}}");
    let mut first = backlog.first;
    while first <= last {
        sqlx::query(FILL)
            .bind(first)
            .bind(last.min(first + CHUNK - 1))
            .bind(&backlog.targets)
            .bind(&backlog.urls)
            .bind(backlog.due_in)
            .bind(last)
            .bind(BEFORE_NUMBER)
            .bind(i32::try_from(NUMBER_DIGITS).expect("a few digits"))
            .bind(&after_number)
            .execute(pool)
            .await?;
        first += CHUNK;
    }
    Ok(())
}
