//! Notifications: tell workers that targets have new jobs, sooner than their next poll.

use crate::{queue::Queue, target::TargetId};

/// The channel that workers listen on. A payload is a comma-separated list of target ids, or
/// [`WAKE_ALL`].
pub const WAKE_CHANNEL: &str = "hook_ready";

/// The payload that stands for every target.
pub const WAKE_ALL: &str = "*";

/// Largest payload; Postgres takes less than 8,000 bytes.
const PAYLOAD_BYTES_MAX: usize = 7900;

/// Whose jobs are new.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Wake {
    /// So many that it is quicker to look at all.
    All,
    /// These targets'.
    Targets(Vec<TargetId>),
}

impl Wake {
    /// The payloads that say it, each short enough for Postgres.
    fn payloads(&self) -> Vec<String> {
        match self {
            Self::All => vec![WAKE_ALL.to_owned()],
            Self::Targets(ids) => {
                let mut payloads: Vec<String> = Vec::new();
                for id in ids {
                    let id = id.0.to_string();
                    match payloads.last_mut() {
                        Some(last) if last.len() + 1 + id.len() <= PAYLOAD_BYTES_MAX => {
                            last.push(',');
                            last.push_str(&id);
                        }
                        Some(_) | None => payloads.push(id),
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
        sqlx::query(
            "-- notify
            SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload",
        )
        .bind(WAKE_CHANNEL)
        .bind(wake.payloads())
        .execute(&self.pool())
        .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_short_and_hold_every_id() {
        assert_eq!(Wake::All.payloads(), ["*"]);
        assert!(Wake::Targets(Vec::new()).payloads().is_empty());
        let ids: Vec<TargetId> = (0..2000).map(|n| TargetId(i64::MIN + n)).collect();
        let payloads = Wake::Targets(ids.clone()).payloads();
        assert!(payloads.len() > 1);
        assert!(payloads.iter().all(|payload| payload.len() < 8000));
        let read: Vec<TargetId> = payloads
            .iter()
            .flat_map(|payload| payload.split(','))
            .map(|id| TargetId(id.parse().unwrap()))
            .collect();
        assert_eq!(read, ids);
    }
}
