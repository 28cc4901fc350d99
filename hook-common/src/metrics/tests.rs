use std::collections::HashSet;

use super::*;

#[test]
fn names_follow_the_rules_and_are_unique() {
    let mut seen = HashSet::new();
    for metric in all() {
        let name = metric.name;
        assert!(seen.insert(name), "{name} is there twice");
        assert!(name.starts_with("hook_"), "{name}");
        assert!(metric.help.ends_with('.'), "{name} needs a sentence");
        let counter = metric.kind == Kind::Counter;
        assert_eq!(counter, name.ends_with("_total"), "{name}");
        let base = name.strip_suffix("_total").unwrap_or(name);
        let seconds = metric.unit == Unit::Seconds;
        assert_eq!(seconds, base.ends_with("_seconds"), "{name}");
        let bytes = metric.unit == Unit::Bytes;
        assert_eq!(bytes, base.ends_with("_bytes"), "{name}");
    }
}

#[test]
fn buckets_reach_from_100_us_to_60_s_in_steps_of_at_most_two() {
    assert_eq!(SECONDS_BUCKETS.first(), Some(&0.0001));
    assert_eq!(SECONDS_BUCKETS.last(), Some(&60.0));
    for buckets in [SECONDS_BUCKETS, COUNT_BUCKETS] {
        for pair in buckets.windows(2) {
            let step = pair[1] / pair[0];
            assert!(step > 1.0 && step <= 2.0 + 1e-9, "{pair:?}");
        }
    }
}

/// A constant that is not in its list would be recorded but neither described nor documented.
#[test]
fn every_constant_is_in_its_list() {
    let tables = [
        (include_str!("api.rs"), api::ALL),
        (include_str!("janitor.rs"), janitor::ALL),
        (include_str!("process.rs"), process::ALL),
        (include_str!("worker.rs"), worker::ALL),
    ];
    for (source, list) in tables {
        let constants = source.matches(": Metric =").count();
        assert_eq!(constants, list.len());
    }
}

#[test]
fn the_contract_names_are_there() {
    for name in [
        "hook_api_jobs_enqueued_total",
        "hook_api_requests_total",
        "hook_api_request_duration_seconds",
        "hook_gate_in_flight",
        "hook_gate_max",
        "hook_gate_wait_seconds",
        "hook_worker_attempts_total",
        "hook_worker_attempt_duration_seconds",
        "hook_worker_dequeue_duration_seconds",
        "hook_worker_finish_duration_seconds",
        "hook_worker_delivery_latency_seconds",
        "hook_worker_penalised_targets",
        "hook_worker_penalty_snapshot_age_seconds",
        "hook_worker_last_dequeue_success_timestamp_seconds",
        "hook_worker_leases_lost_total",
        "hook_janitor_leases_reaped_total",
        "hook_janitor_jobs_purged_total",
        "hook_queue_jobs",
        "hook_queue_oldest_due_age_seconds",
        "hook_target_attempts_total",
        "hook_target_waiting_jobs",
        "hook_target_penalty",
    ] {
        assert!(all().any(|metric| metric.name == name), "{name}");
    }
}

#[test]
fn what_is_recorded_is_rendered_with_type_help_and_buckets() {
    let handle = install();
    install();
    worker::ATTEMPTS_TOTAL
        .counter(&["primary", "delivered", "none"])
        .increment(2);
    worker::DEQUEUE_DURATION_SECONDS
        .histogram(&["jobs"])
        .record(0.003);
    worker::DEQUEUE_JOBS.histogram(&[]).record(50.0);
    handle.upkeep();
    let text = handle.render();
    for line in [
        "# TYPE hook_worker_attempts_total counter",
        "# HELP hook_worker_attempts_total Attempts that ended",
        "hook_worker_attempts_total{queue=\"primary\",outcome=\"delivered\",error_kind=\"none\"}",
        "hook_worker_dequeue_duration_seconds_bucket{result=\"jobs\",le=\"0.004\"}",
        "hook_worker_dequeue_duration_seconds_bucket{result=\"jobs\",le=\"60\"}",
        "hook_worker_dequeue_jobs_bucket{le=\"64\"}",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[test]
#[should_panic(expected = "has the labels")]
fn a_wrong_number_of_label_values_is_a_bug() {
    worker::ATTEMPTS_TOTAL.counter(&["primary"]).increment(1);
}
