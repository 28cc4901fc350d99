//! Notifications: tell workers which heads have new jobs, sooner than their next sweep.
//!
//! The payload is what `wakeups.rs` reads: a comma-separated list of target ids, `d` before those
//! whose jobs went to the degraded queue.

use sqlx::PgConnection;

use crate::{job::QueueName, queue::Queue, target::TargetId};

/// The channel that workers listen on.
const CHANNEL: &str = "hook_ready";

/// The payload that names no head: there are new jobs, and a sweep finds them.
const MANY: &str = "*";

/// Largest payload; Postgres takes less than 8,000 bytes.
const PAYLOAD_BYTES_MAX: usize = 7900;

/// Whose jobs are new.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Wake {
    /// Those of more targets than are worth naming.
    Many,
    /// Those of these targets in these queues.
    Heads(Vec<(QueueName, TargetId)>),
}

impl Wake {
    /// The payloads that say it, each short enough for Postgres.
    fn payloads(&self) -> Vec<String> {
        match self {
            Self::Many => vec![MANY.to_owned()],
            Self::Heads(heads) => {
                let mut payloads: Vec<String> = Vec::new();
                for (queue, id) in heads {
                    let word = match queue {
                        QueueName::Primary => id.0.to_string(),
                        QueueName::Degraded => format!("d{}", id.0),
                    };
                    match payloads.last_mut() {
                        Some(last) if last.len() + 1 + word.len() <= PAYLOAD_BYTES_MAX => {
                            last.push(',');
                            last.push_str(&word);
                        }
                        Some(_) | None => payloads.push(word),
                    }
                }
                payloads
            }
        }
    }
}

impl Queue {
    /// Notifies the workers that listen; those that do not, find the jobs when they poll.
    ///
    /// # Errors
    /// Nobody can tell whether workers were notified; they find the jobs when they poll.
    pub async fn notify(&self, wake: &Wake) -> sqlx::Result<()> {
        let mut connection = self.pool().acquire().await?;
        self.notify_on(&mut connection, wake).await
    }

    /// As [`Queue::notify`], on a connection that the caller holds.
    ///
    /// # Errors
    /// As [`Queue::notify`].
    pub async fn notify_on(&self, connection: &mut PgConnection, wake: &Wake) -> sqlx::Result<()> {
        sqlx::query(
            // A notification has a commit of its own, which needs not wait for the disk: what a
            // crash takes away, the sweep finds.
            "-- notify
            SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, payload)
            FROM unnest($2::text[]) AS payload",
        )
        .bind(CHANNEL)
        .bind(wake.payloads())
        .execute(connection)
        .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_short_and_name_every_head() {
        assert_eq!(Wake::Many.payloads(), ["*"]);
        assert!(Wake::Heads(Vec::new()).payloads().is_empty());
        let two = vec![
            (QueueName::Primary, TargetId(12)),
            (QueueName::Degraded, TargetId(-7)),
        ];
        assert_eq!(Wake::Heads(two).payloads(), ["12,d-7"]);
        let many = (0..2000).map(|n| (QueueName::Degraded, TargetId(i64::MIN + n)));
        let payloads = Wake::Heads(many.collect()).payloads();
        assert!(payloads.len() > 1);
        assert!(payloads.iter().all(|payload| payload.len() < 8000));
        let words = payloads.iter().flat_map(|payload| payload.split(','));
        assert_eq!(words.count(), 2000);
    }
}
