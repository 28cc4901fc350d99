//! The record of what people changed.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use crate::queue::{Queue, SHARD, enqueue::millis};

/// A change that somebody asks for.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// What is to be done, in one word.
    pub action: &'a str,
    /// To what: a job, a target, a secret.
    pub subject: &'a str,
    /// What was said about it; never a secret.
    pub detail: &'a Value,
    /// What tells the sender's token from others, without being it.
    pub token: Option<&'a str>,
    /// Where the request came from.
    pub remote: &'a str,
}

/// A change that was asked for.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct AuditEntry {
    /// Sorts by time.
    pub audit_id: Uuid,
    /// When.
    pub at: DateTime<Utc>,
    /// What was to be done.
    pub action: String,
    /// To what.
    pub subject: String,
    /// What was said about it.
    pub detail: Value,
    /// What tells the sender's token from others.
    pub token: Option<String>,
    /// Where the request came from.
    pub remote: String,
}

const RECORD: &str = "-- record
INSERT INTO hook.audit (shard, audit_id, at, action, subject, detail, token, remote)
SELECT $1, hook.new_job_id((extract(epoch FROM at) * 1000000)::bigint), at, $2, $3, $4, $5, $6
FROM (SELECT clock_timestamp() AS at) AS clock";

const AUDIT: &str = "-- audit
SELECT audit_id, at, action, subject, detail, token, remote FROM hook.audit
WHERE shard = $1 AND audit_id < $2 ORDER BY audit_id DESC LIMIT $3";

// Ids sort by time, so the oldest entries are all that has to be looked at.
const PURGE_AUDIT: &str = "-- purge_audit
DELETE FROM hook.audit WHERE shard = $1 AND audit_id IN (
    SELECT audit_id FROM (
        SELECT audit_id, at FROM hook.audit WHERE shard = $1 ORDER BY audit_id LIMIT $3
    ) AS oldest
    WHERE at < now() - $2::bigint * interval '1 millisecond')";

impl Queue {
    /// Records that a change was asked for.
    ///
    /// # Errors
    /// Whether it was recorded is not known; the change must not be made.
    pub async fn record(&self, change: Change<'_>) -> sqlx::Result<()> {
        sqlx::query(RECORD)
            .bind(SHARD)
            .bind(change.action)
            .bind(change.subject)
            .bind(change.detail)
            .bind(change.token)
            .bind(change.remote)
            .execute(&self.pool())
            .await?;
        Ok(())
    }

    /// Returns up to `limit` entries, the latest first, from the one before `before` on.
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the entries.
    pub async fn audit(&self, before: Option<Uuid>, limit: usize) -> sqlx::Result<Vec<AuditEntry>> {
        sqlx::query_as(AUDIT)
            .bind(SHARD)
            .bind(before.unwrap_or(Uuid::max()))
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&self.pool())
            .await
    }

    /// Removes up to `limit` entries that are older than `retention`; returns how many.
    ///
    /// # Errors
    /// Whether they were removed is not known; removing them again is harmless.
    pub async fn purge_audit(&self, retention: Duration, limit: i64) -> sqlx::Result<u64> {
        let purged = sqlx::query(PURGE_AUDIT)
            .bind(SHARD)
            .bind(millis(retention))
            .bind(limit)
            .execute(&self.pool())
            .await?;
        Ok(purged.rows_affected())
    }
}
