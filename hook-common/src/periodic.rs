//! The one interval loop: jitter, stop, deadlines, panic and error accounting.
//!
//! A step that fails or takes too long is counted and tried again at the next interval; a step
//! that panics ends the loop, because its state can no longer be trusted, and with the loop the
//! process. Tests call the steps themselves, never this timer.
//!
//! [`Heartbeats`] prove to `/livez` that loops turn; they ask no database.

use std::{future::Future, time::Duration};

use rand::Rng;
use tokio::{task::JoinSet, time::Instant};
use tracing::{debug, warn};

use crate::{
    lifecycle::{Stop, within},
    logging::Repeats,
    metrics::{
        process::{
            LOOP_INTERVAL_SECONDS, LOOP_LAST_SUCCESS_TIMESTAMP_SECONDS, LOOP_RUN_DURATION_SECONDS,
            LOOP_RUNS_TOTAL,
        },
        unix_seconds,
    },
};

mod heartbeat;

#[cfg(test)]
mod tests;

pub use heartbeat::{Heartbeat, Heartbeats};

/// How often a step runs.
#[derive(Clone, Debug)]
pub struct Interval {
    /// Shows in logs, metrics and `/livez`.
    pub name: &'static str,
    /// From the end of one run to the start of the next.
    pub every: Duration,
    /// Each pause is drawn from `every` ± this share, so that many processes spread out.
    pub jitter: f64,
    /// A run that takes longer is dropped and counted as failed.
    pub limit: Duration,
    /// When the first run is.
    pub first: First,
}

/// When the first run of an interval is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum First {
    /// At once.
    Now,
    /// After one interval.
    AfterInterval,
}

/// A loop ended although the process does not drain.
#[derive(Debug, thiserror::Error)]
#[error("a step of {name} panicked")]
pub struct StepPanicked {
    name: &'static str,
}

impl Interval {
    /// An interval with the usual jitter of 20 % whose first run is at once.
    #[must_use]
    pub fn new(name: &'static str, every: Duration, limit: Duration) -> Self {
        Self {
            name,
            every,
            jitter: 0.2,
            limit,
            first: First::Now,
        }
    }

    /// The longest time between two heartbeats of this loop, with room for a busy machine.
    #[must_use]
    pub fn silence_max(&self) -> Duration {
        self.every.mul_f64(1.0 + self.jitter) + self.limit + Duration::from_secs(15)
    }

    /// Runs `step` on the interval until `stop` drains.
    ///
    /// # Errors
    /// When a step panics.
    pub async fn run<Step, Running, E>(
        &self,
        heartbeats: &Heartbeats,
        stop: &Stop,
        mut step: Step,
    ) -> Result<(), StepPanicked>
    where
        Step: FnMut() -> Running + Send,
        Running: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<anyhow::Error> + Send + 'static,
    {
        let heartbeat = heartbeats.register(self.name, self.silence_max());
        LOOP_LAST_SUCCESS_TIMESTAMP_SECONDS
            .gauge(&[self.name])
            .set(0.0);
        LOOP_INTERVAL_SECONDS
            .gauge(&[self.name])
            .set(self.every.as_secs_f64());
        let failures = Repeats::default();
        if self.first == First::AfterInterval {
            stop.pause(self.pause_length()).await;
        }
        while !stop.is_draining() {
            heartbeat.beat();
            let begun = Instant::now();
            let ended = self.run_step(step(), &failures).await?;
            LOOP_RUN_DURATION_SECONDS
                .histogram(&[self.name])
                .record(begun.elapsed());
            LOOP_RUNS_TOTAL
                .counter(&[self.name, ended.word()])
                .increment(1);
            if ended == Ended::Well {
                LOOP_LAST_SUCCESS_TIMESTAMP_SECONDS
                    .gauge(&[self.name])
                    .set(unix_seconds());
            }
            heartbeat.beat();
            stop.pause(self.pause_length()).await;
        }
        Ok(())
    }

    /// One run in a task of its own, so that a panic is seen and not spread.
    async fn run_step<E: Into<anyhow::Error> + Send + 'static>(
        &self,
        running: impl Future<Output = Result<(), E>> + Send + 'static,
        failures: &Repeats,
    ) -> Result<Ended, StepPanicked> {
        let mut task = JoinSet::new();
        task.spawn(running);
        match within(self.limit, task.join_next()).await {
            None => {
                task.abort_all();
                task.shutdown().await;
                let limit_ms = u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX);
                if let Some(failures) = failures.due() {
                    warn!(loop.name = self.name, limit_ms, failures, "periodic step took too long");
                }
                Ok(Ended::TimedOut)
            }
            Some(Some(Ok(Ok(())))) => Ok(Ended::Well),
            Some(Some(Ok(Err(error)))) => {
                if let Some(failures) = failures.due() {
                    let error = format!("{:#}", error.into());
                    warn!(loop.name = self.name, error, failures, "periodic step failed");
                }
                Ok(Ended::Failed)
            }
            Some(Some(Err(error))) if error.is_panic() => {
                LOOP_RUNS_TOTAL
                    .counter(&[self.name, "panicked"])
                    .increment(1);
                Err(StepPanicked { name: self.name })
            }
            Some(Some(Err(_)) | None) => {
                debug!(loop.name = self.name, "periodic step was cut");
                Ok(Ended::Failed)
            }
        }
    }

    fn pause_length(&self) -> Duration {
        let factor = 1.0 + self.jitter * rand::rng().random_range(-1.0..=1.0);
        self.every.mul_f64(factor.max(0.0))
    }
}

/// How one run of a step ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ended {
    Well,
    Failed,
    TimedOut,
}

impl Ended {
    const fn word(self) -> &'static str {
        match self {
            Self::Well => "ok",
            Self::Failed => "failed",
            Self::TimedOut => "timeout",
        }
    }
}
