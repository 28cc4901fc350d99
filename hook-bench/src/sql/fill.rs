//! Backlogs made by a few large statements, so that millions of jobs take seconds.
//!
//! The rows are what the API would have written for the same jobs; only their number per statement
//! differs. Nothing is analysed or vacuumed here: that is part of a scenario.

use sqlx::{PgPool, Postgres, postgres::PgArguments, query::Query};

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

/// Jobs that have been attempted once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// The bucket that they are in; `None` for the open one.
    pub(crate) bucket: Option<i16>,
    pub(crate) how: How,
    /// Seconds since then.
    pub(crate) seconds_ago: i32,
}

/// How the only attempt ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    Delivered,
    /// By an answer that no retry follows.
    Failed,
}

/// Targets and jobs; what follows says where the jobs stand.
macro_rules! made {
    () => {
        "WITH base AS MATERIALIZED (
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS us,
        COALESCE($10::smallint, hook.open_bucket(0::smallint)) AS bucket
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
"
    };
}

const FILL: &str = concat!(
    "-- fill\n",
    made!(),
    "INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, bucket)
SELECT 0, 0, target_id, due, job_id, bucket FROM made"
);

const FILL_ENDED: &str = concat!(
    "-- fill_ended\n",
    made!(),
    "INSERT INTO hook.finished (shard, bucket, tier, job_id, target_id, finished_at, status, fence, attempt,
    outcome, error_kind, response_status, duration_ms, started_at, worker)
SELECT 0, bucket, 0, job_id, target_id, at, $11::smallint, 1, 1, $12::smallint, $13::smallint, $14::integer, 5,
    at, 'bench'
FROM made CROSS JOIN (SELECT now() - $15::integer * interval '1 second' AS at) AS ended"
);

/// Makes the backlog.
pub(crate) async fn fill(pool: &PgPool, backlog: &Backlog) -> sqlx::Result<()> {
    for numbers in backlog.chunks() {
        let made = backlog.bind(FILL, numbers, None);
        made.execute(pool).await?;
    }
    Ok(())
}

/// Makes as many jobs that have ended, as if they had been enqueued and attempted.
pub(crate) async fn fill_ended(pool: &PgPool, backlog: &Backlog, ended: Ended) -> sqlx::Result<()> {
    let (status, outcome, error_kind, response) = match ended.how {
        How::Delivered => (2_i16, 0_i16, None, 200),
        How::Failed => (3, 2, Some(0_i16), 400),
    };
    for numbers in backlog.chunks() {
        let made = backlog.bind(FILL_ENDED, numbers, ended.bucket);
        made.bind(status)
            .bind(outcome)
            .bind(error_kind)
            .bind(response)
            .bind(ended.seconds_ago)
            .execute(pool)
            .await?;
    }
    Ok(())
}

impl Backlog {
    /// The first and last number of each statement.
    fn chunks(&self) -> impl Iterator<Item = (i64, i64)> {
        let last = self.last();
        let begins = std::iter::successors(Some(self.first), |first| Some(first + CHUNK));
        let begins = begins.take_while(move |first| *first <= last);
        begins.map(move |first| (first, last.min(first + CHUNK - 1)))
    }

    fn last(&self) -> i64 {
        self.first + self.jobs - 1
    }

    /// The statement with what `made!` needs.
    fn bind<'q>(
        &'q self,
        statement: &'static str,
        (first, last): (i64, i64),
        bucket: Option<i16>,
    ) -> Query<'q, Postgres, PgArguments> {
        let before_pad = r#"","pad":""#;
        let used = BEFORE_NUMBER.len() + NUMBER_DIGITS + before_pad.len() + 2;
        let pad = "x".repeat(self.body_bytes.saturating_sub(used));
        let after_number = format!("{before_pad}{pad}\"}}");
        sqlx::query(statement)
            .bind(first)
            .bind(last)
            .bind(&self.targets)
            .bind(&self.urls)
            .bind(self.due_in)
            .bind(self.last())
            .bind(BEFORE_NUMBER)
            .bind(i32::try_from(NUMBER_DIGITS).expect("a few digits"))
            .bind(after_number)
            .bind(bucket)
    }
}
