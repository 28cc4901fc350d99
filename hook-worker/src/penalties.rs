//! Penalties: what this worker tells the others about targets, and what it hears from them.
//!
//! Two rhythms. About every second it says that it lives, shares what it found, reads what people
//! and other workers say, and claims the probes of held targets that are due. So a pause or a limit
//! is obeyed at once, and a worker that starts cold knows which targets are sick. On the slower
//! refresh it asks Postgres for the targets with the most retryable failures waiting. A read that
//! fails keeps what was known and lets its age show; it never delays a dequeue.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hook_common::{
    metrics::worker as metric,
    queue::{self, CircuitNews, Finding, SpecialTarget},
    target::TargetId,
};
use tokio::time::Instant;

use self::failing::Failing;
use crate::{
    heads::Found,
    policy::{Crew, Directive, HeardCircuit},
    worker::Shared,
};

mod failing;

/// Targets with settings or findings that are read at most.
const SPECIAL_MAX: usize = 10_000;

/// A worker that has not said for this long that it lives does not count any more.
const ALIVE_FOR: Duration = Duration::from_secs(5);

/// Entries of the index of retries that one statement reads: a few milliseconds.
const WALK_ENTRIES: i64 = 5_000;

/// Time that one refresh may walk; the next goes on from there.
const WALK_FOR: Duration = Duration::from_millis(250);

/// Probes claimed by one statement.
const PROBES_MAX: usize = 200;

/// What the worker last heard and said.
#[derive(Debug)]
pub(crate) struct Penalties {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    announced_at: Option<Instant>,
    directed: HashMap<TargetId, Directive>,
    failing: Failing,
    reported: HashMap<TargetId, Found>,
    reported_at: Option<Instant>,
    refreshed_at: Option<Instant>,
}

impl Penalties {
    /// Knows of nothing until the first reads.
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::default(),
        }
    }

    /// Says what this worker found, reads what is said about targets, and claims probes.
    ///
    /// # Errors
    /// Postgres could not be asked; what was known stays in force.
    pub(crate) async fn share_once(&self, shared: &Shared) -> queue::Result<()> {
        let name = &shared.config.name;
        let announced = shared.queue.announce_worker(shared.me, name, ALIVE_FOR);
        let all = announced.await?;
        let age = self
            .state()
            .announced_at
            .get_or_insert_with(Instant::now)
            .elapsed();
        let crew = Crew::new(shared.me, all, age);
        // Told first, so that what is read afterwards already holds it.
        self.tell(shared).await?;
        let stale_after = shared.config.penalty_refresh * queue::STALE_REFRESHES;
        let special = shared
            .queue
            .special_targets(stale_after, SPECIAL_MAX)
            .await?;
        self.direct(shared, &special, &crew);
        claim_probes(shared).await
    }

    /// Asks for the targets with the most retryable failures.
    ///
    /// # Errors
    /// Postgres could not be asked; the old snapshot stays in force.
    pub(crate) async fn refresh_once(&self, shared: &Shared) -> queue::Result<()> {
        let begun = Instant::now();
        loop {
            let after = self.state().failing.after();
            let piece = shared.queue.failing_targets(after, WALK_ENTRIES).await?;
            let mut state = self.state();
            state.failing.take_over(&piece);
            if piece.next.is_none() || begun.elapsed() >= WALK_FOR {
                state.refreshed_at = Some(Instant::now());
                break;
            }
        }
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
        let counts = shared.heads().counts(shared.now());
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

    fn direct(&self, shared: &Shared, special: &[SpecialTarget], crew: &Crew) {
        let now = shared.now();
        let mut state = self.state();
        let worst = state.failing.worst(shared.config.penalty_targets_max);
        let mut heard: HashMap<TargetId, Directive> = worst
            .map(|target_id| {
                let directive = Directive {
                    failing: 1,
                    ..Directive::default()
                };
                (target_id, directive)
            })
            .collect();
        for target in special {
            let directive = heard.entry(TargetId(target.target_id)).or_default();
            say(directive, target, crew, now);
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

    /// Tells the others what is new here.
    async fn tell(&self, shared: &Shared) -> queue::Result<()> {
        let now = shared.now();
        let (findings, news, current) = self.findings(shared, now);
        if !findings.is_empty()
            && let Err(error) = shared.queue.report_targets(&findings).await
        {
            shared.heads().untold(&news);
            return Err(error);
        }
        let mut state = self.state();
        if repeats_now(&state, shared) {
            state.reported_at = Some(Instant::now());
        }
        state.reported = current;
        Ok(())
    }

    /// What others should hear: changes at once, everything again before it is forgotten. Also the
    /// news among it, and all that will have been reported then.
    fn findings(&self, shared: &Shared, now: Duration) -> Told {
        let state = self.state();
        let mut heads = shared.heads();
        let news = heads.take_news(now);
        let mut found: Vec<(TargetId, Found)> = heads.findings(now).collect();
        found.sort_by_key(|(target_id, found)| {
            let has_news = news.contains_key(target_id);
            (
                !has_news,
                found.asked_until.is_none(),
                std::cmp::Reverse(found.level),
            )
        });
        found.truncate(shared.config.penalty_targets_max.max(news.len()));
        let current: HashMap<TargetId, Found> = found.into_iter().collect();
        let repeat = repeats_now(&state, shared);
        let concerned: HashSet<TargetId> = current
            .keys()
            .chain(state.reported.keys())
            .chain(news.keys())
            .copied()
            .collect();
        let differs = |target_id: &TargetId| {
            let (before, after) = (state.reported.get(target_id), current.get(target_id));
            before.map(Found::what_matters) != after.map(Found::what_matters)
                || news.contains_key(target_id)
                || repeat && after.is_some()
        };
        let findings = concerned
            .into_iter()
            .filter(differs)
            .map(|target_id| {
                let mut found = heads.finding(target_id, now);
                let circuit = news.get(&target_id).copied();
                // A pause that all know of is not told again: that would undo that a person ended it.
                let heard = state.directed.get(&target_id);
                found.asked_until = found.asked_until.filter(|until| {
                    circuit.is_some() || !heard.is_some_and(|heard| heard.holds(*until))
                });
                finding(target_id, found, circuit, now)
            })
            .collect();
        (findings, news, current)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Findings, the news among them, and all that is reported with them.
type Told = (
    Vec<Finding>,
    HashMap<TargetId, CircuitNews>,
    HashMap<TargetId, Found>,
);

fn repeats_now(state: &State, shared: &Shared) -> bool {
    let due = |at: Instant| at.elapsed() >= shared.config.penalty_refresh;
    state.reported_at.is_none_or(due)
}

fn finding(
    target_id: TargetId,
    found: Found,
    circuit: Option<CircuitNews>,
    now: Duration,
) -> Finding {
    Finding {
        target_id,
        penalty: found.level,
        failures_in_row: found.failures_in_row,
        asked: found.asked_until.map(|until| until.saturating_sub(now)),
        circuit,
    }
}

/// Takes over what the shared row says, this worker's part of limits included.
fn say(directive: &mut Directive, target: &SpecialTarget, crew: &Crew, now: Duration) {
    let after = |ms: Option<i64>| {
        ms.and_then(|ms| u64::try_from(ms).ok())
            .map(|ms| now + Duration::from_millis(ms))
    };
    let target_id = TargetId(target.target_id);
    directive.paused = target.paused;
    directive.max_in_flight = target
        .max_in_flight
        .and_then(|max| usize::try_from(max).ok())
        .map(|total| crew.slots_of(target_id, total));
    directive.rate_per_second = target.rate_per_second.map(|total| crew.rate_of(total));
    directive.penalty_pin = target.penalty_pin.and_then(|pin| u8::try_from(pin).ok());
    directive.penalty = u8::try_from(target.penalty).unwrap_or(0);
    match target
        .hold_interval_ms
        .and_then(|ms| u64::try_from(ms).ok())
    {
        Some(interval_ms) => {
            directive.circuit = Some(HeardCircuit {
                probe_at: after(target.held_ms).unwrap_or(now),
                interval: Duration::from_millis(interval_ms),
            });
        }
        None => directive.asked_until = after(target.held_ms),
    }
}

/// Claims the probes that are due here: of all workers, one wins each.
async fn claim_probes(shared: &Shared) -> queue::Result<()> {
    let due = shared.heads().probes_due(PROBES_MAX, shared.now());
    if due.is_empty() {
        return Ok(());
    }
    // As long as the lease of the job that is sent as the probe.
    let won = shared
        .queue
        .claim_probes(&due, shared.config.lease())
        .await?;
    if !won.is_empty() {
        let now = shared.now();
        let mut heads = shared.heads();
        for target_id in won {
            heads.grant_probe(target_id, now);
        }
        drop(heads);
        shared.changed.notify_one();
    }
    Ok(())
}

/// Looks at the running attempts: once, for the time since the last look.
pub(crate) fn observe_once(shared: &Arc<Shared>, since: Duration) {
    shared.heads().observe(shared.now(), since);
    shared.changed.notify_one();
}
