//! The policy by examples and by random histories.

use std::{collections::HashMap, time::Duration};

use hook_common::{
    job::{Outcome, Tier},
    target::TargetId,
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

use super::{Heads, Slot, Taken};
use crate::policy::{Directive, Levels, PolicySettings};

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
        let mut left = limit;
        let mut leased = Vec::new();
        for pick in self.heads.pick(limit, self.now) {
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

#[test]
fn an_unknown_target_is_capped_from_its_first_job_and_earns_more_by_answering() {
    let mut world = World::new(512);
    let hog = world.wake(1);
    let mut used = Vec::new();
    for _ in 0..8 {
        world.saturate();
        used.push(world.in_flight(hog));
        // Slow enough that nothing is lent to it.
        world.now += 400 * MS;
        world.end_all(hog, Outcome::Delivered);
    }
    assert_eq!(used, [4, 8, 16, 32, 52, 52, 52, 52]);
}

#[test]
fn a_target_that_stops_answering_is_stuck_with_what_it_needed_lately() {
    let mut world = World::new(512);
    let target = world.wake(1);
    world.prove(target);
    for _ in 0..200 {
        world.dequeue(2);
        world.now += 100 * MS;
        world.end_all(target, Outcome::Delivered);
    }
    world.saturate();
    assert_eq!(world.in_flight(target), 4, "whatever waits for it");
}

#[test]
fn a_lone_quick_target_borrows_idle_slots_but_never_the_last_quarter() {
    let mut world = World::new(64);
    let quick = world.wake(1);
    world.prove(quick);
    world.saturate();
    assert_eq!(world.in_flight(quick), 48);
    let other = world.wake(2);
    world.saturate();
    assert_eq!(
        world.in_flight(other),
        4,
        "another target finds all that it may use free"
    );
    world.now += 5 * MS;
    world.end_all(quick, Outcome::Delivered);
    world.end_all(other, Outcome::Delivered);
    world.dequeue(14);
    assert_eq!(
        (world.in_flight(quick), world.in_flight(other)),
        (7, 7),
        "others come first again"
    );
}

#[test]
fn a_slow_target_borrows_nothing() {
    let mut world = World::new(64);
    let slow = world.wake(1);
    for _ in 0..6 {
        world.dequeue(50);
        world.pass(600 * MS);
        world.end_all(slow, Outcome::Delivered);
    }
    world.saturate();
    assert_eq!(world.in_flight(slow), 7);
}

#[test]
fn new_targets_that_hang_leave_a_quarter_of_the_slots_to_proven_ones() {
    let mut world = World::new(64);
    let healthy = world.wake(1);
    world.prove(healthy);
    world.end_all(healthy, Outcome::Delivered);
    for target in 100..300 {
        world.wake(target);
    }
    for _ in 0..50 {
        world.dequeue(50);
        world.now += 5 * MS;
        world.end_all(healthy, Outcome::Delivered);
    }
    assert!(
        world.total() <= 48,
        "{} slots are held by unproven targets",
        world.total()
    );
    world.dequeue(50);
    assert!(
        world.in_flight(healthy) >= 1,
        "the proven target is still served"
    );
}

#[test]
fn a_hanging_target_is_pushed_back_before_its_first_attempt_ends() {
    let mut world = World::new(64);
    let hanging = world.wake(1);
    world.saturate();
    assert_eq!(world.in_flight(hanging), 4);
    world.pass(2 * SECOND);
    assert_eq!(world.heads.counts(world.now).penalised, 1);
    world.end_all(hanging, Outcome::Retryable);
    world.saturate();
    assert_eq!(world.in_flight(hanging), 2);
}

#[test]
fn a_target_that_answers_200_after_seconds_is_pushed_back_too() {
    let mut world = World::new(64);
    let slow = world.wake(1);
    for _ in 0..3 {
        world.saturate();
        world.pass(4 * SECOND);
        world.end_all(slow, Outcome::Delivered);
    }
    assert_eq!(world.heads.counts(world.now).penalised, 1);
}

#[test]
fn a_target_that_fails_at_once_is_not_pushed_back_for_a_few_failures() {
    let mut world = World::new(512);
    let failing = world.wake(1);
    for _ in 0..10 {
        world.dequeue(1);
        world.now += 100 * MS;
        world.end_all(failing, Outcome::Retryable);
    }
    assert_eq!(world.heads.counts(world.now).penalised, 0);
}

#[test]
fn permanent_answers_change_nothing_about_the_order() {
    let mut world = World::new(64);
    let target = world.wake(1);
    for _ in 0..100 {
        world.dequeue(7);
        world.now += 20 * MS;
        world.end_all(target, Outcome::Permanent);
    }
    assert_eq!(world.heads.counts(world.now).penalised, 0);
    assert!(world.heads.findings(world.now).next().is_none());
}

#[test]
fn healthy_targets_come_before_penalised_ones_but_for_the_floor() {
    let mut world = World::new(100);
    let (sick, healthy) = (world.wake(1), world.wake(2));
    world.heads.direct(
        sick,
        Directive {
            penalty: 2,
            ..Directive::default()
        },
        world.now,
    );
    let order = world.dequeue(10);
    assert_eq!(order[0], (sick, 2), "the floor comes first, within the cap");
    assert_eq!(order[1], (healthy, 4));
}

#[test]
fn penalised_targets_together_keep_to_floor_and_ceiling() {
    let mut world = World::new(100);
    let healthy: Vec<TargetId> = (0..20).map(|target| world.wake(target)).collect();
    let sick: Vec<TargetId> = (100..160).map(|target| world.wake(target)).collect();
    for target in &sick {
        world.heads.direct(
            *target,
            Directive {
                penalty: 1,
                ..Directive::default()
            },
            world.now,
        );
    }
    for target in &healthy {
        world.heads.direct(
            *target,
            Directive {
                penalty_pin: Some(0),
                ..Directive::default()
            },
            world.now,
        );
    }
    for _ in 0..200 {
        world.dequeue(50);
        world.now += 10 * MS;
        for target in &healthy {
            world.end_all(*target, Outcome::Delivered);
        }
        let penalised: usize = sick.iter().map(|target| world.in_flight(*target)).sum();
        assert!((5..=20).contains(&penalised), "{penalised} of 100 slots");
    }
}

#[test]
fn every_penalised_target_is_served_again_and_again() {
    let mut world = World::new(100);
    let sick: Vec<TargetId> = (100..160).map(|target| world.wake(target)).collect();
    for target in &sick {
        world.heads.direct(
            *target,
            Directive {
                penalty_pin: Some(1),
                ..Directive::default()
            },
            world.now,
        );
    }
    let mut served: HashMap<TargetId, usize> = HashMap::new();
    for _ in 0..200 {
        for (target, jobs) in world.dequeue(50) {
            *served.entry(target).or_default() += jobs;
        }
        world.now += 10 * MS;
        for target in &sick {
            world.end_all(*target, Outcome::Delivered);
        }
    }
    let (least, most) = sick
        .iter()
        .map(|target| served[target])
        .fold((usize::MAX, 0), |(low, high), n| (low.min(n), high.max(n)));
    assert!(least * 2 >= most, "served between {least} and {most} times");
}

#[test]
fn the_worst_penalised_targets_and_their_retries_are_served_beside_endless_milder_ones() {
    let mut world = World::new(100);
    let pin = |world: &mut World, target: i64, tier, level| {
        let target_id = world.wake_tier(target, tier);
        let directive = Directive {
            penalty_pin: Some(level),
            ..Directive::default()
        };
        world.heads.direct(target_id, directive, world.now);
        target_id
    };
    // More mild ones than the allowance has slots.
    for target in 0..100 {
        pin(&mut world, target, Tier::Primary, 1);
    }
    let worst = pin(&mut world, 200, Tier::Primary, 3);
    let retries = pin(&mut world, 201, Tier::DegradedRetry, 1);
    let mut served: HashMap<TargetId, usize> = HashMap::new();
    for _ in 0..200 {
        for (target, jobs) in world.dequeue(50) {
            *served.entry(target).or_default() += jobs;
        }
        world.now += 50 * MS;
        // One attempt ends at a time, so that there is never room for all.
        let running: Vec<TargetId> = world.slots.keys().copied().collect();
        let ended = running
            .iter()
            .filter(|target| world.in_flight(**target) > 0)
            .min_by_key(|target| served.get(target).copied().unwrap_or(0))
            .copied();
        if let Some(target) = ended {
            world.end(target, Outcome::Delivered);
        }
    }
    for target in [worst, retries] {
        assert!(
            served.get(&target).is_some_and(|jobs| *jobs > 0),
            "{target:?} starves"
        );
    }
}

#[test]
fn proven_targets_that_all_hang_at_once_leave_a_quarter_of_the_slots() {
    let mut world = World::new(64);
    let healthy = world.wake(1);
    world.prove(healthy);
    let hanging: Vec<TargetId> = (100..120).map(|target| world.wake(target)).collect();
    for _ in 0..8 {
        world.dequeue(50);
        world.now += 5 * MS;
        for target in hanging.iter().chain([&healthy]) {
            world.end_all(*target, Outcome::Delivered);
        }
    }
    // From now on they hang, and take one slot each in turn, as their jobs come.
    for _ in 0..40 {
        world.dequeue(4);
        world.end_all(healthy, Outcome::Delivered);
        world.pass(100 * MS);
    }
    let stuck: usize = hanging.iter().map(|target| world.in_flight(*target)).sum();
    assert!(stuck <= 48, "{stuck} slots");
    world.dequeue(50);
    assert!(world.in_flight(healthy) >= 1);
}

#[test]
fn targets_of_one_level_share_evenly_however_much_one_has() {
    let mut world = World::new(512);
    let targets: Vec<TargetId> = (0..10).map(|target| world.wake(target)).collect();
    let leased = world.dequeue(30);
    assert_eq!(leased.len(), 10);
    assert!(leased.iter().all(|(_, jobs)| *jobs == 3), "{leased:?}");
    assert!(targets.iter().all(|target| world.in_flight(*target) == 3));
}

#[test]
fn first_tries_come_before_retries_which_keep_a_tenth() {
    let mut world = World::new(512);
    let (fresh, retried) = (world.wake(1), world.wake_tier(2, Tier::DegradedRetry));
    let (mut first, mut retries) = (0, 0);
    for _ in 0..100 {
        for (target, jobs) in world.dequeue(10) {
            if target == fresh {
                first += jobs
            } else {
                retries += jobs
            }
        }
        world.now += 5 * MS;
        world.end_all(fresh, Outcome::Delivered);
        world.end_all(retried, Outcome::Delivered);
    }
    assert!(
        (80..=130).contains(&retries),
        "{retries} retries beside {first} first tries"
    );
}

#[test]
fn a_pause_stops_and_a_limit_is_kept() {
    let mut world = World::new(64);
    let (paused, limited) = (world.wake(1), world.wake(2));
    world.heads.direct(
        paused,
        Directive {
            paused: true,
            ..Directive::default()
        },
        world.now,
    );
    world.heads.direct(
        limited,
        Directive {
            max_in_flight: Some(3),
            ..Directive::default()
        },
        world.now,
    );
    world.saturate();
    assert_eq!((world.in_flight(paused), world.in_flight(limited)), (0, 3));
    world.heads.direct(paused, Directive::default(), world.now);
    world.saturate();
    assert_eq!(
        world.in_flight(paused),
        4,
        "it is served as soon as it is released"
    );
}

#[test]
fn a_rate_is_kept_over_time() {
    let mut world = World::new(64);
    let limited = world.wake(1);
    world.heads.direct(
        limited,
        Directive {
            rate_per_second: Some(5.0),
            ..Directive::default()
        },
        world.now,
    );
    let mut started = 0;
    for _ in 0..100 {
        started += world
            .dequeue(50)
            .iter()
            .map(|(_, jobs)| jobs)
            .sum::<usize>();
        world.now += 100 * MS;
        world.end_all(limited, Outcome::Delivered);
    }
    assert!(
        (48..=56).contains(&started),
        "{started} attempts in 10 s at 5/s"
    );
}

#[test]
fn a_target_that_asks_for_a_pause_gets_it_and_comes_back_step_by_step() {
    let mut world = World::new(64);
    let target = world.wake(1);
    world.heads.hold(target, world.now + 30 * SECOND, world.now);
    assert!(world.dequeue(50).is_empty());
    assert_eq!(world.heads.next_due(), Some(world.now + 30 * SECOND));
    world.now += 30 * SECOND;
    let mut used = Vec::new();
    for _ in 0..3 {
        world.saturate();
        used.push(world.in_flight(target));
        world.now += 5 * MS;
        world.end_all(target, Outcome::Delivered);
    }
    assert_eq!(used[..2], [2, 4]);
    assert!(used[2] > 4, "{used:?}");
}

#[test]
fn a_success_of_another_attempt_does_not_end_a_pause_that_was_asked_for() {
    let mut world = World::new(64);
    let target = world.wake(1);
    world.saturate();
    world.heads.hold(target, world.now + 30 * SECOND, world.now);
    world.end_all(target, Outcome::Delivered);
    assert!(world.dequeue(50).is_empty());
}

#[test]
fn a_dead_target_is_held_probed_at_growing_intervals_and_released_step_by_step() {
    let mut world = World::new(64);
    let dead = world.wake(1);
    while world.heads.counts(world.now).held == 0 {
        assert!(world.now < 200 * SECOND, "it is never held");
        world.dequeue(50);
        world.now += SECOND;
        world.end_all(dead, Outcome::Retryable);
    }
    assert!(
        world.now >= 60 * SECOND,
        "not before it has been down for a minute"
    );
    assert!(
        world.dequeue(50).is_empty(),
        "its jobs wait without using attempts"
    );
    let mut probes = Vec::new();
    while probes.len() < 5 {
        world.claim_probes();
        let leased: usize = world.dequeue(50).iter().map(|(_, jobs)| jobs).sum();
        assert!(leased <= 1, "one probe at a time");
        if leased == 1 {
            probes.push(world.now);
            world.end_all(dead, Outcome::Retryable);
        }
        world.now += 500 * MS;
    }
    let gaps: Vec<u64> = probes
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_secs())
        .collect();
    assert!(
        gaps.windows(2).all(|pair| pair[1] >= pair[0] * 2 - 1),
        "{gaps:?}"
    );

    while world.dequeue(50).is_empty() {
        world.now += SECOND;
        world.claim_probes();
    }
    world.end_all(dead, Outcome::Delivered);
    assert_eq!(
        world.heads.counts(world.now).held,
        0,
        "the first success releases it"
    );
    world.saturate();
    assert_eq!(world.in_flight(dead), 2, "step by step");
    for _ in 0..6 {
        world.now += 10 * MS;
        world.end_all(dead, Outcome::Delivered);
        world.saturate();
    }
    assert!(world.in_flight(dead) >= 7, "and then it is like any other");
}

#[test]
fn a_wake_up_during_a_dequeue_is_not_forgotten() {
    let mut world = World::new(64);
    let target = world.wake(1);
    let picks = world.heads.pick(10, world.now);
    assert_eq!(picks.len(), 1);
    world.wake(1);
    let nothing = Taken {
        jobs: 0,
        last_run_at: None,
        exhausted: true,
    };
    world.heads.dequeued(&picks[0], nothing, world.now);
    let again = world.heads.pick(10, world.now);
    assert_eq!(
        again.len(),
        1,
        "the job that was announced meanwhile is asked for"
    );
    world.heads.dequeued(&again[0], nothing, world.now);
    assert!(
        world.heads.pick(10, world.now).is_empty(),
        "nothing more is known of {target:?}"
    );
}

#[test]
fn a_failed_dequeue_loses_nothing() {
    let mut world = World::new(64);
    world.wake(1);
    let picks = world.heads.pick(10, world.now);
    world.heads.not_dequeued(&picks[0], world.now);
    assert_eq!(world.heads.pick(10, world.now).len(), 1);
}

#[test]
fn random_histories_keep_every_bound() {
    let seed = rand::rng().random();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    for slots in [8, 64, 512] {
        let mut world = World::new(slots);
        let cap = settings(slots).target_in_flight_max;
        for _ in 0..3000 {
            let target = TargetId(rng.random_range(0..40));
            match rng.random_range(0..10) {
                0..3 => {
                    let tier = Tier::ALL[rng.random_range(0..3)];
                    world.wake_tier(target.0, tier);
                }
                3..6 => {
                    let limit = rng.random_range(1..50);
                    let asked = world.dequeue(limit);
                    let jobs: usize = asked.iter().map(|(_, jobs)| jobs).sum();
                    assert!(jobs <= limit, "seed {seed}");
                }
                6..9 if world.in_flight(target) > 0 => {
                    let outcome = Outcome::ALL[rng.random_range(0..3)];
                    world.end(target, outcome);
                }
                _ => world.pass(rng.random_range(0..20) * 50 * MS),
            }
            assert!(
                world.total() <= slots,
                "seed {seed}: more attempts than slots"
            );
            for (target, held) in &world.slots {
                let lent = held.len() > cap;
                assert!(
                    !lent || held.len() <= slots * 3 / 4 + 1,
                    "seed {seed}: {target:?} holds {}",
                    held.len()
                );
            }
        }
        // Whatever happened, every target with work is served once the slots are free again.
        let targets: Vec<TargetId> = (0..40).map(|target| world.wake(target)).collect();
        let mut served: HashMap<TargetId, usize> = HashMap::new();
        for _ in 0..400 {
            for target in &targets {
                world.end_all(*target, Outcome::Delivered);
            }
            world.pass(500 * MS);
            for (target, jobs) in world.dequeue(50) {
                *served.entry(target).or_default() += jobs;
            }
        }
        for target in &targets {
            assert!(
                served.get(target).is_some_and(|jobs| *jobs > 0),
                "seed {seed}: {target:?} starves"
            );
        }
    }
}
