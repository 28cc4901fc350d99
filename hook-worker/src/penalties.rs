//! Penalties: what this worker tells the others about targets, and what it hears from them.
//!
//! Two rhythms. Every second it reads what people and other workers say, and shares its own
//! findings when they changed, so that a pause or a limit is obeyed at once and a worker that
//! starts cold knows which targets are sick. On the slower refresh it asks Postgres for the
//! targets with the most retryable failures waiting. A read that fails keeps what was known and
//! lets its age show; it never delays a dequeue.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hook_common::{
    metrics::worker as metric,
    queue::{self, Finding, SpecialTarget},
    target::TargetId,
};
use tokio::time::Instant;

use crate::{policy::Directive, worker::Shared};

/// Targets with settings or findings that are read at most; those changed last come first.
const SPECIAL_MAX: usize = 10_000;

/// Waiting retries from which on a target is pushed back.
const FAILING_JOBS_MIN: i64 = 5;

/// A finding is repeated this much more often than it is forgotten.
const STALE_REFRESHES: u32 = 3;

/// What the worker last heard and said.
#[derive(Debug, Default)]
pub(crate) struct Penalties {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    directed: HashMap<TargetId, Directive>,
    failing: HashMap<TargetId, u8>,
    reported: HashMap<TargetId, (u8, bool)>,
    reported_at: Option<Instant>,
    refreshed_at: Option<Instant>,
}

impl Penalties {
    /// Reads what is said about targets, and shares what this worker found.
    ///
    /// # Errors
    /// Postgres could not be asked; what was known stays in force.
    pub(crate) async fn share_once(&self, shared: &Shared) -> queue::Result<()> {
        let stale_after = shared.config.penalty_refresh * STALE_REFRESHES;
        let special = shared
            .queue
            .special_targets(stale_after, SPECIAL_MAX)
            .await?;
        self.direct(shared, &special);
        let findings = self.findings(shared);
        if !findings.is_empty() {
            shared.queue.report_targets(&findings).await?;
        }
        Ok(())
    }

    /// Asks for the targets with the most retryable failures.
    ///
    /// # Errors
    /// Postgres could not be asked; the old snapshot stays in force.
    pub(crate) async fn refresh_once(&self, shared: &Shared) -> queue::Result<()> {
        let failing = shared
            .queue
            .failing_targets(shared.config.penalty_targets_max)
            .await?;
        let mut state = self.state();
        state.failing = failing
            .iter()
            .filter(|failing| failing.jobs >= FAILING_JOBS_MIN)
            .map(|failing| (failing.target_id, 1))
            .collect();
        state.refreshed_at = Some(Instant::now());
        drop(state);
        shared.heads().relax(shared.now());
        Ok(())
    }

    /// Exports how old the snapshot is and what it holds.
    pub(crate) fn measure(&self, shared: &Shared) {
        let age = self
            .state()
            .refreshed_at
            .map_or(Duration::ZERO, |at| at.elapsed());
        metric::PENALTY_SNAPSHOT_AGE_SECONDS
            .gauge(&[])
            .set(age.as_secs_f64());
        let counts = shared.heads().counts();
        #[expect(
            clippy::cast_precision_loss,
            reason = "counts of targets are far below 2^52"
        )]
        {
            metric::PENALISED_TARGETS
                .gauge(&[])
                .set(counts.penalised as f64);
            metric::HELD_TARGETS.gauge(&[]).set(counts.held as f64);
            metric::PENALISED_SLOTS
                .gauge(&[])
                .set(counts.penalised_slots as f64);
            metric::HEADS.gauge(&["known"]).set(counts.known as f64);
            metric::HEADS.gauge(&["due"]).set(counts.due as f64);
        }
    }

    fn direct(&self, shared: &Shared, special: &[SpecialTarget]) {
        let now = shared.now();
        let mut state = self.state();
        let mut heard: HashMap<TargetId, Directive> = state
            .failing
            .iter()
            .map(|(target_id, level)| {
                (
                    *target_id,
                    Directive {
                        penalty: *level,
                        ..Directive::default()
                    },
                )
            })
            .collect();
        for target in special {
            let directive = heard.entry(TargetId(target.target_id)).or_default();
            directive.paused = target.paused;
            directive.max_in_flight = target
                .max_in_flight
                .and_then(|max| usize::try_from(max).ok());
            directive.rate_per_second = target.rate_per_second;
            directive.penalty_pin = target.penalty_pin.and_then(|pin| u8::try_from(pin).ok());
            let penalty = u8::try_from(target.penalty).unwrap_or(0);
            directive.penalty = directive.penalty.max(penalty);
            directive.held_until = target
                .held_ms
                .and_then(|ms| u64::try_from(ms).ok())
                .map(|ms| now + Duration::from_millis(ms));
        }
        let mut heads = shared.heads();
        for target_id in state.directed.keys().filter(|id| !heard.contains_key(id)) {
            heads.direct(*target_id, Directive::default(), now);
        }
        for (target_id, directive) in &heard {
            heads.direct(*target_id, *directive, now);
        }
        drop(heads);
        state.directed = heard;
        drop(state);
        shared.changed.notify_one();
    }

    /// What others should hear: changes at once, everything again before it is forgotten.
    fn findings(&self, shared: &Shared) -> Vec<Finding> {
        let now = shared.now();
        let mut found: Vec<Finding> = shared
            .heads()
            .findings()
            .map(|(target_id, health)| Finding {
                target_id,
                penalty: health.level(),
                held: health
                    .held_until()
                    .filter(|until| *until > now)
                    .map(|until| until - now),
                failures_in_row: health.failures_in_row(),
            })
            .collect();
        found.sort_by_key(|finding| (finding.held.is_none(), std::cmp::Reverse(finding.penalty)));
        found.truncate(shared.config.penalty_targets_max);

        let mut state = self.state();
        let repeat = state
            .reported_at
            .is_none_or(|at| at.elapsed() >= shared.config.penalty_refresh);
        let current: HashMap<TargetId, (u8, bool)> = found
            .iter()
            .map(|finding| (finding.target_id, (finding.penalty, finding.held.is_some())))
            .collect();
        let recovered = state
            .reported
            .keys()
            .filter(|id| !current.contains_key(id))
            .map(|id| Finding {
                target_id: *id,
                penalty: 0,
                held: None,
                failures_in_row: 0,
            });
        let changed: Vec<Finding> = found
            .iter()
            .filter(|finding| {
                repeat || state.reported.get(&finding.target_id) != current.get(&finding.target_id)
            })
            .copied()
            .chain(recovered)
            .collect();
        state.reported = current;
        if repeat {
            state.reported_at = Some(Instant::now());
        }
        changed
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks at the running attempts: once, for the time since the last look.
pub(crate) fn observe_once(shared: &Arc<Shared>, since: Duration) {
    shared.heads().observe(shared.now(), since);
    shared.changed.notify_one();
}
