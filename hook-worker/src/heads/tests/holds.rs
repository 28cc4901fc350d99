//! Targets that asked for a pause, or that are down.

use super::*;

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
fn a_pause_ends_when_what_the_workers_share_holds_the_target_no_more() {
    let mut world = World::new(64);
    let target = world.wake(1);
    let until = world.now + 30 * SECOND;
    world.heads.hold(target, until, world.now);
    let nothing = Directive::default();
    let shared = |asked_until| Directive {
        asked_until: Some(asked_until),
        ..nothing
    };
    // Nobody was told of it yet, and then everybody.
    world.heads.direct(target, nothing, world.now);
    world
        .heads
        .direct(target, shared(until + 5 * MS), world.now);
    assert!(world.dequeue(50).is_empty());
    // It asks again just before the first pause is ended: the new one has not been told.
    world.heads.hold(target, until + 20 * SECOND, world.now);
    world.heads.direct(target, nothing, world.now);
    assert!(world.dequeue(50).is_empty());
    let until = until + 20 * SECOND;
    world.heads.direct(target, shared(until), world.now);
    // Down, it is held by its circuit: nobody has ended the pause.
    let down = |probe_at| Directive {
        circuit: Some(HeardCircuit {
            probe_at,
            interval: SECOND,
        }),
        ..nothing
    };
    world
        .heads
        .direct(target, down(world.now + SECOND), world.now);
    world.heads.direct(target, shared(until), world.now);
    assert!(world.dequeue(50).is_empty());
    world.heads.direct(target, nothing, world.now);
    assert!(!world.dequeue(50).is_empty());
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
