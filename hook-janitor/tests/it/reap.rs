//! Leases that are over and jobs that are too old come to an end without their worker.

use hook_common::{
    job::{ErrorKind, Status},
    queue::{Finished, Next},
};
use hook_janitor::reap::{Reap, Report};

use crate::support::Scene;

#[tokio::test]
async fn a_job_whose_lease_is_over_waits_again_and_its_attempt_is_on_record() {
    let scene = Scene::new().await;
    let reap = Reap::new(scene.queue.clone(), 3);
    let id = scene.enqueue("a.example", 1).await[0];
    let lost = scene.dequeue("a.example", 1).await;
    assert_eq!(reap.run_once().await.unwrap(), Report::default());

    scene.age(1.0).await;
    let report = reap.run_once().await.unwrap();
    assert_eq!((report.returned, report.failed), (1, 0));
    assert_eq!(scene.status(id).await, Some(Status::Available));
    let attempts = scene.queue.attempts(id).await.unwrap();
    assert_eq!(attempts[0].error_kind, Some(ErrorKind::LeaseExpired.code()));
    // The worker comes back too late.
    let finished = scene.finish(lost, Next::End(Status::Completed)).await;
    assert_eq!(finished, [Finished::LeaseLost]);
    assert_eq!(scene.status(id).await, Some(Status::Available));
    scene.check().await;
}

#[tokio::test]
async fn a_job_that_keeps_losing_its_worker_ends_failed() {
    let scene = Scene::new().await;
    let reap = Reap::new(scene.queue.clone(), 3);
    let id = scene.enqueue("a.example", 1).await[0];
    for _ in 0..3 {
        let lost = scene.dequeue("a.example", 1).await;
        assert_eq!(lost.len(), 1);
        scene.age(1.0).await;
        reap.run_once().await.unwrap();
    }
    assert_eq!(scene.status(id).await, Some(Status::Failed));
    assert_eq!(scene.queue.attempts(id).await.unwrap().len(), 3);
    scene.check().await;
}

#[tokio::test]
async fn more_leases_than_fit_in_one_batch_are_all_reaped() {
    let scene = Scene::new().await;
    let reap = Reap::new(scene.queue.clone(), 3);
    scene.enqueue("a.example", 1_300).await;
    assert_eq!(scene.dequeue("a.example", 1_300).await.len(), 1_300);
    scene.age(1.0).await;
    assert_eq!(reap.run_once().await.unwrap().returned, 1_300);
    scene.check().await;
}

#[tokio::test]
async fn a_job_whose_time_to_live_is_over_ends_failed_without_an_attempt() {
    let scene = Scene::new().await;
    let reap = Reap::new(scene.queue.clone(), 3);
    let enqueue =
        "SELECT hook.enqueue('http://a.example/', expires_at => now() + interval '1 minute')";
    let id: String = sqlx::query_scalar(enqueue)
        .fetch_one(&scene.pool)
        .await
        .unwrap();
    let id = hook_common::job::JobId::parse(&id).unwrap();
    assert_eq!(reap.run_once().await.unwrap(), Report::default());
    scene.age(1.0).await;
    assert_eq!(reap.run_once().await.unwrap().expired, 1);
    let job = scene.queue.job(id, false).await.unwrap().unwrap();
    assert_eq!(job.status, Status::Failed.code());
    assert_eq!(job.error_kind, Some(ErrorKind::Expired.code()));
    assert_eq!(job.attempt, 0);
    scene.check().await;
}
