//! The ring: buckets turn, are emptied when all in them is old, and never take a live job along.

use std::time::Duration;

use hook_common::{
    job::Status,
    queue::{ClosedBucket, Finished, Next, Patience, Truncated},
};
use hook_janitor::purge::Report;
use tokio::time::Instant;

use crate::support::{RETENTION, Scene};

#[tokio::test]
async fn a_bucket_stays_open_while_it_is_young_or_empty() {
    let scene = Scene::new().await;
    let purge = scene.purge().await;
    scene.age(48.0).await;
    assert_eq!(purge.run_once().await.unwrap(), Report::default());

    scene.enqueue("a.example", 1).await;
    sqlx::query("UPDATE hook.bucket SET opened_at = now() - interval '9 minutes' WHERE bucket = 0")
        .execute(&scene.pool)
        .await
        .unwrap();
    assert_eq!(purge.run_once().await.unwrap(), Report::default());
    assert_eq!(scene.open_bucket().await, 0);

    // A sixth of the hour.
    scene.age(2.0 / 60.0).await;
    assert_eq!(purge.run_once().await.unwrap().opened, Some(1));
    assert_eq!(scene.open_bucket().await, 1);
    let later = scene.enqueue("a.example", 1).await;
    assert_eq!(scene.bucket_of(later[0]).await, Some(1));
}

#[tokio::test]
async fn completed_jobs_go_with_their_bucket_after_the_retention_and_not_before() {
    let scene = Scene::new().await;
    let purge = scene.purge().await;
    scene.finished("a.example", 300, Status::Completed).await;
    scene.age(0.5).await;
    assert_eq!(purge.run_once().await.unwrap().opened, Some(1));
    scene.age(0.9).await;
    assert_eq!(purge.run_once().await.unwrap(), Report::default());
    assert_eq!(scene.stored().await, (300, 300, 0));

    scene.age(0.2).await;
    let report = purge.run_once().await.unwrap();
    assert_eq!((report.emptied, report.purged, report.kept), (1, 300, 0));
    assert_eq!(scene.stored().await, (0, 0, 0));
    assert_eq!(scene.buckets_in_use().await, [1]);
}

#[tokio::test]
async fn the_ring_comes_round() {
    let scene = Scene::new().await;
    let purge = scene.purge().await;
    for turn in 0..20_i16 {
        assert_eq!(scene.open_bucket().await, turn % 8);
        scene.finished("a.example", 3, Status::Completed).await;
        scene.age(0.2).await;
        purge.run_once().await.unwrap();
        assert!(scene.buckets_in_use().await.len() <= 7);
        scene.check().await;
    }
}

#[tokio::test]
async fn a_waiting_job_outlives_its_bucket_with_its_attempts_and_body() {
    let scene = Scene::new().await;
    let purge = scene.purge().await;
    let id = scene.enqueue("a.example", 1).await[0];
    let jobs = scene.dequeue("a.example", 1).await;
    scene.finish(jobs, Next::Retry(Duration::ZERO)).await;
    scene.age(0.5).await;
    purge.run_once().await.unwrap();
    scene.age(1.1).await;

    let report = purge.run_once().await.unwrap();
    assert_eq!((report.emptied, report.kept), (1, 1));
    assert_eq!(scene.bucket_of(id).await, Some(-1));
    scene.check().await;
    assert_eq!(scene.queue.attempts(id).await.unwrap().len(), 1);

    let jobs = scene.dequeue("a.example", 1).await;
    assert_eq!(jobs[0].body.as_ref(), b"body 1");
    let finished = scene.finish(jobs, Next::End(Status::Completed)).await;
    assert_eq!(finished, [Finished::Recorded]);
    assert_eq!(scene.queue.attempts(id).await.unwrap().len(), 2);

    scene.age(0.9).await;
    assert_eq!(purge.run_once().await.unwrap(), Report::default());
    scene.age(0.2).await;
    assert_eq!(purge.run_once().await.unwrap().purged, 1);
    assert_eq!(scene.stored().await, (0, 0, 0));
}

#[tokio::test]
async fn more_waiting_jobs_than_fit_in_one_batch_are_all_moved() {
    let scene = Scene::new().await;
    let purge = scene.purge().await;
    scene.finished("a.example", 5, Status::Completed).await;
    scene.enqueue("b.example", 1_000).await;
    scene.age(0.5).await;
    purge.run_once().await.unwrap();
    scene.age(1.1).await;
    let report = purge.run_once().await.unwrap();
    assert_eq!((report.emptied, report.kept, report.purged), (1, 1_000, 5));
    scene.check().await;
    assert_eq!(scene.dequeue("b.example", 2_000).await.len(), 1_000);
}

#[tokio::test]
async fn a_running_job_keeps_its_bucket_and_its_record_gets_its_own_retention() {
    let scene = Scene::new().await;
    let purge = scene.purge().await;
    scene.finished("a.example", 2, Status::Completed).await;
    let id = scene.enqueue("b.example", 1).await[0];
    let running = scene.dequeue("b.example", 1).await;
    scene.age(0.5).await;
    purge.run_once().await.unwrap();
    scene.age(1.1).await;
    for _ in 0..3 {
        let report = purge.run_once().await.unwrap();
        assert_eq!((report.emptied, report.kept), (0, 0));
        assert_eq!(scene.status(id).await, Some(Status::Running));
    }
    let finished = scene.finish(running, Next::End(Status::Completed)).await;
    assert_eq!(finished, [Finished::Recorded]);

    let report = hook_testkit::wait::wait_for(
        Duration::from_secs(10),
        async || purge.run_once().await.unwrap(),
        |report| report.emptied == 1,
    )
    .await;
    assert_eq!(report.purged, 2);
    assert_eq!(scene.status(id).await, Some(Status::Completed));
    assert_eq!(scene.stored().await, (1, 1, 0));
    scene.check().await;
}

#[tokio::test]
async fn failed_and_cancelled_jobs_stay_for_their_own_retention() {
    let scene = Scene::new().await;
    let purge = scene.purge().await;
    let failed = scene.finished("a.example", 3, Status::Failed).await;
    let cancelled = scene.enqueue("b.example", 1).await;
    assert!(scene.queue.cancel(cancelled[0]).await.unwrap());
    scene.finished("c.example", 4, Status::Completed).await;
    scene.age(0.5).await;
    purge.run_once().await.unwrap();
    scene.age(1.1).await;
    let report = purge.run_once().await.unwrap();
    assert_eq!((report.emptied, report.kept, report.purged), (1, 4, 4));
    assert_eq!(scene.status(failed[0]).await, Some(Status::Failed));
    assert_eq!(scene.status(cancelled[0]).await, Some(Status::Cancelled));
    scene.check().await;

    scene.age(2.0).await;
    assert_eq!(purge.run_once().await.unwrap().purged, 0);
    scene.age(1.0).await;
    assert_eq!(purge.run_once().await.unwrap().purged, 4);
    assert_eq!(scene.stored().await, (0, 0, 0));
}

#[tokio::test]
async fn a_retried_job_outlives_the_bucket_that_it_came_from() {
    let scene = Scene::new().await;
    let purge = scene.purge().await;
    let id = scene.finished("a.example", 1, Status::Completed).await[0];
    scene.age(0.5).await;
    purge.run_once().await.unwrap();
    scene.age(1.1).await;
    assert!(scene.queue.retry(id).await.unwrap());
    assert_eq!(purge.run_once().await.unwrap().emptied, 1);
    assert_eq!(scene.status(id).await, Some(Status::Available));
    scene.check().await;
}

#[tokio::test]
async fn the_ring_stops_turning_when_it_is_full_and_goes_on_when_it_is_not() {
    let scene = Scene::new().await;
    let purge = scene.purge().await;
    scene.enqueue("busy.example", 1).await;
    let running = scene.dequeue("busy.example", 1).await;
    for _ in 0..12 {
        scene.finished("a.example", 1, Status::Completed).await;
        scene.age(0.2).await;
        purge.run_once().await.unwrap();
    }
    assert_eq!(scene.open_bucket().await, 7);
    assert_eq!(scene.buckets_in_use().await.len(), 8);
    scene.check().await;

    scene.finish(running, Next::End(Status::Completed)).await;
    hook_testkit::wait::wait_for(
        Duration::from_secs(10),
        async || {
            purge.run_once().await.unwrap();
            scene.open_bucket().await
        },
        |open| *open == 0,
    )
    .await;
}

#[tokio::test]
async fn a_job_that_was_stored_too_late_for_its_bucket_is_not_lost() {
    let scene = Scene::new().await;
    let purge = scene.purge().await;
    let id = scene.enqueue("a.example", 1).await[0];
    // As an enqueue does that read the number of the open bucket long ago.
    for statement in [
        "UPDATE hook.job SET bucket = 2",
        "UPDATE hook.ready SET bucket = 2",
    ] {
        sqlx::query(statement).execute(&scene.pool).await.unwrap();
    }
    for _ in 0..20 {
        scene.finished("b.example", 1, Status::Completed).await;
        scene.age(0.3).await;
        purge.run_once().await.unwrap();
        scene.check().await;
    }
    assert_eq!(scene.status(id).await, Some(Status::Available));
    assert_eq!(scene.bucket_of(id).await, Some(-1));
}

#[tokio::test]
async fn an_emptied_bucket_is_not_emptied_again_by_somebody_who_was_late() {
    let scene = Scene::new().await;
    let purge = scene.purge().await;
    scene.finished("a.example", 1, Status::Completed).await;
    scene.age(0.5).await;
    purge.run_once().await.unwrap();
    scene.age(1.1).await;
    let closed = scene.queue.bucket_to_empty(RETENTION).await.unwrap();
    let closed = closed.unwrap();
    purge.run_once().await.unwrap();
    let again = scene.queue.truncate_bucket(closed, Patience::Queue).await;
    assert_eq!(again.unwrap(), Truncated::Gone);

    let open: (i16, _) =
        sqlx::query_as("SELECT bucket, opened_at FROM hook.bucket WHERE opened_at IS NOT NULL")
            .fetch_one(&scene.pool)
            .await
            .unwrap();
    let open = ClosedBucket {
        bucket: open.0,
        opened_at: open.1,
    };
    let not_closed = scene.queue.truncate_bucket(open, Patience::Queue).await;
    assert_eq!(not_closed.unwrap(), Truncated::Gone);
}

#[tokio::test]
async fn old_idempotency_keys_go_and_others_stay() {
    let scene = Scene::new().await;
    let purge = scene.purge().await;
    let enqueue = "SELECT hook.enqueue('http://a.example/', idempotency_key => $1)";
    for key in ["old", "new"] {
        let id: String = sqlx::query_scalar(enqueue)
            .bind(key)
            .fetch_one(&scene.pool)
            .await
            .unwrap();
        assert_ne!(id, "");
        if key == "old" {
            scene.age(30.0).await;
        }
    }
    assert_eq!(purge.run_once().await.unwrap().keys, 1);
    let left: Vec<String> = sqlx::query_scalar("SELECT key FROM hook.idempotency")
        .fetch_all(&scene.pool)
        .await
        .unwrap();
    assert_eq!(left, ["new"]);
}

#[tokio::test]
async fn one_of_two_janitors_leads_and_the_other_takes_over() {
    let scene = Scene::new().await;
    let leads = scene.purge_with("one", RETENTION).await;
    let follows = scene.purge_with("two", RETENTION).await;
    assert!(!leads.run_once().await.unwrap().skipped);
    assert!(follows.run_once().await.unwrap().skipped);

    scene.queue.resign("two").await.unwrap();
    let begun = Instant::now();
    let taken_over = || scene.queue.lead("two", Duration::from_secs(5));
    assert!(!taken_over().await.unwrap());
    scene.queue.resign("one").await.unwrap();
    assert!(taken_over().await.unwrap());
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(!scene.queue.lead("one", Duration::ZERO).await.unwrap());
}
