//! What workers share about targets: circuits, probes, pauses, who lives, and who fails most.

use std::time::Duration;

use hook_common::{
    job::{ErrorKind, Outcome, QueueName, Status},
    queue::{
        CircuitNews, Finding, LiveWorker, Next, NextProbe, PREPARE_FAILING, PenaltyReason, Serves,
        SpecialTarget, TargetChange, TargetOrder,
    },
    target::{Target, TargetId},
};
use sqlx::{Executor as _, PgPool, Row as _};
use tokio::task::JoinSet;

use super::kit::{Kit, finish};

const MINUTE: Duration = Duration::from_secs(60);

fn id(target: &str) -> TargetId {
    Target::new(target).unwrap().id()
}

fn finding(target: &str, circuit: Option<CircuitNews>) -> Finding {
    Finding {
        target_id: id(target),
        penalty: 3,
        failures_in_row: 20,
        asked: None,
        circuit,
    }
}

/// A probe after a whole interval.
fn next_probe(interval: Duration) -> NextProbe {
    NextProbe {
        interval,
        left: interval,
    }
}

/// The shared state of the one target that has any.
async fn shared(kit: &Kit) -> SpecialTarget {
    let mut special = kit.queue.special_targets(MINUTE, 10).await.unwrap();
    assert_eq!(special.len(), 1, "{special:?}");
    special.pop().unwrap()
}

/// Lets every hold be over.
async fn end_holds(kit: &Kit) {
    sqlx::query("UPDATE hook.target SET held_until = now() - interval '1 second'")
        .execute(&kit.pool)
        .await
        .unwrap();
}

#[tokio::test]
async fn one_of_many_workers_wins_each_probe() {
    let kit = Kit::new().await;
    kit.enqueue(&["down.test"]).await;
    let opened = finding("down.test", Some(CircuitNews::Opened(next_probe(MINUTE))));
    kit.queue.report_targets(&[opened]).await.unwrap();
    let down = [id("down.test")];
    let early = kit.queue.claim_probes(&down, MINUTE).await.unwrap();
    assert!(early.is_empty(), "not before its time");
    end_holds(&kit).await;
    let mut workers = JoinSet::new();
    for _ in 0..8 {
        let queue = kit.queue.clone();
        workers.spawn(async move { queue.claim_probes(&down, MINUTE).await.unwrap().len() });
    }
    assert_eq!(workers.join_all().await.iter().sum::<usize>(), 1);
    let unknown = [id("never-seen.test")];
    let free = kit.queue.claim_probes(&unknown, MINUTE).await.unwrap();
    assert_eq!(free, unknown, "nobody else knows of it");
}

#[tokio::test]
async fn a_circuit_stays_open_for_all_until_one_of_them_has_a_success() {
    let kit = Kit::new().await;
    kit.enqueue(&["down.test"]).await;
    let report = async |circuit| {
        kit.queue
            .report_targets(&[finding("down.test", circuit)])
            .await
            .unwrap();
    };
    report(Some(CircuitNews::Opened(next_probe(Duration::from_secs(
        10,
    )))))
    .await;
    report(Some(CircuitNews::Opened(next_probe(Duration::from_secs(
        99,
    )))))
    .await;
    assert_eq!(shared(&kit).await.hold_interval_ms, Some(10_000));
    // Another worker has a finding, but no news of the circuit.
    report(None).await;
    let held = shared(&kit).await;
    assert_eq!(held.hold_interval_ms, Some(10_000));
    assert!(held.held_ms.is_some_and(|ms| (1..=10_000).contains(&ms)));
    end_holds(&kit).await;
    report(Some(CircuitNews::ProbeFailed(next_probe(
        Duration::from_secs(20),
    ))))
    .await;
    let held = shared(&kit).await;
    assert_eq!(held.hold_interval_ms, Some(20_000));
    assert!(held.held_ms.is_some_and(|ms| ms > 10_000), "{held:?}");
    let overdue = NextProbe {
        left: Duration::ZERO,
        ..next_probe(Duration::from_secs(30))
    };
    report(Some(CircuitNews::ProbeFailed(overdue))).await;
    let held = shared(&kit).await;
    assert_eq!((held.hold_interval_ms, held.held_ms), (Some(30_000), None));
    report(Some(CircuitNews::Released)).await;
    let free = shared(&kit).await;
    assert_eq!((free.hold_interval_ms, free.held_ms), (None, None));
    report(Some(CircuitNews::ProbeFailed(next_probe(
        Duration::from_secs(40),
    ))))
    .await;
    assert_eq!(
        shared(&kit).await.hold_interval_ms,
        None,
        "a success counts more than a probe that was under way"
    );
}

#[tokio::test]
async fn a_pause_that_was_asked_for_never_gets_shorter_and_is_cleared_when_over() {
    let kit = Kit::new().await;
    kit.enqueue(&["busy.test"]).await;
    let asked = |seconds| Finding {
        asked: Some(Duration::from_secs(seconds)),
        ..finding("busy.test", None)
    };
    kit.queue.report_targets(&[asked(60)]).await.unwrap();
    kit.queue.report_targets(&[asked(5)]).await.unwrap();
    assert!(shared(&kit).await.held_ms.unwrap() > 50_000);
    kit.queue
        .report_targets(&[finding("busy.test", None)])
        .await
        .unwrap();
    assert!(shared(&kit).await.held_ms.unwrap() > 50_000);
    end_holds(&kit).await;
    sqlx::query("UPDATE hook.target SET changed_at = now() - interval '1 hour'")
        .execute(&kit.pool)
        .await
        .unwrap();
    assert_eq!(kit.queue.forget_findings(MINUTE, 10).await.unwrap(), 1);
    let special = kit.queue.special_targets(MINUTE, 10).await.unwrap();
    assert!(special.is_empty(), "{special:?}");
}

#[tokio::test]
async fn workers_hear_of_each_other_and_forget_the_silent() {
    let kit = Kit::new().await;
    let worker = |worker_id, queues: &[QueueName]| LiveWorker {
        worker_id,
        serves: Serves::of(queues),
    };
    let both = worker(1, &[QueueName::Primary, QueueName::Degraded]);
    let degraded = worker(2, &[QueueName::Degraded]);
    let alone = kit.queue.announce_worker(both, "w", MINUTE).await.unwrap();
    assert_eq!(alone, [both]);
    let mut seen = kit
        .queue
        .announce_worker(degraded, "w", MINUTE)
        .await
        .unwrap();
    seen.sort();
    assert_eq!(seen, [both, degraded]);
    assert!(both.serves.covers(degraded.serves) && !degraded.serves.covers(both.serves));
    sqlx::query("UPDATE hook.worker SET seen_at = now() - interval '2 minutes'")
        .execute(&kit.pool)
        .await
        .unwrap();
    let alone = kit.queue.announce_worker(both, "w", MINUTE).await.unwrap();
    assert_eq!(alone, [both]);
    let gone = Duration::from_secs(1);
    kit.queue.announce_worker(both, "w", gone).await.unwrap();
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM hook.worker")
        .fetch_one(&kit.pool)
        .await
        .unwrap();
    assert_eq!(left, 1, "rows of the silent are deleted");
}

/// Fills the ready table: `waiting` jobs, of which `retried` have failed before, over `targets`.
async fn fill(pool: &PgPool, waiting: i32, retried: i32, targets: i32) {
    sqlx::query(
        "INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, bucket, attempt)
         SELECT 0, CASE WHEN n <= $2 THEN 2 ELSE 0 END, hook.target_id('t' || n % $3),
             now() + interval '1 hour', gen_random_uuid(), 0, CASE WHEN n <= $2 THEN 1 ELSE 0 END
         FROM generate_series(1, $1) AS n",
    )
    .bind(waiting)
    .bind(retried)
    .bind(targets)
    .execute(pool)
    .await
    .unwrap();
}

/// The plan of one piece of the walk, with the buffers that it touched.
async fn piece_plan(pool: &PgPool) -> String {
    let mut connection = pool.acquire().await.unwrap();
    connection
        .execute("SET plan_cache_mode = force_generic_plan")
        .await
        .unwrap();
    connection
        .execute(sqlx::raw_sql(PREPARE_FAILING))
        .await
        .unwrap();
    let rows = connection
        .fetch_all(sqlx::raw_sql(
            "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF)
             EXECUTE hook_failing (0, -9223372036854775808, 5000)",
        ))
        .await
        .unwrap();
    connection.execute("DEALLOCATE ALL").await.unwrap();
    rows.iter()
        .map(|row| row.get::<String, _>(0))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Buffers of the topmost line that names them; those that were made dirty are among the others.
fn buffers(plan: &str) -> i64 {
    let line = plan.lines().find(|line| line.contains("Buffers: shared"));
    line.unwrap_or_else(|| panic!("no buffers in:\n{plan}"))
        .split(' ')
        .filter_map(|word| word.strip_prefix("hit=").or(word.strip_prefix("read=")))
        .filter_map(|number| number.parse::<i64>().ok())
        .sum()
}

/// Scaled down from 5 M rows: what is bounded is what one statement reads, not how long it takes
/// on this machine.
#[tokio::test]
async fn pg_04_the_worst_hosts_are_read_from_the_index_of_retries_in_bounded_pieces() {
    let kit = Kit::new().await;
    fill(&kit.pool, 100_000, 40_000, 10_000).await;
    for analysed in [false, true] {
        if analysed {
            kit.pool.execute("VACUUM ANALYZE hook.ready").await.unwrap();
        }
        let plan = piece_plan(&kit.pool).await;
        assert!(
            plan.contains("ready_retried") && !plan.contains("Seq Scan") && !plan.contains("Sort"),
            "{plan}"
        );
        // One page of the table for each entry at worst, and the index.
        assert!(buffers(&plan) <= 5_100, "{plan}");
    }
    let (mut after, mut pieces, mut counted) = (None, 0, 0);
    loop {
        let piece = kit.queue.failing_targets(after, 5_000).await.unwrap();
        pieces += 1;
        assert!(piece.targets.iter().all(|target| target.jobs == 4));
        counted += piece.targets.len();
        after = piece.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((counted, pieces <= 10), (10_000, true), "{pieces} pieces");
}

#[tokio::test]
async fn a_target_with_a_giant_backlog_of_retries_is_stepped_over() {
    let kit = Kit::new().await;
    fill(&kit.pool, 30_000, 30_000, 3).await;
    let (mut after, mut found) = (None, Vec::new());
    for _ in 0..4 {
        let piece = kit.queue.failing_targets(after, 100).await.unwrap();
        found.extend(piece.targets);
        after = piece.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(after, None, "each giant costs one piece");
    assert_eq!(found.len(), 3);
    assert!(found.iter().all(|target| target.jobs == 100));
}

/// Ends one job of the target after `took`.
async fn end(kit: &Kit, target: &str, error: Option<ErrorKind>, took: Duration) {
    kit.enqueue(&[target]).await;
    let job = kit.dequeue(&[target], 1).await.pop().unwrap();
    let mut finish = finish(job, Next::End(Status::Failed));
    if error.is_none() {
        finish.next = Next::End(Status::Completed);
    }
    finish.record.outcome = error.map_or(Outcome::Delivered, |_| Outcome::Retryable);
    finish.record.error_kind = error;
    finish.record.duration = took;
    kit.queue.finish(&mut [finish]).await.unwrap();
}

#[tokio::test]
async fn what_attempts_came_to_is_seen_before_and_after_it_is_counted() {
    let kit = Kit::new().await;
    let target = Target::new("a.test").unwrap();
    let ms = Duration::from_millis;
    end(&kit, "a.test", None, ms(10)).await;
    end(&kit, "a.test", Some(ErrorKind::Dns), ms(20)).await;
    end(&kit, "a.test", Some(ErrorKind::Timeout), ms(500)).await;
    end(&kit, "quick.test", None, ms(1)).await;
    let look = async || kit.queue.target(&target, 2, MINUTE).await.unwrap().unwrap();
    let fresh = look().await;
    assert_eq!(fresh.last_error_kind, Some(ErrorKind::Timeout.code()));
    assert!(fresh.last_success_at < fresh.last_error_at);
    assert_eq!(
        (fresh.latency_p50_ms, fresh.latency_p95_ms),
        (Some(20), Some(500))
    );
    assert!(fresh.hours.is_empty());
    while kit.queue.count_tallies(2).await.unwrap() > 0 {}
    let counted = look().await;
    // All of it within an hour, or over the turn of one.
    assert_eq!(counted.hours.len(), counted.hours_failed.len());
    assert_eq!(counted.hours_delivered.iter().sum::<i64>(), 1);
    assert_eq!(counted.hours_failed.iter().sum::<i64>(), 2);
    assert_eq!(counted.last_error_kind, fresh.last_error_kind);
    assert_eq!(counted.last_error_at, fresh.last_error_at);
    assert_eq!(counted.last_success_at, fresh.last_success_at);
    assert!(counted.latency_p95_ms.is_some());
    // What came later is seen beside what was counted.
    end(&kit, "a.test", None, ms(30)).await;
    let later = look().await;
    assert_eq!(later.last_error_kind, fresh.last_error_kind);
    assert!(later.last_success_at > later.last_error_at);
    assert_eq!(later.latency_p50_ms, Some(30));
    let names = async |order| {
        let targets = kit.queue.targets(order, 10, 2, MINUTE).await.unwrap();
        targets
            .into_iter()
            .map(|target| target.name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(TargetOrder::Failing).await, ["a.test"]);
    assert_eq!(names(TargetOrder::Slow).await, ["a.test", "quick.test"]);
}

#[tokio::test]
async fn a_level_has_its_reasons() {
    let kit = Kit::new().await;
    let target = Target::new("a.test").unwrap();
    kit.enqueue(&["a.test"; 6]).await;
    let mut retried: Vec<_> = kit.dequeue(&["a.test"], 5).await;
    let mut finishes: Vec<_> = retried
        .drain(..)
        .map(|job| finish(job, Next::Retry(MINUTE)))
        .collect();
    kit.queue.finish(&mut finishes).await.unwrap();
    use PenaltyReason::{FailuresInRow, Pinned, WaitingRetries, WastedSlots};
    for (penalty, failures_in_row, reasons) in [
        (0, 0, &[][..]),
        (1, 0, &[WaitingRetries]),
        (2, 0, &[WaitingRetries, WastedSlots]),
        (1, 7, &[FailuresInRow, WaitingRetries]),
        (3, 7, &[FailuresInRow, WaitingRetries, WastedSlots]),
    ] {
        let found = Finding {
            penalty,
            failures_in_row,
            ..finding("a.test", None)
        };
        kit.queue.report_targets(&[found]).await.unwrap();
        let seen = kit.queue.target(&target, 0, MINUTE).await.unwrap().unwrap();
        assert_eq!((seen.retries, seen.waiting), (5, 6));
        assert_eq!(seen.penalty_reasons(), reasons, "{penalty}");
    }
    let pin = TargetChange {
        penalty_pin: Some(Some(2)),
        ..TargetChange::default()
    };
    kit.queue.change_target(&target, &pin).await.unwrap();
    let seen = kit.queue.target(&target, 0, MINUTE).await.unwrap().unwrap();
    assert_eq!(seen.penalty_reasons(), [Pinned]);
}
