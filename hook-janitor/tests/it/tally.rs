//! What attempts came to is counted per target, each attempt once, and stays after the purge.

use std::{sync::Arc, time::Duration};

use hook_common::{
    db::Db,
    job::Status,
    queue::{AttemptCounts, Next, Queue, ReapLeases},
    target::{Target, TargetId},
};
use hook_janitor::{leader::Leadership, stats::Stats, tally::Tally};
use tokio::task::JoinSet;

use crate::support::{self, Scene};

const KEPT: Duration = Duration::from_secs(90 * 24 * 3600);

fn id(target: &str) -> TargetId {
    Target::new(target).unwrap().id()
}

async fn leading(scene: &Scene) -> Arc<Leadership> {
    let leadership = Leadership::new(scene.queue.clone(), "leader".to_owned());
    leadership.run_once().await.unwrap();
    Arc::new(leadership)
}

async fn tally(scene: &Scene) -> Tally {
    Tally::new(scene.queue.clone(), leading(scene).await, KEPT)
}

/// Delivered, retryable and permanent attempts.
fn outcomes(counts: AttemptCounts) -> [i64; 3] {
    [counts.delivered, counts.retryable, counts.permanent]
}

async fn total(queue: &Queue, target: &str) -> [i64; 3] {
    let totals = queue.attempt_totals(&[id(target)]).await.unwrap();
    totals
        .targets
        .first()
        .map_or([0; 3], |(_, counts)| outcomes(*counts))
}

#[tokio::test]
async fn every_attempt_is_counted_once_and_what_was_none_is_not() {
    let scene = Scene::new().await;
    scene.finished("a.example", 4, Status::Completed).await;
    scene.finished("b.example", 3, Status::Failed).await;
    scene.enqueue("b.example", 6).await;
    let retried = scene.dequeue("b.example", 2).await;
    scene.finish(retried, Next::Retry(Duration::ZERO)).await;
    let released = scene.dequeue("b.example", 1).await;
    scene.finish(released, Next::Release).await;
    let unattempted = scene.dequeue("b.example", 1).await;
    scene.finish(unattempted, Next::EndUnattempted).await;
    // Lost leases were attempts; their late results were none.
    let lost = scene.dequeue("b.example", 2).await;
    scene.age(1.0).await;
    let reap = ReapLeases {
        max_attempts: 3,
        ..ReapLeases::default()
    };
    let reaped = scene.queue.reap_leases(10, &reap).await.unwrap();
    assert_eq!(reaped.returned + reaped.failed, 2);
    scene.finish(lost, Next::End(Status::Completed)).await;

    let tally = tally(&scene).await;
    assert!(tally.run_once().await.unwrap().counted >= 4);
    assert_eq!(tally.run_once().await.unwrap().counted, 0);
    assert_eq!(total(&scene.queue, "a.example").await, [4, 0, 0]);
    // The helper ends failed jobs as retryable failures: 3 + 2 retried + 2 reaped.
    assert_eq!(total(&scene.queue, "b.example").await, [0, 7, 0]);
    let totals = scene.queue.attempt_totals(&[]).await.unwrap();
    assert_eq!(outcomes(totals.all), [4, 7, 0]);

    let target = Target::new("a.example").unwrap();
    let hours = scene.queue.target_history(&target, None, None, 10).await;
    let hours = hours.unwrap();
    assert!((1..=2).contains(&hours.len()), "{hours:?}");
    let delivered: i64 = hours.iter().map(|hour| hour.counts.delivered).sum();
    let took: i64 = hours.iter().map(|hour| hour.counts.duration_ms).sum();
    assert_eq!((delivered, took), (4, 4 * 5));
    let before = hours.last().unwrap().hour;
    let none = scene
        .queue
        .target_history(&target, None, Some(before), 10)
        .await;
    assert_eq!(none.unwrap(), []);
    let all = scene
        .queue
        .target_history(&target, Some(before), None, 10)
        .await;
    assert_eq!(all.unwrap(), hours);
}

/// JAN-03: jobs are purged, counting is cut short, several janitors count at one time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn jan_03_totals_neither_fall_with_a_purge_nor_count_twice() {
    let scene = Scene::new().await;
    let mut counting = JoinSet::new();
    for _ in 0..3 {
        let queue = Queue::new(Db::around(scene.db.pool().await));
        counting.spawn(async move {
            let mut counted = 0;
            while counted < 40 {
                // One that is dropped in the middle may have counted or not, never half.
                let cut = Duration::from_micros(500 + 97 * counted);
                drop(tokio::time::timeout(cut, queue.count_tallies(2)).await);
                queue.count_tallies(3).await.unwrap();
                counted += 1;
            }
        });
    }
    let mut delivered = 0;
    let mut before = 0;
    for round in 0..30 {
        let status = if round % 3 == 0 {
            Status::Failed
        } else {
            Status::Completed
        };
        for target in ["a.example", "b.example"] {
            scene.finished(target, 5, status).await;
        }
        if status == Status::Completed {
            delivered += 5;
        }
        if round % 10 == 9 {
            scene.age(5.0).await;
            // Made now: a lead that was taken at the begin may be over on a busy machine.
            scene.purge().await.run_once().await.unwrap();
        }
        let now: i64 = total(&scene.queue, "a.example").await.iter().sum();
        assert!(now >= before, "{now} after {before}");
        before = now;
    }
    while let Some(ended) = counting.join_next().await {
        ended.unwrap();
    }
    tally(&scene).await.run_once().await.unwrap();
    assert!(scene.stored().await.1 < 300, "nothing was purged");
    for target in ["a.example", "b.example"] {
        assert_eq!(total(&scene.queue, target).await, [delivered, 50, 0]);
    }
}

#[tokio::test]
async fn old_hours_go_and_with_them_the_totals_of_targets_that_are_gone() {
    let scene = Scene::new().await;
    scene.finished("gone.example", 2, Status::Completed).await;
    scene.finished("here.example", 3, Status::Completed).await;
    let tally = tally(&scene).await;
    tally.run_once().await.unwrap();
    for statement in [
        "UPDATE hook.target_hour SET hour = hour - interval '91 days'",
        "UPDATE hook.target_total SET ended_at = ended_at - interval '91 days'",
    ] {
        sqlx::query(statement).execute(&scene.pool).await.unwrap();
    }
    scene.finished("here.example", 1, Status::Completed).await;
    let report = tally.run_once().await.unwrap();
    assert_eq!((report.counted, report.purged), (1, 2));
    assert_eq!(total(&scene.queue, "gone.example").await, [0, 0, 0]);
    assert_eq!(total(&scene.queue, "here.example").await, [4, 0, 0]);
    let totals = scene.queue.attempt_totals(&[]).await.unwrap();
    assert_eq!(outcomes(totals.all), [6, 0, 0]);
}

#[tokio::test]
async fn old_entries_of_the_audit_go() {
    let scene = Scene::new().await;
    sqlx::query(
        "INSERT INTO hook.audit (shard, audit_id, at, action, subject, detail, remote)
        SELECT 0, gen_random_uuid(), now() - age * interval '1 day', 'pause_target', age::text, '{}', ''
        FROM unnest('{0, 89, 91}'::int[]) AS age",
    )
    .execute(&scene.pool)
    .await
    .unwrap();
    let report = tally(&scene).await.run_once().await.unwrap();
    assert_eq!(report.entries, 1);
    let left = scene.queue.audit(None, 10).await.unwrap();
    let mut ages: Vec<&str> = left.iter().map(|entry| entry.subject.as_str()).collect();
    ages.sort_unstable();
    assert_eq!(ages, ["0", "89"]);
}

#[tokio::test]
async fn a_janitor_that_does_not_lead_counts_nothing() {
    let scene = Scene::new().await;
    scene.finished("a.example", 1, Status::Completed).await;
    leading(&scene).await;
    let other = Leadership::new(scene.queue.clone(), "other".to_owned());
    let idle = Tally::new(scene.queue.clone(), Arc::new(other), KEPT);
    assert_eq!(idle.run_once().await.unwrap().counted, 0);
    assert_eq!(tally(&scene).await.run_once().await.unwrap().counted, 1);
}

/// A finish of as many attempts as fit into one statement leaves one row, however many targets.
#[tokio::test]
async fn a_large_batch_leaves_one_tally() {
    let scene = Scene::new().await;
    sqlx::query(
        "SELECT hook.enqueue('http://t' || n || '.example/') FROM generate_series(1, 500) AS n",
    )
    .execute(&scene.pool)
    .await
    .unwrap();
    let mut jobs = Vec::new();
    for n in 1..=500 {
        jobs.extend(scene.dequeue(&format!("t{n}.example"), 1).await);
    }
    assert_eq!(jobs.len(), 500);
    support::finish(&scene.queue, jobs, Next::End(Status::Completed))
        .await
        .unwrap();
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM hook.tally")
        .fetch_one(&scene.pool)
        .await
        .unwrap();
    assert_eq!(rows, 1);
    tally(&scene).await.run_once().await.unwrap();
    assert_eq!(total(&scene.queue, "t500.example").await, [1, 0, 0]);
}

/// OBS-04: as many series as are allowed, however many targets there are, and nothing is lost.
#[tokio::test]
async fn obs_04_ten_thousand_targets_have_a_bounded_number_of_series() {
    let scene = Scene::new().await;
    sqlx::query(
        "WITH t AS (INSERT INTO hook.target (shard, target_id, name)
            SELECT 0, hook.target_id('h' || n || '.example'), 'h' || n || '.example'
            FROM generate_series(1, 10000) AS n RETURNING target_id)
        INSERT INTO hook.tally (shard, ended_at, target_id, outcome, duration_ms)
        SELECT 0, now(), array_agg(target_id), array_agg((target_id & 1)::smallint), array_agg(20) FROM t",
    )
    .execute(&scene.pool)
    .await
    .unwrap();
    tally(&scene).await.run_once().await.unwrap();
    let refresh = Duration::from_secs(30);
    let stats = Stats::new(scene.queue.clone(), leading(&scene).await, 50, refresh);
    let report = stats.run_once().await.unwrap();
    let of_targets = report.series.iter();
    let of_targets: Vec<_> = of_targets
        .filter(|series| series.metric.labels.first() == Some(&"target"))
        .collect();
    // Attempts, their time, three outcomes, waiting jobs, penalty; 50 targets and the rest.
    assert_eq!(of_targets.len(), 7 * 51);
    let attempts = of_targets.iter();
    let attempts = attempts.filter(|series| series.metric.name == "hook_target_attempts_total");
    let sum: f64 = attempts.map(|series| series.value).sum();
    assert_eq!(sum, 10_000.0);

    // Two hours later none of them is shown, and the rest has not fallen.
    sqlx::query("UPDATE hook.target_hour SET hour = hour - interval '2 hours'")
        .execute(&scene.pool)
        .await
        .unwrap();
    let later = stats.run_once().await.unwrap();
    let mut later = later.series.iter();
    assert!(later.all(|series| {
        series
            .labels
            .first()
            .is_none_or(|label| !label.ends_with(".example"))
    }));
}
