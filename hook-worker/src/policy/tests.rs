//! The policy of one target by examples: windows, circuits, and parts of a total.

use std::time::Duration;

use hook_common::{
    job::{Outcome, QueueName},
    queue::{CircuitNews, LiveWorker, NextProbe, Serves},
    target::TargetId,
};

use super::{Crew, Directive, Health, HeardCircuit, Levels, PolicySettings};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn settings() -> PolicySettings {
    PolicySettings {
        slots: 512,
        target_in_flight_max: 52,
        penalised_in_flight_max: 2,
        slow_after: SECOND,
        quick: 250 * MS,
        levels: Levels::default(),
        hold_failures: 3,
        hold_after: SECOND,
        probe_interval_min: 10 * SECOND,
        probe_interval_max: 30 * SECOND,
    }
}

/// Attempts that run beside each other and end the same way.
fn round(health: &mut Health, count: usize, took: Duration, outcome: Outcome, now: &mut Duration) {
    let running: Vec<_> = (0..count).map(|_| health.start(*now)).collect();
    *now += took;
    for running in running {
        health.end(running, outcome, *now, &settings());
    }
}

/// A target that failed until its circuit opened.
fn down(now: &mut Duration) -> Health {
    let mut health = Health::default();
    for _ in 0..4 {
        round(&mut health, 1, 500 * MS, Outcome::Retryable, now);
    }
    assert!(health.circuit().is_open());
    health
}

fn heard(probe_at: Duration) -> Directive {
    Directive {
        circuit: Some(HeardCircuit {
            probe_at,
            interval: 10 * SECOND,
        }),
        ..Directive::default()
    }
}

#[test]
fn a_window_grows_by_good_answers_alone_and_only_while_it_is_used() {
    let (mut health, mut now) = (Health::default(), SECOND);
    let first = health.window();
    round(&mut health, first, 5 * MS, Outcome::Delivered, &mut now);
    assert_eq!(health.window(), first * 2);
    for _ in 0..50 {
        round(&mut health, 1, 5 * MS, Outcome::Delivered, &mut now);
    }
    assert_eq!(health.window(), first * 2, "one at a time earns nothing");
    round(&mut health, first * 2, 5 * MS, Outcome::Retryable, &mut now);
    assert_eq!(health.window(), first, "failures take it back");
    round(&mut health, first, 2 * SECOND, Outcome::Delivered, &mut now);
    assert_eq!(health.window(), first, "slow answers earn nothing");
}

#[test]
fn what_was_not_used_for_a_while_is_lost() {
    let (mut health, mut now) = (Health::default(), SECOND);
    for _ in 0..6 {
        let window = health.window();
        round(&mut health, window, 5 * MS, Outcome::Delivered, &mut now);
    }
    assert!(health.window() > 100);
    now += 11 * SECOND;
    round(&mut health, 1, 5 * MS, Outcome::Delivered, &mut now);
    assert_eq!(health.window(), 4);
}

#[test]
fn a_hanging_attempt_makes_a_proven_target_unproven_long_before_it_ends() {
    let (mut health, mut now) = (Health::default(), SECOND);
    for _ in 0..8 {
        round(&mut health, 1, 5 * MS, Outcome::Delivered, &mut now);
    }
    assert!(health.proven(now));
    let _hanging = health.start(now);
    assert!(health.proven(now + 20 * MS));
    assert!(!health.proven(now + 60 * MS));
}

#[test]
fn a_circuit_opens_once_and_only_its_probe_changes_the_interval() {
    let mut now = SECOND;
    let mut health = down(&mut now);
    assert_eq!(
        health.circuit_mut().take_news(now),
        Some(CircuitNews::Opened(NextProbe {
            interval: 10 * SECOND,
            left: 9500 * MS
        })),
        "told half a second after it opened"
    );
    assert!(!health.circuit().may_probe(now));
    now += 10 * SECOND;
    assert!(health.circuit().probe_is_due(now));
    health.circuit_mut().grant_probe(now);
    assert!(health.circuit().may_probe(now));
    let probe = health.start(now);
    assert!(!health.circuit().may_probe(now), "one probe for one claim");
    now += SECOND;
    health.end(probe, Outcome::Retryable, now, &settings());
    assert_eq!(
        health.circuit_mut().take_news(now),
        Some(CircuitNews::ProbeFailed(NextProbe {
            interval: 20 * SECOND,
            left: 19 * SECOND
        })),
        "counted from the start of the probe"
    );
    now += 20 * SECOND;
    health.circuit_mut().grant_probe(now);
    round(&mut health, 1, 31 * SECOND, Outcome::Retryable, &mut now);
    assert_eq!(
        health.circuit_mut().take_news(now),
        Some(CircuitNews::ProbeFailed(NextProbe {
            interval: 30 * SECOND,
            left: Duration::ZERO
        })),
        "no longer than the longest"
    );
}

#[test]
fn an_attempt_from_before_the_hold_is_no_probe_but_its_success_releases() {
    let mut now = SECOND;
    let mut health = Health::default();
    let (late_failure, late_success) = (health.start(now), health.start(now));
    for _ in 0..4 {
        round(&mut health, 1, 500 * MS, Outcome::Retryable, &mut now);
    }
    health.circuit_mut().take_news(now);
    health.end(late_failure, Outcome::Retryable, now, &settings());
    assert_eq!(health.circuit_mut().take_news(now), None);
    health.end(late_success, Outcome::Delivered, now, &settings());
    assert!(!health.circuit().is_open());
    assert_eq!(
        health.circuit_mut().take_news(now),
        Some(CircuitNews::Released)
    );
    assert_eq!(health.window(), 2, "step by step");
}

#[test]
fn untold_news_is_not_overruled_by_what_others_last_said() {
    let mut now = SECOND;
    let mut health = down(&mut now);
    health.hear(&Directive::default(), &heard(now));
    assert!(
        health.circuit().is_open(),
        "nobody knows yet that it opened"
    );
    let news = health.circuit_mut().take_news(now);
    health.circuit_mut().untold(news.expect("it opened"));
    now += 10 * SECOND;
    health.circuit_mut().grant_probe(now);
    round(&mut health, 1, SECOND, Outcome::Delivered, &mut now);
    health.hear(&heard(now), &heard(now));
    assert!(
        !health.circuit().is_open(),
        "nobody knows yet of the success"
    );
    assert_eq!(
        health.circuit_mut().take_news(now),
        Some(CircuitNews::Released)
    );
}

#[test]
fn a_circuit_that_others_opened_and_released_is_followed() {
    let mut health = Health::default();
    health.hear(&heard(5 * SECOND), &Directive::default());
    assert!(health.circuit().is_open());
    assert!(!health.circuit().probe_is_due(4 * SECOND));
    assert!(health.circuit().probe_is_due(5 * SECOND));
    health.hear(&Directive::default(), &heard(5 * SECOND));
    assert!(!health.circuit().is_open());
    assert_eq!(
        health.circuit_mut().take_news(5 * SECOND),
        None,
        "others know it"
    );
    assert_eq!(health.window(), 2, "step by step");
}

fn crew(workers: &[(i64, &[QueueName])]) -> Vec<Crew> {
    let all: Vec<LiveWorker> = workers
        .iter()
        .map(|(worker_id, queues)| LiveWorker {
            worker_id: *worker_id,
            serves: Serves::of(queues),
        })
        .collect();
    all.iter()
        .map(|me| Crew::new(*me, all.clone(), 10 * SECOND))
        .collect()
}

#[test]
fn the_parts_of_a_total_add_up_to_it_whatever_it_is() {
    let both: &[QueueName] = &[QueueName::Primary, QueueName::Degraded];
    let workers = crew(&[(1, both), (-7, both), (i64::MAX, both)]);
    let mut first_ranked = [0; 3];
    for target in 0..300 {
        let target_id = TargetId(target * 7919);
        for total in 1..20 {
            let parts: Vec<usize> = workers
                .iter()
                .map(|crew| crew.slots_of(target_id, total))
                .collect();
            assert_eq!(parts.iter().sum::<usize>(), total, "{parts:?}");
            if total == 1 {
                first_ranked[parts.iter().position(|part| *part == 1).expect("one")] += 1;
            }
        }
    }
    assert!(
        first_ranked
            .iter()
            .all(|targets| (60..140).contains(targets)),
        "small limits spread over the workers: {first_ranked:?}"
    );
    let rate: f64 = workers.iter().map(|crew| crew.rate_of(6.0)).sum();
    assert!((rate - 6.0).abs() < 1e-9);
}

#[test]
fn a_queue_with_workers_of_its_own_is_never_left_without_a_slot() {
    let workers = crew(&[
        (1, &[QueueName::Primary]),
        (2, &[QueueName::Primary]),
        (3, &[QueueName::Degraded]),
    ]);
    for target in 0..100 {
        let parts: Vec<usize> = workers
            .iter()
            .map(|crew| crew.slots_of(TargetId(target), 1))
            .collect();
        assert_eq!((parts[0] + parts[1], parts[2]), (1, 1));
    }
}

#[test]
fn a_newcomer_waits_until_the_others_know_of_it() {
    let worker = |worker_id| LiveWorker {
        worker_id,
        serves: Serves::of(&[QueueName::Primary]),
    };
    let young = Crew::new(worker(1), vec![worker(1), worker(2)], SECOND);
    assert_eq!(young.slots_of(TargetId(5), 10), 0);
    let alone = Crew::new(worker(1), vec![worker(1)], SECOND);
    assert_eq!(alone.slots_of(TargetId(5), 10), 10);
}

#[test]
fn levels_are_three_rising_percentages() {
    assert_eq!(Levels::parse("0.5%, 2%,8 %"), Ok(Levels::default()));
    for bad in [
        "",
        "1%",
        "1%,2%",
        "1,2,3",
        "2%,1%,3%",
        "0%,1%,2%",
        "1%,2%,101%",
        "1%,1%,2%",
        "NaN%,1%,2%",
        "1%,2%,3%,4%",
    ] {
        assert!(Levels::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_level_is_a_share_of_the_slots_and_never_one_slow_answer() {
    let large = settings();
    let levels = [2.5, 2.6, 10.3, 41.0].map(|wasted| large.level_for(wasted));
    assert_eq!(levels, [0, 1, 2, 3]);
    let small = PolicySettings {
        slots: 4,
        ..settings()
    };
    let levels = [0.2, 0.3, 0.6, 1.0].map(|wasted| small.level_for(wasted));
    assert_eq!(levels, [0, 1, 2, 3]);
}

#[test]
fn beyond_the_cap_slots_are_kept_only_while_they_bring_answers() {
    let (mut health, mut now) = (Health::default(), SECOND);
    let cap = settings().target_in_flight_max;
    for _ in 0..200 {
        let all = health.window();
        round(&mut health, all, 5 * MS, Outcome::Delivered, &mut now);
    }
    assert_eq!(
        health.window(),
        settings().slots,
        "quick answers earn all of them"
    );
    for _ in 0..20 {
        let all = health.window();
        round(&mut health, all, 60 * MS, Outcome::Delivered, &mut now);
    }
    assert_eq!(
        health.window(),
        cap,
        "slots that only make it slower are given back"
    );
    for _ in 0..20 {
        round(&mut health, cap, 5 * MS, Outcome::Delivered, &mut now);
    }
    assert!(health.window() > cap);
}
