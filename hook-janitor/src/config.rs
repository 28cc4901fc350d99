//! The janitor's settings.

use std::time::Duration;

use hook_common::{config::Reader, queue::Retention};

/// Everything a janitor is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// How often queues and targets are measured and missing targets added; reaping and purging
    /// look for work at least once a second. Too small loads Postgres, too large makes metrics
    /// old.
    pub interval: Duration,
    /// How long finished jobs stay. Too small loses the record of deliveries, too large costs
    /// disk.
    pub retention: Retention,
    /// How long the hourly numbers of each target stay. Too small forgets what a bad day is to be
    /// compared with, too large costs disk.
    pub history_retention: Duration,
    /// Attempts of a job that gives no number: a lost one may have been its last.
    pub max_attempts: i16,
    /// How often workers confirm a penalty; one that is not confirmed is not shown.
    pub penalty_refresh: Duration,
    /// Targets with series of their own. Too small hides bad ones in `other`, too large burdens
    /// the monitoring system.
    pub metrics_targets_max: usize,
}

impl Config {
    /// Reads the settings; bad ones are left with the reader.
    pub fn read(reader: &mut Reader<'_>) -> Self {
        Self {
            interval: reader.duration("HOOK_JANITOR_INTERVAL"),
            retention: Retention {
                completed: reader.duration("HOOK_RETENTION_COMPLETED"),
                failed: reader.duration("HOOK_RETENTION_FAILED"),
            },
            history_retention: reader.duration("HOOK_RETENTION_HISTORY"),
            max_attempts: i16::try_from(reader.count("HOOK_MAX_ATTEMPTS", 1..=100))
                .expect("the range ends at 100"),
            penalty_refresh: reader.duration("HOOK_PENALTY_REFRESH"),
            metrics_targets_max: reader.count("HOOK_METRICS_TARGETS_MAX", 0..=10_000),
        }
    }
}
