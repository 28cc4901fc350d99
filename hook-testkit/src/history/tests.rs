//! A good history, and one that is bad in each of many ways.

use super::*;

const fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn attempt(attempt: u32, begun: u64, ended: u64, outcome: Outcome) -> Attempt {
    Attempt {
        attempt,
        fence: i64::from(attempt),
        begun: at(begun),
        ended: at(ended),
        outcome,
        status: match outcome {
            Outcome::Delivered => Some(200),
            Outcome::Retryable => Some(503),
            Outcome::Permanent => Some(410),
            Outcome::Lost => None,
        },
    }
}

fn delivery(id: &str, attempt: u32, begun: u64, status: u16) -> Delivery {
    Delivery {
        id: id.to_owned(),
        attempt,
        digest: Some(format!("digest of {id}")),
        begun: at(begun),
        status: Some(status),
        kept_connection: false,
    }
}

fn job(id: &str, state: State, attempts: Vec<Attempt>) -> Job {
    Job {
        id: id.to_owned(),
        key: format!("key of {id}"),
        digest: format!("digest of {id}"),
        state,
        attempt: u32::try_from(attempts.len()).expect("few"),
        attempts,
    }
}

fn enqueue(id: &str, answer: Answer) -> Enqueue {
    Enqueue {
        key: format!("key of {id}"),
        digest: format!("digest of {id}"),
        answer,
    }
}

/// One job that went well, one that failed first, one whose worker was killed, one that was given
/// up, one whose producer never heard of it, and one that was refused.
fn good() -> History {
    let stored = |id: &str| enqueue(id, Answer::Stored(vec![id.to_owned()]));
    History {
        enqueues: vec![
            stored("plain"),
            stored("retried"),
            stored("orphan"),
            stored("given-up"),
            enqueue("unknown", Answer::Unknown),
            enqueue("refused", Answer::Refused),
        ],
        deliveries: vec![
            delivery("plain", 1, 100, 200),
            delivery("retried", 1, 100, 503),
            delivery("retried", 2, 3_000, 204),
            delivery("orphan", 1, 10_100, 200),
            delivery("orphan", 2, 13_000, 200),
            delivery("given-up", 1, 100, 503),
            delivery("given-up", 2, 3_000, 503),
            delivery("given-up", 3, 6_000, 503),
            delivery("unknown", 1, 100, 200),
        ],
        jobs: good_jobs(),
        faults: vec![Fault {
            what: "kill -9 of a worker".to_owned(),
            from: at(10_200),
            until: at(10_900),
        }],
        counted: Counts {
            delivered: 4,
            retryable: 5,
            permanent: 0,
        },
        limits: Limits {
            attempts_max: 3,
            backoff_min: at(1_000),
            orphan_max: at(5_000),
        },
    }
}

fn good_jobs() -> Vec<Job> {
    let (delivered, retryable) = (Outcome::Delivered, Outcome::Retryable);
    vec![
        job(
            "plain",
            State::Completed(at(150)),
            vec![attempt(1, 90, 150, delivered)],
        ),
        job(
            "retried",
            State::Completed(at(3_050)),
            vec![
                attempt(1, 90, 150, retryable),
                attempt(2, 2_900, 3_050, delivered),
            ],
        ),
        job(
            "orphan",
            State::Completed(at(13_050)),
            vec![
                attempt(1, 10_000, 12_500, Outcome::Lost),
                attempt(2, 12_900, 13_050, delivered),
            ],
        ),
        job(
            "given-up",
            State::Failed(at(6_050)),
            vec![
                attempt(1, 90, 150, retryable),
                attempt(2, 2_900, 3_050, retryable),
                attempt(3, 5_900, 6_050, retryable),
            ],
        ),
        job(
            "unknown",
            State::Completed(at(150)),
            vec![attempt(1, 90, 150, delivered)],
        ),
    ]
}

#[test]
fn a_good_history_has_no_breach() {
    assert_eq!(good().check(), []);
    assert_eq!(good().duplicates(), 1, "the orphan was taken twice");
}

/// Changes the good history, and wants exactly this breach among those that are found.
#[track_caller]
fn caught(breach: Breach, spoil: impl FnOnce(&mut History)) {
    let mut history = good();
    spoil(&mut history);
    let found = history.check();
    assert!(
        found.contains(&breach),
        "wanted {breach:?}, found {found:?}"
    );
}

fn id(id: &str) -> String {
    id.to_owned()
}

#[test]
fn an_accepted_job_that_is_gone_is_caught() {
    caught(Breach::Lost(id("plain")), |history| {
        history.jobs.remove(0);
    });
}

#[test]
fn an_answered_id_that_belongs_to_another_key_is_caught() {
    caught(Breach::Lost(id("retried")), |history| {
        history.enqueues[0].answer = Answer::Stored(vec![id("retried")]);
    });
}

#[test]
fn a_job_that_still_waits_is_caught() {
    caught(Breach::Unfinished(id("plain")), |history| {
        history.jobs[0].state = State::Unfinished;
    });
}

#[test]
fn a_completed_job_that_never_arrived_is_caught() {
    caught(Breach::NeverTaken(id("plain")), |history| {
        history.deliveries.remove(0);
    });
}

#[test]
fn a_completed_job_that_was_only_refused_is_caught() {
    caught(Breach::NeverTaken(id("plain")), |history| {
        history.deliveries[0].status = Some(503);
    });
}

#[test]
fn a_completed_job_whose_last_attempt_failed_is_caught() {
    caught(Breach::NeverTaken(id("retried")), |history| {
        history.jobs[1].attempts[1].outcome = Outcome::Retryable;
    });
}

#[test]
fn a_job_that_failed_before_its_last_attempt_is_caught() {
    caught(Breach::Unexplained(id("given-up")), |history| {
        history.jobs[3].attempts.pop();
    });
}

#[test]
fn a_job_that_failed_without_any_attempt_is_caught() {
    caught(Breach::Unexplained(id("given-up")), |history| {
        history.jobs[3].attempts.clear();
    });
}

#[test]
fn a_delivered_job_that_counts_as_failed_is_caught() {
    caught(Breach::Unexplained(id("plain")), |history| {
        history.jobs[0].state = State::Failed(at(150));
    });
}

#[test]
fn a_request_for_a_job_that_nobody_asked_for_is_caught() {
    caught(Breach::Unasked(id("ghost")), |history| {
        history.deliveries.push(delivery("ghost", 1, 100, 200));
    });
}

#[test]
fn a_stored_job_that_nobody_asked_for_is_caught() {
    caught(Breach::Unasked(id("ghost")), |history| {
        let attempts = vec![attempt(1, 90, 150, Outcome::Delivered)];
        history
            .jobs
            .push(job("ghost", State::Completed(at(150)), attempts));
    });
}

#[test]
fn a_refused_job_that_was_stored_all_the_same_is_caught() {
    caught(Breach::Unasked(id("refused")), |history| {
        let attempts = vec![attempt(1, 90, 150, Outcome::Delivered)];
        history
            .jobs
            .push(job("refused", State::Completed(at(150)), attempts));
    });
}

#[test]
fn other_bytes_at_the_receiver_are_caught() {
    caught(Breach::WrongBytes(id("plain")), |history| {
        history.deliveries[0].digest = Some(id("another"));
    });
}

#[test]
fn other_bytes_in_the_database_are_caught() {
    caught(Breach::WrongBytes(id("retried")), |history| {
        history.jobs[1].digest = id("another");
    });
}

#[test]
fn two_jobs_of_one_key_are_caught() {
    caught(Breach::KeyTwice(id("key of plain")), |history| {
        let mut twin = history.jobs[0].clone();
        twin.id = id("twin");
        history.jobs.push(twin);
    });
}

#[test]
fn two_ids_for_one_key_are_caught() {
    caught(Breach::KeyTwice(id("key of plain")), |history| {
        history.enqueues[0].answer = Answer::Stored(vec![id("plain"), id("retried")]);
    });
}

#[test]
fn an_answer_that_is_not_documented_is_caught() {
    caught(Breach::Unexpected(id("key of plain"), 500), |history| {
        history.enqueues[0].answer = Answer::Unexpected(500);
    });
}

#[test]
fn two_requests_of_one_attempt_are_caught() {
    caught(Breach::SentTwice(id("retried"), 2), |history| {
        history.deliveries.push(delivery("retried", 2, 3_020, 200));
    });
}

/// Two requests of the first attempt, whose first has no answer and came on a kept connection.
fn replaced(history: &mut History) {
    history.deliveries[0].status = None;
    history.deliveries[0].kept_connection = true;
    history.deliveries.push(delivery("plain", 1, 110, 200));
}

#[test]
fn an_attempt_on_a_dead_connection_may_be_sent_once_more_and_not_twice() {
    let mut history = good();
    replaced(&mut history);
    assert_eq!(history.check(), []);
    history.deliveries[9].status = None;
    history.deliveries.push(delivery("plain", 1, 120, 200));
    assert_eq!(history.check(), [Breach::SentTwice(id("plain"), 1)]);
}

#[test]
fn a_second_request_after_one_on_a_new_connection_is_caught() {
    caught(Breach::SentTwice(id("plain"), 1), |history| {
        replaced(history);
        history.deliveries[0].kept_connection = false;
    });
}

#[test]
fn a_second_request_on_a_kept_connection_is_caught() {
    caught(Breach::SentTwice(id("plain"), 1), |history| {
        replaced(history);
        history.deliveries[9].kept_connection = true;
    });
}

#[test]
fn a_request_of_an_attempt_that_is_not_on_record_is_caught() {
    caught(Breach::OffRecord(id("plain"), 2), |history| {
        history.deliveries.push(delivery("plain", 2, 120, 200));
    });
}

#[test]
fn an_attempt_that_was_not_counted_is_caught() {
    caught(Breach::Miscounted(id("retried")), |history| {
        history.jobs[1].attempts.remove(0);
    });
}

#[test]
fn an_attempt_that_was_counted_twice_is_caught() {
    caught(Breach::Miscounted(id("retried")), |history| {
        history.jobs[1].attempts[1].attempt = 1;
    });
}

#[test]
fn one_attempt_too_many_is_caught() {
    caught(Breach::TooManyAttempts(id("given-up")), |history| {
        history.limits.attempts_max = 2;
    });
}

#[test]
fn a_fence_that_stays_is_caught() {
    caught(Breach::FenceFell(id("orphan")), |history| {
        history.jobs[2].attempts[1].fence = 1;
    });
}

#[test]
fn an_attempt_after_a_delivery_is_caught() {
    caught(Breach::AfterTheEnd(id("retried")), |history| {
        history.jobs[1].attempts[0].outcome = Outcome::Delivered;
    });
}

#[test]
fn an_attempt_after_a_refusal_is_caught() {
    caught(Breach::AfterTheEnd(id("given-up")), |history| {
        history.jobs[3].attempts[0].outcome = Outcome::Permanent;
    });
}

#[test]
fn a_request_long_after_the_end_is_caught() {
    caught(Breach::LateRequest(id("plain")), |history| {
        history.deliveries[0].begun = at(5_000);
        history.faults[0].from = Duration::ZERO;
    });
}

#[test]
fn a_lost_attempt_without_a_fault_is_caught() {
    caught(Breach::LostWithoutFault(id("orphan")), |history| {
        history.faults.clear();
    });
}

#[test]
fn an_orphan_that_comes_back_too_late_is_caught() {
    caught(Breach::OrphanLate(id("orphan")), |history| {
        history.limits.orphan_max = at(1_500);
    });
}

#[test]
fn a_lease_before_its_time_is_caught() {
    caught(Breach::TooSoon(id("retried")), |history| {
        history.jobs[1].attempts[1].begun = at(1_089);
    });
}

/// Not even a fault makes it right.
#[test]
fn a_request_before_its_time_is_caught() {
    caught(Breach::TooSoon(id("retried")), |history| {
        history.deliveries[2].begun = at(1_099);
        history.faults[0].from = Duration::ZERO;
    });
}

#[test]
fn totals_that_differ_from_the_attempts_are_caught() {
    caught(Breach::Totals, |history| {
        history.counted.delivered += 1;
    });
}
