//! What the leading janitor shows of queues and targets, and that nobody else shows it.

use std::{sync::Arc, time::Duration};

use hook_common::{
    job::Status,
    queue::{Next, Sample},
};
use hook_janitor::{
    leader::{self, Leadership},
    stats::{Report, Stats},
    targets::Targets,
};

use crate::support::Scene;

/// No finding of these tests is as old.
const STALE: Duration = Duration::from_secs(3600);

fn value(report: &Report, name: &str, labels: &[&str]) -> f64 {
    let found = report
        .series
        .iter()
        .find(|series| series.metric.name == name && series.labels == labels);
    found.map_or(f64::NAN, |series| series.value)
}

async fn leading(scene: &Scene) -> Arc<Leadership> {
    let leadership = Leadership::new(scene.queue.clone(), "leader".to_owned());
    assert_eq!(leadership.run_once().await.unwrap(), leader::Report::Leads);
    Arc::new(leadership)
}

async fn stats(scene: &Scene, targets_max: usize) -> Stats {
    let refresh = Duration::from_secs(30);
    Stats::new(
        scene.queue.clone(),
        leading(scene).await,
        targets_max,
        refresh,
    )
}

#[tokio::test]
async fn every_queue_and_status_is_counted_and_shown_even_when_it_is_zero() {
    let scene = Scene::new().await;
    scene.finished("a.example", 4, Status::Completed).await;
    scene.finished("a.example", 3, Status::Failed).await;
    scene.enqueue("b.example", 5).await;
    let retried = scene.dequeue("b.example", 2).await;
    scene
        .finish(retried, Next::Retry(Duration::from_secs(60)))
        .await;
    let running = scene.dequeue("b.example", 1).await;
    let report = stats(&scene, 10).await.run_once().await.unwrap();

    let jobs = |queue, status| value(&report, "hook_queue_jobs", &[queue, status]);
    assert_eq!(jobs("primary", "available"), 2.0);
    assert_eq!(jobs("primary", "running"), 1.0);
    assert_eq!(jobs("primary", "completed"), 4.0);
    assert_eq!(jobs("primary", "failed"), 3.0);
    assert_eq!(jobs("primary", "cancelled"), 0.0);
    assert_eq!(jobs("degraded", "available"), 2.0);
    assert_eq!(jobs("degraded", "completed"), 0.0);
    drop(running);
}

#[tokio::test]
async fn jobs_of_closed_buckets_and_of_the_kept_bucket_are_counted() {
    let scene = Scene::new().await;
    let purge = scene.purge().await;
    scene.finished("a.example", 2, Status::Failed).await;
    scene.age(0.5).await;
    purge.run_once().await.unwrap();
    scene.age(1.1).await;
    assert_eq!(purge.run_once().await.unwrap().kept, 2);
    scene.finished("a.example", 3, Status::Failed).await;
    scene.age(0.5).await;
    purge.run_once().await.unwrap();
    scene.finished("a.example", 4, Status::Failed).await;

    let report = stats(&scene, 10).await.run_once().await.unwrap();
    let failed = value(&report, "hook_queue_jobs", &["primary", "failed"]);
    assert_eq!(failed, 9.0);
    assert_eq!(value(&report, "hook_janitor_buckets_in_use", &[]), 2.0);
    let oldest = value(&report, "hook_janitor_oldest_finished_age_seconds", &[]);
    assert!((7_500.0..7_700.0).contains(&oldest), "{oldest}");
}

#[tokio::test]
async fn the_oldest_job_that_is_due_is_found_and_those_due_later_do_not_count() {
    let scene = Scene::new().await;
    for (target, due) in [
        ("a.example", "-90 s"),
        ("b.example", "-10 s"),
        ("c.example", "1 h"),
    ] {
        let id = scene.enqueue(target, 1).await[0];
        sqlx::query("UPDATE hook.ready SET run_at = now() + $1::text::interval WHERE job_id = $2")
            .bind(due)
            .bind(id.0)
            .execute(&scene.pool)
            .await
            .unwrap();
    }
    let report = stats(&scene, 10).await.run_once().await.unwrap();
    let age = |queue| value(&report, "hook_queue_oldest_due_age_seconds", &[queue]);
    assert!(
        (89.0..120.0).contains(&age("primary")),
        "{}",
        age("primary")
    );
    assert_eq!(age("degraded"), 0.0);

    let by_heads = scene.queue.oldest_due(100).await.unwrap();
    assert_eq!(by_heads.len(), 1);
    assert!((89_000..120_000).contains(&by_heads[0].1), "{by_heads:?}");
}

#[tokio::test]
async fn the_worst_targets_have_series_of_their_own_and_the_rest_is_summed_up() {
    let scene = Scene::new().await;
    for (target, jobs) in [
        ("big.example", 7),
        ("sick.example", 2),
        ("small.example", 1),
        ("tiny.example", 1),
    ] {
        scene.enqueue(target, jobs).await;
    }
    Targets::new(scene.queue.clone(), leading(&scene).await, STALE)
        .run_once()
        .await
        .unwrap();
    sqlx::query("UPDATE hook.target SET penalty = 3 WHERE name = 'sick.example'")
        .execute(&scene.pool)
        .await
        .unwrap();
    let report = stats(&scene, 2).await.run_once().await.unwrap();
    let waiting = |target| value(&report, "hook_target_waiting_jobs", &[target]);
    let penalty = |target| value(&report, "hook_target_penalty", &[target]);
    assert_eq!(
        (waiting("sick.example"), penalty("sick.example")),
        (2.0, 3.0)
    );
    assert_eq!((waiting("big.example"), penalty("big.example")), (7.0, 0.0));
    assert_eq!((waiting("other"), penalty("other")), (2.0, 0.0));
    assert!(waiting("small.example").is_nan());

    let none = stats(&scene, 0).await.run_once().await.unwrap();
    assert_eq!(value(&none, "hook_target_waiting_jobs", &["other"]), 11.0);
    assert_eq!(value(&none, "hook_target_penalty", &["other"]), 3.0);
}

#[tokio::test]
async fn targets_of_jobs_that_were_stored_by_sql_get_their_rows_in_batches() {
    let scene = Scene::new().await;
    sqlx::query(
        "SELECT hook.enqueue('http://t' || n || '.example/') FROM generate_series(1, 1300) AS n",
    )
    .execute(&scene.pool)
    .await
    .unwrap();
    let targets = Targets::new(scene.queue.clone(), leading(&scene).await, STALE);
    assert_eq!(targets.run_once().await.unwrap().added, 1_300);
    assert_eq!(targets.run_once().await.unwrap().added, 0);
    let wrong: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM hook.ready AS r LEFT JOIN hook.target AS t
            ON t.target_id = r.target_id AND t.target_id = hook.target_id(t.name)
        WHERE t.name IS NULL",
    )
    .fetch_one(&scene.pool)
    .await
    .unwrap();
    assert_eq!(wrong, 0);
}

#[tokio::test]
async fn a_large_table_is_sampled_and_the_count_comes_near() {
    let scene = Scene::new().await;
    sqlx::query(
        "INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, bucket)
        SELECT 0, 0, n % 10, now(), gen_random_uuid(), 0 FROM generate_series(1, 60000) AS n",
    )
    .execute(&scene.pool)
    .await
    .unwrap();
    let pages = scene.queue.ready_pages().await.unwrap();
    let exact = Sample::of(pages, pages);
    assert!(exact.is_exact());
    assert_eq!(
        scene.queue.count_waiting(exact).await.unwrap()[0].jobs,
        60_000
    );
    let half = Sample::of(pages, pages / 2);
    assert!(!half.is_exact());
    let near = scene.queue.count_waiting(half).await.unwrap()[0].jobs;
    assert!((40_000..80_000).contains(&near), "{near}");
}

/// RW-06: a row of a queue that nobody serves. The table refuses it, so no job can get lost there.
#[tokio::test]
async fn rw_06_a_job_of_an_unknown_queue_cannot_be_stored() {
    let scene = Scene::new().await;
    scene.enqueue("a.example", 1).await;
    let refused = sqlx::query("UPDATE hook.ready SET tier = 7")
        .execute(&scene.pool)
        .await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("check constraint"), "{refused}");
}
