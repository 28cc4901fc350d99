//! Other sessions in the way: open transactions, locks, a second janitor, traffic.

use std::{collections::HashMap, time::Duration};

use hook_common::{
    job::{JobId, Status},
    queue::{Finished, Next, Queue, Retention},
};
use hook_testkit::wait::wait_for;
use sqlx::Connection as _;
use tokio::{task::JoinSet, time::Instant};

use crate::support::{Scene, dequeue, finish};

const LIMIT: Duration = Duration::from_secs(20);

/// A scene whose first bucket is due to be emptied.
async fn with_old_bucket() -> Scene {
    let scene = Scene::new().await;
    let purge = scene.purge().await;
    scene.finished("a.example", 3, Status::Completed).await;
    scene.age(0.5).await;
    purge.run_once().await.unwrap();
    scene.age(1.1).await;
    scene
}

#[tokio::test]
async fn a_job_of_a_transaction_that_is_still_open_is_not_purged() {
    let scene = Scene::new().await;
    let purge = scene.purge().await;
    scene.finished("a.example", 3, Status::Completed).await;
    let mut connection = scene.db.connect().await;
    let mut outbox = connection.begin().await.unwrap();
    let id: String = sqlx::query_scalar("SELECT hook.enqueue('http://late.example/')")
        .fetch_one(&mut *outbox)
        .await
        .unwrap();
    let id = JobId::parse(&id).unwrap();
    scene.age(0.5).await;
    purge.run_once().await.unwrap();
    scene.age(1.1).await;
    for _ in 0..3 {
        let begun = Instant::now();
        assert_eq!(purge.run_once().await.unwrap().emptied, 0);
        assert!(begun.elapsed() < Duration::from_secs(2), "it must not wait");
    }
    outbox.commit().await.unwrap();
    wait_for(
        LIMIT,
        async || purge.run_once().await.unwrap().emptied,
        |n| *n == 1,
    )
    .await;
    assert_eq!(scene.status(id).await, Some(Status::Available));
    scene.check().await;
}

#[tokio::test]
async fn a_job_of_a_repeatable_read_transaction_that_stores_after_the_purge_is_not_lost() {
    let scene = Scene::new().await;
    let purge = scene.purge().await;
    scene.finished("a.example", 3, Status::Completed).await;
    let mut connection = scene.db.connect().await;
    let mut outbox = connection
        .begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ")
        .await
        .unwrap();
    sqlx::query("SELECT count(*) FROM hook.bucket")
        .execute(&mut *outbox)
        .await
        .unwrap();
    scene.age(0.5).await;
    purge.run_once().await.unwrap();
    scene.age(1.1).await;
    assert_eq!(purge.run_once().await.unwrap().emptied, 1);
    let id: String = sqlx::query_scalar("SELECT hook.enqueue('http://late.example/')")
        .fetch_one(&mut *outbox)
        .await
        .unwrap();
    let id = JobId::parse(&id).unwrap();
    outbox.commit().await.unwrap();
    assert_eq!(scene.bucket_of(id).await, Some(0));
    for _ in 0..20 {
        scene.finished("a.example", 1, Status::Completed).await;
        scene.age(0.3).await;
        purge.run_once().await.unwrap();
    }
    assert_eq!(scene.status(id).await, Some(Status::Available));
    scene.check().await;
}

#[tokio::test]
async fn a_long_reader_stops_neither_the_janitor_nor_traffic_and_the_purge_goes_on_after_it() {
    let scene = with_old_bucket().await;
    let purge = scene.purge().await;
    let mut connection = scene.db.connect().await;
    let mut reader = connection.begin().await.unwrap();
    sqlx::query("SELECT count(*) FROM hook.job")
        .execute(&mut *reader)
        .await
        .unwrap();
    for _ in 0..5 {
        let begun = Instant::now();
        let report = purge.run_once().await.unwrap();
        assert_eq!(report.emptied, 0);
        assert!(begun.elapsed() < Duration::from_secs(2), "it must not wait");
        let begun = Instant::now();
        scene.finished("b.example", 1, Status::Completed).await;
        assert!(
            begun.elapsed() < Duration::from_secs(1),
            "traffic must go on"
        );
    }
    reader.commit().await.unwrap();
    let report = purge.run_once().await.unwrap();
    assert_eq!((report.emptied, report.purged), (1, 3));
}

#[tokio::test]
async fn a_session_that_could_see_an_old_snapshot_may_not_empty_a_bucket() {
    let scene = with_old_bucket().await;
    let mut connection = scene.db.connect().await;
    let mut transaction = connection
        .begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ")
        .await
        .unwrap();
    let refused = sqlx::query(
        "SELECT hook.truncate_bucket(0::smallint, 0::smallint, (SELECT opened_at FROM hook.bucket
            WHERE bucket = 0), true)",
    )
    .execute(&mut *transaction)
    .await;
    assert!(refused.unwrap_err().to_string().contains("READ COMMITTED"));
}

/// Delivers jobs of one target until told to stop, and counts how often each was recorded.
async fn work(queue: Queue, target: &'static str, until: Instant) -> HashMap<JobId, u32> {
    let mut recorded = HashMap::new();
    let mut turn = 0_u32;
    while Instant::now() < until {
        turn += 1;
        let jobs = dequeue(&queue, target, 20).await.unwrap();
        let ids: Vec<JobId> = jobs.iter().map(|job| job.lease.job_id).collect();
        assert!(
            jobs.iter().all(|job| !job.url.is_empty()),
            "a job lost its row"
        );
        let ends = !turn.is_multiple_of(3);
        let next = if ends {
            Next::End(Status::Completed)
        } else {
            Next::Retry(Duration::from_millis(50))
        };
        let finished = finish(&queue, jobs, next).await.unwrap();
        for (id, finished) in ids.into_iter().zip(finished) {
            if ends && finished == Finished::Recorded {
                *recorded.entry(id).or_default() += 1;
            }
        }
    }
    recorded
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_leaders_at_once_under_traffic_lose_no_job_and_finish_none_twice() {
    let scene = Scene::new().await;
    // Buckets turn every 200 ms and are emptied 300 ms later.
    let retention = Retention {
        completed: Duration::from_millis(300),
        failed: Duration::from_millis(600),
    };
    let one = scene.purge_with("one", retention).await;
    // As if the first had been frozen for longer than its lease, and woke up.
    scene.queue.resign("one").await.unwrap();
    let two = scene.purge_with("two", retention).await;

    let until = Instant::now() + Duration::from_secs(3);
    let mut workers = JoinSet::new();
    for target in ["a.example", "b.example"] {
        for _ in 0..2 {
            workers.spawn(work(
                scene.queue.clone(),
                target,
                until + Duration::from_secs(1),
            ));
        }
    }
    let janitors = async |purge: &hook_janitor::purge::Purge| {
        let mut emptied = 0;
        while Instant::now() < until {
            // Rows that both want at one moment may fail one of the two statements.
            if let Ok(report) = purge.run_once().await {
                emptied += report.emptied;
            }
            hook_testkit::wait::pause(Duration::from_millis(20)).await;
        }
        emptied
    };
    let producer = async {
        let mut ids = Vec::new();
        while Instant::now() < until {
            ids.extend(scene.enqueue("a.example", 10).await);
            ids.extend(scene.enqueue("b.example", 3).await);
            hook_testkit::wait::pause(Duration::from_millis(10)).await;
        }
        ids
    };
    let (by_one, by_two, ids) = tokio::join!(janitors(&one), janitors(&two), producer);
    let mut recorded: HashMap<JobId, u32> = HashMap::new();
    for counts in workers.join_all().await {
        for (id, count) in counts {
            *recorded.entry(id).or_default() += count;
        }
    }
    assert!(
        by_one + by_two >= 3,
        "buckets emptied: {by_one} and {by_two}"
    );
    let twice: Vec<_> = recorded.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    scene.check().await;
    let mut lost = Vec::new();
    for id in ids {
        if !recorded.contains_key(&id) && scene.status(id).await.is_none() {
            lost.push(id);
        }
    }
    assert!(lost.is_empty(), "{lost:?}");
}
