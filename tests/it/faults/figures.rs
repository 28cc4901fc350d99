//! What a run came to, for people: how much was done, and how soon all was well again.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use hook_testkit::{
    history::{Breach, History, Outcome},
    process::Program,
};

use super::{RECOVERY, schedule::Act};

/// An act as it happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) act: Act,
    pub(crate) from: Duration,
    /// When nothing was disturbed any more.
    pub(crate) over: Duration,
    /// Of whatever it does many of.
    pub(crate) times: usize,
}

/// Prints all of it.
pub(crate) fn print(history: &History, done: &[Done], accepted: &[Duration], breaches: &[Breach]) {
    println!(
        "{} jobs, {} requests, {} duplicates; attempts {:?}",
        history.jobs.len(),
        history.deliveries.len(),
        history.duplicates(),
        history.counted,
    );
    let many = |wanted: &dyn Fn(&Breach) -> bool| breaches.iter().filter(|one| wanted(one)).count();
    let lost = many(&|breach| matches!(breach, Breach::Lost(_) | Breach::NeverTaken(_)));
    let stale = many(&|breach| matches!(breach, Breach::FenceFell(_) | Breach::AfterTheEnd(_)));
    let unexpected = many(&|breach| matches!(breach, Breach::Unexpected(..)));
    println!(
        "lost {lost}, stale accepted {stale}, unexpected answers {unexpected}, breaches {}",
        breaches.len()
    );
    let mut kinds: BTreeMap<&str, Vec<&Done>> = BTreeMap::new();
    for one in done {
        kinds.entry(one.act.kind()).or_default().push(one);
    }
    let arrived: Vec<Duration> = history.deliveries.iter().map(|one| one.begun).collect();
    for (kind, done) in kinds {
        let times: usize = done.iter().map(|one| one.times).sum();
        println!(
            "{times} × {kind}; the longest until the next enqueue: {}, until the next request: {}",
            worst(&done, accepted, accepted),
            worst(&done, &arrived, accepted),
        );
    }
    let mut orphans = orphans(history, done);
    orphans.sort_unstable();
    if let (Some(last), Some(p99)) = (orphans.last(), orphans.get(orphans.len() * 99 / 100)) {
        println!(
            "{} orphans of killed workers leased again; p99 after {p99:?}, the last after {last:?}",
            orphans.len()
        );
    }
}

/// The longest time from the end of these acts to the next of the events, and when that was. What
/// comes after the last enqueue says nothing, since little happens then.
fn worst(done: &[&Done], events: &[Duration], enqueues: &[Duration]) -> String {
    let last = enqueues.iter().max().copied().unwrap_or_default();
    let next = |over: Duration| events.iter().filter(|at| **at >= over).min();
    let done = done.iter().filter(|one| one.over < last);
    let worst = done
        .filter_map(|one| Some((*next(one.over)? - one.over, one.over)))
        .max();
    worst.map_or_else(
        || "not known".to_owned(),
        |(took, at)| format!("{took:.3?} (at {at:.1?})"),
    )
}

/// How long the jobs of killed workers waited until they were leased again, where Postgres could see
/// that the workers were gone.
fn orphans(history: &History, done: &[Done]) -> Vec<Duration> {
    let mut waited = Vec::new();
    let by_number: HashMap<(&str, u32), Duration> = history
        .jobs
        .iter()
        .flat_map(|job| {
            let attempts = job.attempts.iter();
            attempts.map(|attempt| ((job.id.as_str(), attempt.attempt), attempt.begun))
        })
        .collect();
    for job in &history.jobs {
        for attempt in &job.attempts {
            let next = by_number.get(&(job.id.as_str(), attempt.attempt + 1));
            let (Outcome::Lost, Some(next)) = (attempt.outcome, next) else {
                continue;
            };
            let overlaps = |one: &&Done| one.from <= *next && one.over + RECOVERY >= attempt.begun;
            let mut meanwhile = done.iter().filter(overlaps);
            let frozen_or_away =
                |one: &Done| one.act.disturbs_postgres() || matches!(one.act, Act::FreezeWorker(_));
            let killed = |one: &&Done| {
                matches!(one.act, Act::Kill(Program::Worker)) && one.from >= attempt.begun
            };
            if meanwhile.clone().any(frozen_or_away) {
                continue;
            }
            if let Some(kill) = meanwhile.find(killed) {
                waited.push(next.saturating_sub(kill.from));
            }
        }
    }
    waited
}
