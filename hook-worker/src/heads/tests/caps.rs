//! How many slots targets get, judged or not, and what people limit.

use super::*;

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
fn while_many_targets_hang_any_other_gets_one_slot_at_a_time_in_the_last_quarter() {
    let mut world = World::new(64);
    let say = |world: &mut World, target: &TargetId, said: Directive| {
        world.heads.direct(*target, said, world.now);
    };
    let four = Directive {
        max_in_flight: Some(4),
        ..Directive::default()
    };
    let paused = Directive {
        paused: true,
        ..Directive::default()
    };
    let targets: Vec<TargetId> = (0..22).map(|n| world.wake(n)).collect();
    let (hanging, well) = targets.split_at(12);
    for target in hanging {
        say(&mut world, target, four);
    }
    for _ in 0..6 {
        world.saturate();
        world.now += 5 * MS;
        for target in &targets {
            world.end_all(*target, Outcome::Delivered);
        }
    }
    for target in well {
        say(&mut world, target, paused);
    }
    world.saturate();
    world.pass(SECOND);
    assert_eq!(world.total(), 48, "all that hang have what they may");
    for target in well {
        say(&mut world, target, Directive::default());
    }
    world.saturate();
    let used: Vec<usize> = well.iter().map(|target| world.in_flight(*target)).collect();
    assert_eq!(used, [1; 10]);
}

#[test]
fn both_lines_of_first_tries_together_keep_to_the_room() {
    let mut world = World::new(64);
    let target = world.wake(1);
    world.wake_tier(1, Tier::DegradedFirst);
    world.saturate();
    assert_eq!(world.in_flight(target), 4);
}

#[test]
fn with_room_for_one_job_both_lines_of_first_tries_have_their_turn() {
    let mut world = World::new(64);
    let target = world.wake(1);
    world.wake_tier(1, Tier::DegradedFirst);
    let limit = Directive {
        max_in_flight: Some(1),
        ..Directive::default()
    };
    world.heads.direct(target, limit, world.now);
    let mut tiers = Vec::new();
    for _ in 0..4 {
        let picks = world.heads.pick(50, world.now);
        assert_eq!(picks.len(), 1, "{picks:?}");
        tiers.push(picks[0].head.tier);
        world.lease(picks, 50);
        world.now += 5 * MS;
        world.end_all(target, Outcome::Delivered);
    }
    let turns = [Tier::Primary, Tier::DegradedFirst];
    assert_eq!(tiers, [turns, turns].concat());
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
fn a_second_dequeue_asks_for_other_targets_and_within_the_slots_that_are_left() {
    let mut world = World::new(400);
    let busy = world.wake(1);
    world.prove(busy);
    world.wake(1);
    let first = world.heads.pick(50, world.now);
    assert!(first.iter().all(|pick| pick.head.target_id == busy));
    let asked: usize = first.iter().map(Pick::take).sum();
    assert!(world.heads.asks_for_many(), "{asked}");
    let quiet = world.wake(2);
    world.wake(1);
    let second = world.heads.pick(50, world.now);
    assert!(second.iter().all(|pick| pick.head.target_id == quiet));
    assert!(!second.is_empty());
    let beside: usize = second.iter().map(Pick::take).sum();
    assert!(asked + beside <= 400, "{asked} + {beside}");
    // While both are under way nobody is left to be asked.
    assert!(world.heads.pick(50, world.now).is_empty());
    for pick in &second {
        world.heads.not_dequeued(pick, world.now);
    }
    let again = world.heads.pick(50, world.now);
    assert!(again.iter().all(|pick| pick.head.target_id == quiet));
    for pick in first.iter().chain(&again) {
        world.heads.not_dequeued(pick, world.now);
    }
    let targets: Vec<TargetId> = world
        .heads
        .pick(50, world.now)
        .iter()
        .map(|pick| pick.head.target_id)
        .collect();
    assert!(targets.contains(&busy) && targets.contains(&quiet));
}

#[test]
fn what_a_dequeue_may_bring_counts_against_the_shared_allowances() {
    let mut world = World::new(40);
    for target in 1..=40 {
        world.wake(target);
    }
    let mut asked = 0;
    loop {
        let picks = world.heads.pick(10, world.now);
        if picks.is_empty() {
            break;
        }
        asked += picks.iter().map(Pick::take).sum::<usize>();
    }
    assert_eq!(
        asked, 30,
        "nobody is proven yet, and the last quarter is for those who are"
    );
}
