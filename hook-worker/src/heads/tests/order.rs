//! Who is pushed back, and who comes first.

use super::*;

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
fn with_few_slots_healthy_targets_are_not_shut_out_by_the_floor() {
    for slots in 1..8 {
        let mut world = World::new(slots);
        let (sick, healthy) = (world.wake(1), world.wake(2));
        let pin = Directive {
            penalty_pin: Some(3),
            ..Directive::default()
        };
        world.heads.direct(sick, pin, world.now);
        let mut served = (0, 0);
        for _ in 0..200 {
            world.dequeue(slots);
            world.now += 5 * MS;
            served.0 += world.in_flight(sick);
            served.1 += world.in_flight(healthy);
            world.end_all(sick, Outcome::Delivered);
            world.end_all(healthy, Outcome::Delivered);
        }
        assert!(served.0 > 0, "{slots} slots: the sick one starves");
        assert!(served.1 > served.0 * 2, "{slots} slots: {served:?}");
    }
}

#[test]
fn from_two_slots_on_one_is_kept_for_proven_targets() {
    for slots in 2..8 {
        let mut world = World::new(slots);
        for target in 0..20 {
            world.wake(target);
        }
        world.saturate();
        assert!(world.total() < slots, "{} of {slots}", world.total());
    }
}

#[test]
fn a_proven_target_whose_attempts_all_hang_is_pushed_back_where_slots_are_scarce() {
    let mut world = World::new(16);
    let targets: Vec<TargetId> = (0..8).map(|n| world.wake(n)).collect();
    for target in &targets {
        world.prove(*target);
    }
    world.saturate();
    world.pass(2 * SECOND);
    assert_eq!(world.heads.counts(world.now).penalised, 8);
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
