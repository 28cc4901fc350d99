//! Many at once: no job is ever leased twice, and none is missed.

use std::{collections::HashSet, sync::Arc, time::Duration};

use hook_common::{
    db::Db,
    job::{Idempotency, JobId, Status, Tier},
    queue::{Enqueued, Next, Queue},
};
use hook_testkit::db::TestDb;
use tokio::task::JoinSet;

use super::kit::{Kit, enqueue, finish, head, new_job, reap, term};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn workers_that_dequeue_at_once_never_share_a_job() {
    let db = Arc::new(TestDb::new().await);
    let queue = Queue::new(Db::around(db.pool().await));
    let names: Vec<String> = (0..10).map(|n| format!("t{n}.test")).collect();
    let jobs: Vec<_> = (0..1000)
        .map(|n| enqueue(new_job(&names[n % 10])))
        .collect();
    queue.enqueue(&jobs, Duration::ZERO).await.unwrap();

    let mut workers = JoinSet::new();
    for _ in 0..8 {
        let (queue, names) = (Queue::new(Db::around(db.pool().await)), names.clone());
        workers.spawn(async move {
            let heads: Vec<_> = names
                .iter()
                .map(|name| head(name, Tier::Primary, 7))
                .collect();
            let mut mine = Vec::new();
            for _ in 0..40 {
                let leased = queue
                    .dequeue(&heads, 20, &term(Duration::from_secs(60)))
                    .await
                    .unwrap();
                let mut finishes = Vec::new();
                for job in leased.jobs {
                    mine.push(job.lease.job_id);
                    finishes.push(finish(job, Next::End(Status::Completed)));
                }
                queue.finish(&mut finishes).await.unwrap();
            }
            mine
        });
    }
    let all: Vec<JobId> = workers.join_all().await.into_iter().flatten().collect();
    let unique: HashSet<JobId> = all.iter().copied().collect();
    assert_eq!((all.len(), unique.len()), (1000, 1000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_requests_with_one_key_store_one_job() {
    let db = Arc::new(TestDb::new().await);
    let mut requests = JoinSet::new();
    for _ in 0..10 {
        let queue = Queue::new(Db::around(db.pool().await));
        requests.spawn(async move {
            let mut stored = 0;
            for _ in 0..5 {
                let mut job = new_job("a.test");
                job.idempotency = Some(Idempotency {
                    key: "one".into(),
                    request_sha256: [7; 32],
                });
                let enqueued = queue
                    .enqueue(&[enqueue(job)], Duration::from_secs(60))
                    .await
                    .unwrap();
                stored += usize::from(matches!(enqueued[0], Enqueued::Stored(_)));
            }
            stored
        });
    }
    assert_eq!(requests.join_all().await.into_iter().sum::<usize>(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_finish_and_a_reap_at_once_exactly_one_wins() {
    let kit = Kit::new().await;
    for _ in 0..30 {
        let id = kit.enqueue(&["a.test"]).await[0];
        let job = kit.dequeue(&["a.test"], 1).await.pop().unwrap();
        kit.expire_leases().await;
        let mut finishes = [finish(job, Next::End(Status::Completed))];
        let all = reap(10);
        let (finished, reaped) = tokio::join!(
            kit.queue.finish(&mut finishes),
            kit.queue.reap_leases(10, &all)
        );
        let recorded = finished.unwrap()[0] == hook_common::queue::Finished::Recorded;
        assert_eq!(recorded, reaped.unwrap().returned == 0);
        let status = kit.queue.job(id, false).await.unwrap().unwrap().status;
        let expected = if recorded {
            Status::Completed
        } else {
            Status::Available
        };
        assert_eq!(status, expected.code());
        sqlx::query("DELETE FROM hook.ready")
            .execute(&kit.pool)
            .await
            .unwrap();
    }
}
