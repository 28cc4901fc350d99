//! Lists of jobs, newest first, a page at a time.
//!
//! A page costs a bounded amount of work, whatever is asked for. What an index can find is found
//! by it; where none fits the filter, at most [`WALKED_MAX`] rows are walked, and a page may then
//! be shorter than asked for although more jobs follow: only a missing cursor means the end.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sqlx::{FromRow, Row, postgres::PgRow};
use uuid::Uuid;

use crate::{
    job::{JobId, QueueName, Status, Tier},
    queue::{AttemptView, JobView, Queue, SHARD},
    target::Target,
};

/// Rows that one page walks at most in each place a job can be in.
const WALKED_MAX: i64 = 5_000;

/// Which jobs, and how many.
#[derive(Clone, Debug)]
pub struct JobFilter {
    /// Where they stand; `None` means anywhere.
    pub status: Option<Status>,
    /// Their target.
    pub target: Option<Target>,
    /// Their queue.
    pub queue: Option<QueueName>,
    /// Created at this time or later.
    pub from: Option<DateTime<Utc>>,
    /// Created before this time.
    pub to: Option<DateTime<Utc>>,
}

/// One page of a list.
#[derive(Debug)]
pub struct JobPage {
    /// The jobs, newest first.
    pub jobs: Vec<JobView>,
    /// Where the next page starts; `None` when there is none.
    pub next: Option<JobId>,
}

// $7 is the size of the page, $8 the bound of a walk, $9 that of a walk whose rows are all asked for but
// perhaps for their tier. `floor` is the highest of the ids at which a walk was cut short: below it, the
// page knows nothing.
//
// A target is written as a range of one, and its jobs are ordered by it: only the index that begins with
// the target has that order. With an equality, another index has it too, and the planner takes a target
// for one with few jobs, which it may as well read all and sort.
const LIST: &str = "-- list
WITH target_ready AS MATERIALIZED (
    SELECT job_id, tier, attempt, run_at, bucket FROM hook.ready
    WHERE shard = $1 AND $5::bigint IS NOT NULL AND $4::smallint[] @> '{0}'
        AND tier = ANY ('{0,1,2}'::smallint[]) AND target_id = $5
    LIMIT $8
), ready_walk AS MATERIALIZED (
    SELECT job_id, tier, attempt, run_at, bucket, target_id FROM hook.ready
    WHERE shard = $1 AND $4::smallint[] @> '{0}' AND job_id < $2 AND job_id >= $3
        AND ($5::bigint IS NULL OR (SELECT count(*) FROM target_ready) = $8)
    ORDER BY job_id DESC LIMIT CASE WHEN $5::bigint IS NULL THEN $9 ELSE $8 END
), completed_walk AS MATERIALIZED (
    SELECT job_id, status, tier, attempt, finished_at, error_kind, bucket, target_id FROM hook.finished
    WHERE shard = $1 AND $4::smallint[] @> '{2}' AND job_id < $2 AND job_id >= $3
    ORDER BY job_id DESC LIMIT $8
), ended_walk AS MATERIALIZED (
    (SELECT job_id, status, tier, attempt, finished_at, error_kind, bucket FROM hook.finished
     WHERE shard = $1 AND status = 3 AND status <> 2 AND $4::smallint[] @> '{3}' AND $5::bigint IS NULL
        AND job_id < $2 AND job_id >= $3
     ORDER BY job_id DESC LIMIT $9)
    UNION ALL
    (SELECT job_id, status, tier, attempt, finished_at, error_kind, bucket FROM hook.finished
     WHERE shard = $1 AND status = 4 AND status <> 2 AND $4::smallint[] @> '{4}' AND $5::bigint IS NULL
        AND job_id < $2 AND job_id >= $3
     ORDER BY job_id DESC LIMIT $9)
    UNION ALL
    (SELECT job_id, status, tier, attempt, finished_at, error_kind, bucket FROM hook.finished
     WHERE shard = $1 AND status = 3 AND status <> 2 AND $4::smallint[] @> '{3}' AND target_id >= $5
        AND target_id <= $5 AND job_id < $2 AND job_id >= $3
     ORDER BY target_id DESC, job_id DESC LIMIT $9)
    UNION ALL
    (SELECT job_id, status, tier, attempt, finished_at, error_kind, bucket FROM hook.finished
     WHERE shard = $1 AND status = 4 AND status <> 2 AND $4::smallint[] @> '{4}' AND target_id >= $5
        AND target_id <= $5 AND job_id < $2 AND job_id >= $3
     ORDER BY target_id DESC, job_id DESC LIMIT $9)
), floor AS MATERIALIZED (
    SELECT max(lowest::text)::uuid AS job_id FROM (
        (SELECT job_id AS lowest FROM ready_walk
         WHERE (SELECT count(*) FROM ready_walk) = CASE WHEN $5::bigint IS NULL THEN $9 ELSE $8 END
         ORDER BY job_id LIMIT 1)
        UNION ALL
        (SELECT job_id FROM completed_walk WHERE (SELECT count(*) FROM completed_walk) = $8
         ORDER BY job_id LIMIT 1)
        UNION ALL
        SELECT min(job_id::text)::uuid FROM ended_walk GROUP BY status HAVING count(*) = $9
    ) AS walks
), found AS (
    SELECT job_id, 0::smallint AS status, tier, attempt, run_at, NULL::timestamptz AS finished_at,
        NULL::smallint AS error_kind, bucket
    FROM ready_walk WHERE $5::bigint IS NULL OR target_id = $5
    UNION ALL
    SELECT job_id, 0::smallint, tier, attempt, run_at, NULL, NULL, bucket
    FROM target_ready WHERE (SELECT count(*) FROM target_ready) < $8 AND job_id < $2 AND job_id >= $3
    UNION ALL
    SELECT job_id, 1::smallint, tier, attempt, run_at, NULL, NULL, bucket
    FROM hook.lease WHERE shard = $1 AND $4::smallint[] @> '{1}' AND job_id < $2 AND job_id >= $3
        AND ($5::bigint IS NULL OR target_id = $5)
    UNION ALL
    SELECT job_id, status, tier, attempt, NULL, finished_at, error_kind, bucket
    FROM completed_walk WHERE status = 2 AND ($5::bigint IS NULL OR target_id = $5)
    UNION ALL
    SELECT job_id, status, tier, attempt, NULL, finished_at, error_kind, bucket FROM ended_walk
), page AS (
    SELECT found.* FROM found, floor
    WHERE (floor.job_id IS NULL OR found.job_id >= floor.job_id) AND tier = ANY ($6)
    ORDER BY found.job_id DESC LIMIT $7
)
SELECT floor.job_id AS floor, p.job_id AS found, j.job_id, p.status, p.tier, j.target, j.url, j.method, j.headers,
    j.headers_sealed, j.metadata, p.attempt, j.max_attempts, j.created_at,
    COALESCE(p.run_at, j.scheduled_at, j.created_at) AS scheduled_at, j.expires_at, p.finished_at,
    p.error_kind, NULL::bytea AS body
FROM floor LEFT JOIN page AS p ON true
    LEFT JOIN hook.job AS j ON j.shard = $1 AND j.job_id = p.job_id AND j.bucket = p.bucket
ORDER BY p.job_id DESC NULLS LAST";

// Excerpts are cut further than those of a single job: a page may hold fifty thousand of them.
const ATTEMPTS_OF: &str = "-- attempts_of
SELECT job_id, attempt, started_at, duration_ms, outcome, error_kind, response_status,
    substring(response_excerpt FROM 1 FOR 256) AS response_excerpt,
    COALESCE(response_truncated OR length(response_excerpt) > 256, false) AS response_truncated, worker
FROM (
    SELECT job_id, fence, attempt, started_at, duration_ms, outcome, error_kind, response_status,
        response_excerpt, response_truncated, worker
    FROM hook.attempt WHERE shard = $1 AND job_id = ANY ($2)
    UNION ALL
    SELECT job_id, fence, attempt, started_at, duration_ms, outcome, error_kind, response_status,
        response_excerpt, response_truncated, worker
    FROM hook.finished WHERE shard = $1 AND job_id = ANY ($2) AND outcome IS NOT NULL
) AS a
ORDER BY job_id, fence";

impl Queue {
    /// Returns up to `limit` jobs that match, newest first, from the one before `before` on.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the jobs.
    pub async fn list(
        &self,
        filter: &JobFilter,
        before: Option<JobId>,
        limit: usize,
    ) -> sqlx::Result<JobPage> {
        let range = filter.ids();
        // One more than asked for tells whether there are more.
        let page = i64::try_from(limit).unwrap_or(i64::MAX - 1) + 1;
        let upper = before.map_or(range.end, |before| before.0.min(range.end));
        let rows: Vec<ListRow> = sqlx::query_as(LIST)
            .bind(SHARD)
            .bind(upper)
            .bind(range.start)
            .bind(filter.status_codes())
            .bind(filter.target.as_ref().map(|target| target.id().0))
            .bind(tier_codes(filter.queue))
            .bind(page)
            .bind(WALKED_MAX)
            .bind(if filter.queue.is_some() {
                WALKED_MAX.max(page)
            } else {
                page
            })
            .fetch_all(&self.pool())
            .await?;
        let floor = rows.first().and_then(|row| row.floor);
        // A row whose job was taken away by hand is passed over, and the page goes on behind it.
        let next = match rows.get(limit) {
            Some(_) => limit.checked_sub(1).and_then(|last| rows[last].found),
            None => floor,
        };
        let page = rows.into_iter().take(limit);
        let jobs = page.filter_map(|row| row.job).collect();
        let next = next.map(JobId);
        Ok(JobPage { jobs, next })
    }

    /// Returns the attempts of several jobs that are over, each job's in the order they were made,
    /// with at most 256 bytes of each answer.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the jobs.
    pub async fn attempts_of(
        &self,
        jobs: &[JobId],
    ) -> sqlx::Result<HashMap<JobId, Vec<AttemptView>>> {
        let ids: Vec<Uuid> = jobs.iter().map(|job| job.0).collect();
        let rows: Vec<AttemptRow> = sqlx::query_as(ATTEMPTS_OF)
            .bind(SHARD)
            .bind(ids)
            .fetch_all(&self.pool())
            .await?;
        let mut attempts: HashMap<JobId, Vec<AttemptView>> = HashMap::new();
        for row in rows {
            attempts
                .entry(JobId(row.job_id))
                .or_default()
                .push(row.attempt);
        }
        Ok(attempts)
    }
}

impl JobFilter {
    /// The ids that jobs of this time can have: ids begin with the time they were made at.
    pub(super) fn ids(&self) -> std::ops::Range<Uuid> {
        let start = self.from.map_or(Uuid::nil(), first_id_at);
        let end = self.to.map_or(Uuid::max(), first_id_at);
        start..end
    }

    fn status_codes(&self) -> Vec<i16> {
        match self.status {
            Some(status) => vec![status.code()],
            None => Status::ALL.iter().map(|status| status.code()).collect(),
        }
    }
}

pub(super) fn tier_codes(queue: Option<QueueName>) -> Vec<i16> {
    let tiers = queue.map_or(Tier::ALL, QueueName::tiers);
    tiers.iter().map(|tier| tier.code()).collect()
}

/// The lowest id that `hook.new_job_id` makes at this time.
fn first_id_at(time: DateTime<Utc>) -> Uuid {
    let micros = u128::try_from(time.timestamp_micros()).unwrap_or(0);
    let (millis, rest) = (micros / 1000, micros % 1000);
    let fraction = rest * 4096 / 1000;
    Uuid::from_u128((millis & 0xffff_ffff_ffff) << 80 | 7 << 76 | fraction << 64)
}

/// A row of a page: where its walks ended, and a job unless the page is empty.
struct ListRow {
    floor: Option<Uuid>,
    found: Option<Uuid>,
    job: Option<JobView>,
}

impl FromRow<'_, PgRow> for ListRow {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let id: Option<Uuid> = row.try_get("job_id")?;
        Ok(Self {
            floor: row.try_get("floor")?,
            found: row.try_get("found")?,
            job: match id {
                Some(_) => Some(JobView::from_row(row)?),
                None => None,
            },
        })
    }
}

#[derive(FromRow)]
struct AttemptRow {
    job_id: Uuid,
    #[sqlx(flatten)]
    attempt: AttemptView,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_a_time_begin_with_it() {
        let time = DateTime::from_timestamp_micros(1_700_000_000_123_456).unwrap();
        let id = first_id_at(time);
        assert_eq!(id.get_version_num(), 7);
        assert_eq!(id.as_u128() >> 80, 1_700_000_000_123);
        assert!(first_id_at(time + chrono::Duration::microseconds(1)) > id);
    }
}
