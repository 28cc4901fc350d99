//! The policy by examples and by random histories: a worker without a network.

use std::{collections::HashMap, time::Duration};

use hook_common::{
    job::{Outcome, Tier},
    target::TargetId,
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

use super::{Heads, Pick, Slot, Taken};
use crate::policy::{Directive, HeardCircuit, Levels, PolicySettings};

mod caps;
mod histories;
mod holds;
mod order;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn settings(slots: usize) -> PolicySettings {
    PolicySettings {
        slots,
        target_in_flight_max: slots.div_ceil(10).max(4),
        penalised_in_flight_max: 2,
        slow_after: SECOND,
        quick: 250 * MS,
        levels: Levels::default(),
        hold_failures: 20,
        hold_after: 60 * SECOND,
        probe_interval_min: 10 * SECOND,
        probe_interval_max: 600 * SECOND,
    }
}

/// A worker without a network: targets with endless backlogs, and slots that the test frees.
struct World {
    heads: Heads,
    now: Duration,
    slots: HashMap<TargetId, Vec<Slot>>,
}

impl World {
    fn new(slots: usize) -> Self {
        let heads = Heads::new(settings(slots), Tier::Primary..=Tier::DegradedRetry);
        Self {
            heads,
            now: SECOND,
            slots: HashMap::new(),
        }
    }

    fn wake(&mut self, target: i64) -> TargetId {
        self.wake_tier(target, Tier::Primary)
    }

    fn wake_tier(&mut self, target: i64, tier: Tier) -> TargetId {
        self.heads.wake(TargetId(target), tier, self.now, self.now);
        TargetId(target)
    }

    /// Picks once and leases all that was asked for; returns the targets in the order asked.
    fn dequeue(&mut self, limit: usize) -> Vec<(TargetId, usize)> {
        let picks = self.heads.pick(limit, self.now);
        self.lease(picks, limit)
    }

    /// Leases all that was asked for.
    fn lease(&mut self, picks: Vec<Pick>, limit: usize) -> Vec<(TargetId, usize)> {
        let mut left = limit;
        let mut leased = Vec::new();
        for pick in picks {
            let jobs = usize::try_from(pick.head.take).unwrap().min(left);
            left -= jobs;
            let taken = Taken {
                jobs,
                last_run_at: None,
                exhausted: false,
            };
            self.heads.dequeued(&pick, taken, self.now);
            for _ in 0..jobs {
                let slot = self.heads.start(pick.head.target_id, self.now);
                self.slots
                    .entry(pick.head.target_id)
                    .or_default()
                    .push(slot);
            }
            leased.push((pick.head.target_id, jobs));
        }
        leased
    }

    /// Wins every probe that is due, as the only worker does.
    fn claim_probes(&mut self) {
        for target in self.heads.probes_due(100, self.now) {
            self.heads.grant_probe(target, self.now);
        }
    }

    /// Leases until nothing more may be.
    fn saturate(&mut self) {
        while self.dequeue(50).iter().any(|(_, jobs)| *jobs > 0) {}
    }

    fn in_flight(&self, target: TargetId) -> usize {
        self.slots.get(&target).map_or(0, Vec::len)
    }

    fn total(&self) -> usize {
        self.slots.values().map(Vec::len).sum()
    }

    fn end(&mut self, target: TargetId, outcome: Outcome) {
        let slot = self
            .slots
            .get_mut(&target)
            .and_then(|slots| (!slots.is_empty()).then(|| slots.remove(0)));
        self.heads
            .end(slot.expect("an attempt runs"), Some(outcome), self.now);
    }

    fn end_all(&mut self, target: TargetId, outcome: Outcome) {
        for _ in 0..self.in_flight(target) {
            self.end(target, outcome);
        }
    }

    /// Makes a target proven and its window wide: quick attempts that succeed.
    fn prove(&mut self, target: TargetId) {
        for _ in 0..6 {
            self.saturate();
            self.now += 5 * MS;
            self.end_all(target, Outcome::Delivered);
        }
    }

    /// Lets time pass while attempts run.
    fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            self.now += 100 * MS;
            self.heads.observe(self.now, 100 * MS);
        }
    }
}
