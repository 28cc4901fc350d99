//! Nothing is forgotten or passed over, in bad moments and in random histories.

use super::*;

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
        let mut under_way: Option<Vec<Pick>> = None;
        for _ in 0..3000 {
            let target = TargetId(rng.random_range(0..40));
            match rng.random_range(0..10) {
                0..3 => {
                    let tier = Tier::ALL[rng.random_range(0..3)];
                    world.wake_tier(target.0, tier);
                }
                3 => match under_way.take() {
                    Some(picks) => drop(world.lease(picks, 50)),
                    None => under_way = Some(world.heads.pick(50, world.now)),
                },
                4..6 => {
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
        world.lease(under_way.unwrap_or_default(), 50);
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
