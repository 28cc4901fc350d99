//! Replays: the right jobs go back once, at the rate, whoever works on them.

use hook_common::{
    job::{JobId, QueueName, Status},
    queue::{JobFilter, NewReplay, Next, Replay as Row, ReplayStart, ReplayState},
    replays::Replays,
    target::Target,
};
use tokio::task::JoinSet;

use crate::support::Scene;

/// Failed jobs of this target, or of any.
fn failed(target: Option<&str>) -> JobFilter {
    JobFilter {
        status: Some(Status::Failed),
        target: target.map(|name| Target::new(name).unwrap()),
        queue: None,
        from: None,
        to: None,
    }
}

fn asked(filter: &JobFilter) -> NewReplay<'_> {
    NewReplay {
        filter,
        error_kind: None,
        limit: 1000,
        rate_per_second: 1000,
        requested_by: None,
        key: None,
    }
}

async fn start(scene: &Scene, replay: NewReplay<'_>) -> JobId {
    let started = scene.queue.start_replay(&replay).await.unwrap();
    let ReplayStart::Started(replay) = started else {
        panic!("not started: {started:?}");
    };
    JobId(replay.replay_id)
}

async fn row(scene: &Scene, id: JobId) -> Row {
    scene.queue.replay(id).await.unwrap().unwrap()
}

/// Works until the replay has ended, as if no time had to pass between two batches.
async fn work_off(scene: &Scene, id: JobId) -> Row {
    let replay = Replays::new(scene.queue.clone());
    for _ in 0..200 {
        replay.run_once().await.unwrap();
        let row = row(scene, id).await;
        if row.finished_at.is_some() {
            return row;
        }
        sqlx::query("UPDATE hook.replay SET next_at = now()")
            .execute(&scene.pool)
            .await
            .unwrap();
    }
    panic!("the replay does not end");
}

/// Job, tier, attempt and bucket of what waits, in the order it is due.
async fn waiting(scene: &Scene) -> Vec<(uuid::Uuid, i16, i32, i16)> {
    sqlx::query_as("SELECT job_id, tier, attempt, bucket FROM hook.ready ORDER BY run_at")
        .fetch_all(&scene.pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn failed_jobs_go_back_into_the_degraded_queue_oldest_first_and_spread_out() {
    let scene = Scene::new().await;
    let ids = scene.finished("a.example", 8, Status::Failed).await;
    scene.finished("a.example", 2, Status::Completed).await;
    scene.finished("b.example", 3, Status::Failed).await;
    let filter = failed(Some("a.example"));
    let id = start(
        &scene,
        NewReplay {
            limit: 5,
            rate_per_second: 100,
            ..asked(&filter)
        },
    )
    .await;
    assert_eq!(row(&scene, id).await.state, ReplayState::Counting);
    let ended = work_off(&scene, id).await;
    assert_eq!(
        (ended.state, ended.total, ended.done),
        (ReplayState::Completed, 5, 5)
    );
    let rows = waiting(&scene).await;
    let jobs: Vec<JobId> = rows.iter().map(|(id, ..)| JobId(*id)).collect();
    assert_eq!(jobs, ids[..5]);
    assert!(
        rows.iter()
            .all(|(_, tier, attempt, bucket)| (*tier, *attempt, *bucket) == (1, 0, -1))
    );
    let spread_ms: f64 = sqlx::query_scalar(
        "SELECT extract(epoch FROM max(run_at) - min(run_at))::float8 * 1000 FROM hook.ready",
    )
    .fetch_one(&scene.pool)
    .await
    .unwrap();
    assert!((spread_ms - 40.0).abs() < 1.0, "{spread_ms}");
    // The history stays, and nothing else was touched.
    let attempts = scene.queue.attempts(ids[0]).await.unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!(scene.stored().await, (13, 8, 5));
    scene.check().await;
    // What is left is left for the next one.
    let id = start(&scene, asked(&filter)).await;
    assert_eq!(work_off(&scene, id).await.done, 3);
}

#[tokio::test]
async fn completed_and_cancelled_jobs_can_be_replayed_too_and_those_whose_time_is_over_not() {
    let scene = Scene::new().await;
    scene.finished("a.example", 250, Status::Completed).await;
    scene.finished("b.example", 2, Status::Completed).await;
    let cancelled = scene.enqueue("a.example", 2).await;
    for id in &cancelled {
        assert!(scene.queue.cancel(*id).await.unwrap());
    }
    sqlx::query("UPDATE hook.job SET expires_at = now() WHERE job_id = $1")
        .bind(cancelled[0].0)
        .execute(&scene.pool)
        .await
        .unwrap();
    for (status, target, total) in [
        (Status::Completed, Some("b.example"), 2),
        (Status::Cancelled, None, 1),
        (Status::Failed, None, 0),
    ] {
        let filter = JobFilter {
            status: Some(status),
            ..failed(target)
        };
        let id = start(&scene, asked(&filter)).await;
        let ended = work_off(&scene, id).await;
        assert_eq!((ended.total, ended.done), (total, total), "{status:?}");
    }
    scene.check().await;
}

#[tokio::test]
async fn what_fails_again_or_comes_later_is_not_put_back_by_the_same_replay() {
    let scene = Scene::new().await;
    scene.finished("a.example", 4, Status::Failed).await;
    let filter = failed(None);
    let id = start(
        &scene,
        NewReplay {
            rate_per_second: 2,
            ..asked(&filter)
        },
    )
    .await;
    let replay = Replays::new(scene.queue.clone());
    for _ in 0..2 {
        scene.finished("a.example", 1, Status::Failed).await;
        replay.run_once().await.unwrap();
        sqlx::query("UPDATE hook.ready SET run_at = now() - interval '1 second'")
            .execute(&scene.pool)
            .await
            .unwrap();
        let jobs = scene.dequeue("a.example", 10).await;
        scene.finish(jobs, Next::End(Status::Failed)).await;
    }
    let ended = work_off(&scene, id).await;
    assert_eq!((ended.total, ended.done), (4, 4));
    assert_eq!(scene.stored().await.1, 6, "jobs that have failed");
}

#[tokio::test]
async fn a_replay_keeps_its_rate_and_stops_when_it_is_cancelled() {
    let scene = Scene::new().await;
    scene.finished("a.example", 100, Status::Failed).await;
    let filter = failed(None);
    let id = start(
        &scene,
        NewReplay {
            rate_per_second: 10,
            ..asked(&filter)
        },
    )
    .await;
    let replay = Replays::new(scene.queue.clone());
    replay.run_once().await.unwrap();
    let after = row(&scene, id).await;
    assert_eq!((after.state, after.total), (ReplayState::Running, 100));
    assert!((10..=20).contains(&after.done), "{}", after.done);
    assert_eq!(
        waiting(&scene).await.len(),
        usize::try_from(after.done).unwrap()
    );

    let cancelled = scene.queue.cancel_replay(id).await.unwrap().unwrap();
    assert_eq!(cancelled.state, ReplayState::Cancelled);
    assert!(cancelled.finished_at.is_some());
    assert!(scene.queue.cancel_replay(id).await.unwrap().is_none());
    sqlx::query("UPDATE hook.replay SET next_at = now()")
        .execute(&scene.pool)
        .await
        .unwrap();
    assert_eq!(replay.run_once().await.unwrap().steps, 0);
    assert_eq!(row(&scene, id).await.done, after.done);
}

#[tokio::test]
async fn few_jobs_among_many_are_found_step_by_step() {
    let scene = Scene::new().await;
    scene.finished("a.example", 700, Status::Failed).await;
    sqlx::query(
        "UPDATE hook.finished SET error_kind = 2
         WHERE job_id IN (SELECT job_id FROM hook.finished ORDER BY job_id DESC LIMIT 3)",
    )
    .execute(&scene.pool)
    .await
    .unwrap();
    let filter = failed(None);
    let id = start(
        &scene,
        NewReplay {
            error_kind: hook_common::job::ErrorKind::from_code(2),
            rate_per_second: 1,
            ..asked(&filter)
        },
    )
    .await;
    let ended = work_off(&scene, id).await;
    assert_eq!((ended.total, ended.done), (3, 3));
    let filter = JobFilter {
        queue: Some(QueueName::Degraded),
        ..failed(None)
    };
    let id = start(&scene, asked(&filter)).await;
    assert_eq!(work_off(&scene, id).await.total, 0);
}

/// Whoever is second with a step does nothing: all of them at once, a person who retries single jobs
/// meanwhile, and every job is back once.
#[tokio::test]
async fn several_janitors_and_a_person_put_each_job_back_once() {
    let scene = Scene::new().await;
    let ids = scene.finished("a.example", 600, Status::Failed).await;
    let filter = failed(None);
    let id = start(&scene, asked(&filter)).await;
    let mut janitors = JoinSet::new();
    for _ in 0..4 {
        let replay = Replays::new(scene.queue.clone());
        janitors.spawn(async move { replay.run_once().await.unwrap() });
    }
    let mut by_hand = 0;
    for id in ids.iter().rev().take(50) {
        by_hand += i64::from(scene.queue.retry(*id).await.unwrap());
    }
    janitors.join_all().await;
    let ended = work_off(&scene, id).await;
    assert_eq!(ended.done + by_hand, 600);
    assert_eq!(scene.stored().await, (600, 0, 600));
    scene.check().await;
}

#[tokio::test]
async fn replays_that_ended_long_ago_are_forgotten() {
    let scene = Scene::new().await;
    let filter = failed(None);
    let ended = start(&scene, asked(&filter)).await;
    work_off(&scene, ended).await;
    let running = start(&scene, asked(&filter)).await;
    sqlx::query("UPDATE hook.replay SET finished_at = finished_at - interval '2 hours'")
        .execute(&scene.pool)
        .await
        .unwrap();
    let hour = std::time::Duration::from_secs(3600);
    assert_eq!(scene.queue.purge_replays(hour * 3, 10).await.unwrap(), 0);
    assert_eq!(scene.queue.purge_replays(hour, 10).await.unwrap(), 1);
    assert!(scene.queue.replay(ended).await.unwrap().is_none());
    assert!(scene.queue.replay(running).await.unwrap().is_some());
}
