//! Adds rows to the table of targets for jobs that were stored by SQL.
//!
//! `hook.enqueue` adds none: two transactions that store jobs for the same new targets in opposite
//! order would wait for each other. A target without a row works all the same, but it has no
//! name in lists, and workers can share nothing about it.

use crate::{
    job::Tier,
    queue::{Queue, SHARD},
    target::TargetId,
};

/// What one batch did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TargetsAdded {
    /// Rows that were missing.
    pub added: i64,
    /// Where the next batch goes on; `None` once the round is complete.
    pub next: Option<(Tier, TargetId)>,
}

const ADD_MISSING_TARGETS: &str = "-- add_missing_targets
WITH RECURSIVE head (n, tier, target_id, job_id, bucket) AS (
    (SELECT 1, tier, target_id, job_id, bucket FROM hook.ready
     WHERE shard = $1 AND (tier, target_id) > ($2, $3)
     ORDER BY tier, target_id, run_at, job_id LIMIT 1)
    UNION ALL
    SELECT head.n + 1, next.* FROM head CROSS JOIN LATERAL (
        SELECT tier, target_id, job_id, bucket FROM hook.ready
        WHERE shard = $1 AND (ready.tier, ready.target_id) > (head.tier, head.target_id)
        ORDER BY tier, target_id, run_at, job_id LIMIT 1) AS next
    WHERE head.n < $4
), seen AS MATERIALIZED (
    SELECT * FROM head
), added AS (
    INSERT INTO hook.target (shard, target_id, name)
    SELECT DISTINCT ON (s.target_id) $1, s.target_id, j.target
    FROM seen AS s JOIN hook.job AS j ON j.shard = $1 AND j.job_id = s.job_id AND j.bucket = s.bucket
    WHERE j.target <> '' AND length(j.target) <= 255
        AND NOT EXISTS (SELECT FROM hook.target AS t WHERE t.shard = $1 AND t.target_id = s.target_id)
    ORDER BY s.target_id
    ON CONFLICT DO NOTHING
    RETURNING target_id
)
SELECT tier, target_id, (SELECT count(*) FROM added) AS added FROM seen WHERE n = $4
UNION ALL
SELECT NULL, NULL, (SELECT count(*) FROM added) WHERE NOT EXISTS (SELECT FROM seen WHERE n = $4)";

impl Queue {
    /// Looks at up to `limit` heads that follow `after`, and adds a row for each target that has
    /// none.
    ///
    /// # Errors
    /// Whether rows were added is not known; calling again is harmless.
    pub async fn add_missing_targets(
        &self,
        after: Option<(Tier, TargetId)>,
        limit: i32,
    ) -> sqlx::Result<TargetsAdded> {
        let (tier, target_id) = after.unwrap_or((Tier::Primary, TargetId(i64::MIN)));
        let (tier, target_id, added): (Option<i16>, Option<i64>, i64) =
            sqlx::query_as(ADD_MISSING_TARGETS)
                .bind(SHARD)
                .bind(tier.code())
                .bind(target_id.0)
                .bind(limit)
                .fetch_one(&self.pool())
                .await?;
        Ok(TargetsAdded {
            added,
            next: tier.and_then(Tier::from_code).zip(target_id.map(TargetId)),
        })
    }
}
