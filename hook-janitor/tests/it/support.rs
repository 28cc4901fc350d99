//! A database with jobs in every state, and a janitor on it.

use std::{sync::Arc, time::Duration};

use hook_common::{
    db::Db,
    job::{ErrorKind, JobId, Outcome, Status, Tier},
    queue::{AttemptRecord, Finish, Finished, Head, LeaseTerm, LeasedJob, Next, Queue, Retention},
    target::Target,
};
use hook_janitor::{leader::Leadership, purge::Purge};
use hook_testkit::db::TestDb;
use sqlx::PgPool;
use uuid::Uuid;

/// Completed jobs stay for an hour, others for four.
pub(crate) const RETENTION: Retention = Retention {
    completed: Duration::from_secs(3600),
    failed: Duration::from_secs(4 * 3600),
};

pub(crate) struct Scene {
    pub(crate) db: TestDb,
    pub(crate) pool: PgPool,
    pub(crate) queue: Queue,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        let db = TestDb::new().await;
        let pool = db.pool().await;
        let queue = Queue::new(Db::around(pool.clone()));
        Self { db, pool, queue }
    }

    /// A purge that leads, with the hour of [`RETENTION`].
    pub(crate) async fn purge(&self) -> Purge {
        self.purge_with("leader", RETENTION).await
    }

    pub(crate) async fn purge_with(&self, name: &str, retention: Retention) -> Purge {
        let leadership = Leadership::new(self.queue.clone(), name.to_owned());
        leadership.run_once().await.unwrap();
        Purge::new(self.queue.clone(), Arc::new(leadership), retention)
    }

    /// Stores jobs for one target.
    pub(crate) async fn enqueue(&self, target: &str, count: i32) -> Vec<JobId> {
        let ids: Vec<String> = sqlx::query_scalar(
            "SELECT hook.enqueue('http://' || $1 || '/', body => convert_to('body ' || n, 'UTF8'))
            FROM generate_series(1, $2) AS n",
        )
        .bind(target)
        .bind(count)
        .fetch_all(&self.pool)
        .await
        .unwrap();
        ids.iter().map(|id| JobId::parse(id).unwrap()).collect()
    }

    /// Leases jobs of one target, whichever line they are in.
    pub(crate) async fn dequeue(&self, target: &str, count: usize) -> Vec<LeasedJob> {
        dequeue(&self.queue, target, count).await.unwrap()
    }

    pub(crate) async fn finish(&self, jobs: Vec<LeasedJob>, next: Next) -> Vec<Finished> {
        finish(&self.queue, jobs, next).await.unwrap()
    }

    /// Stores jobs and takes them to the end.
    pub(crate) async fn finished(&self, target: &str, count: i32, status: Status) -> Vec<JobId> {
        let ids = self.enqueue(target, count).await;
        let jobs = self.dequeue(target, ids.len()).await;
        assert_eq!(jobs.len(), ids.len());
        self.finish(jobs, Next::End(status)).await;
        ids
    }

    /// Lets time pass for everything that the janitor looks at.
    pub(crate) async fn age(&self, hours: f64) {
        for statement in [
            "UPDATE hook.bucket SET opened_at = opened_at - $1 * interval '1 hour',
                closed_at = closed_at - $1 * interval '1 hour'",
            "UPDATE hook.finished SET finished_at = finished_at - $1 * interval '1 hour'",
            "UPDATE hook.idempotency SET expires_at = expires_at - $1 * interval '1 hour'",
            "UPDATE hook.lease SET leased_until = leased_until - $1 * interval '1 hour'",
            "UPDATE hook.ready SET expires_at = expires_at - $1 * interval '1 hour'",
        ] {
            sqlx::query(statement)
                .bind(hours)
                .execute(&self.pool)
                .await
                .unwrap();
        }
    }

    /// Which of the eight buckets gets new jobs.
    pub(crate) async fn open_bucket(&self) -> i16 {
        sqlx::query_scalar("SELECT hook.open_bucket(0::smallint)")
            .fetch_one(&self.pool)
            .await
            .unwrap()
    }

    /// Buckets that are open or closed, in the order of the ring.
    pub(crate) async fn buckets_in_use(&self) -> Vec<i16> {
        sqlx::query_scalar(
            "SELECT bucket FROM hook.bucket WHERE opened_at IS NOT NULL ORDER BY bucket",
        )
        .fetch_all(&self.pool)
        .await
        .unwrap()
    }

    /// The bucket that a job is stored in; `None` once it is gone.
    pub(crate) async fn bucket_of(&self, id: JobId) -> Option<i16> {
        sqlx::query_scalar("SELECT bucket FROM hook.job WHERE job_id = $1")
            .bind(id.0)
            .fetch_optional(&self.pool)
            .await
            .unwrap()
    }

    /// Jobs, finished jobs and attempts that are stored.
    pub(crate) async fn stored(&self) -> (i64, i64, i64) {
        sqlx::query_as(
            "SELECT (SELECT count(*) FROM hook.job), (SELECT count(*) FROM hook.finished),
                (SELECT count(*) FROM hook.attempt)",
        )
        .fetch_one(&self.pool)
        .await
        .unwrap()
    }

    pub(crate) async fn status(&self, id: JobId) -> Option<Status> {
        let job = self.queue.job(id, false).await.unwrap();
        job.and_then(|job| Status::from_code(job.status))
    }

    /// Every job must be in exactly one state, and its rows in one bucket.
    pub(crate) async fn check(&self) {
        let torn: Vec<Uuid> = sqlx::query_scalar(
            "WITH state AS (
                SELECT job_id, bucket FROM hook.ready
                UNION ALL SELECT job_id, bucket FROM hook.lease
                UNION ALL SELECT job_id, bucket FROM hook.finished
            )
            SELECT COALESCE(j.job_id, s.job_id)
            FROM hook.job AS j FULL JOIN state AS s ON s.job_id = j.job_id AND s.bucket = j.bucket
            GROUP BY 1 HAVING count(j.job_id) <> 1 OR count(s.job_id) <> 1
            UNION ALL
            SELECT a.job_id FROM hook.attempt AS a
            WHERE NOT EXISTS (SELECT FROM hook.job AS j
                WHERE j.job_id = a.job_id AND j.bucket = a.bucket)",
        )
        .fetch_all(&self.pool)
        .await
        .unwrap();
        assert_eq!(
            torn,
            Vec::<Uuid>::new(),
            "jobs whose rows do not fit together"
        );
    }
}

pub(crate) async fn dequeue(
    queue: &Queue,
    target: &str,
    count: usize,
) -> sqlx::Result<Vec<LeasedJob>> {
    let target_id = Target::new(target).unwrap().id();
    let heads: Vec<Head> = Tier::ALL
        .iter()
        .map(|tier| Head {
            target_id,
            tier: *tier,
            take: i32::try_from(count).unwrap(),
            low: None,
        })
        .collect();
    let term = LeaseTerm {
        lease: Duration::from_secs(30),
        margin: Duration::from_secs(5),
        worker: "test".to_owned(),
    };
    Ok(queue.dequeue(&heads, count, &term).await?.jobs)
}

pub(crate) async fn finish(
    queue: &Queue,
    jobs: Vec<LeasedJob>,
    next: Next,
) -> sqlx::Result<Vec<Finished>> {
    let delivered = next == Next::End(Status::Completed);
    let mut finishes: Vec<Finish> = jobs
        .into_iter()
        .map(|job| Finish {
            lease: job.lease,
            record: AttemptRecord {
                outcome: if delivered {
                    Outcome::Delivered
                } else {
                    Outcome::Retryable
                },
                error_kind: (!delivered).then_some(ErrorKind::HttpStatus),
                response_status: Some(if delivered { 200 } else { 503 }),
                response_excerpt: Some(b"answer".to_vec()),
                response_truncated: false,
                duration: Duration::from_millis(5),
            },
            next,
        })
        .collect();
    queue.finish(&mut finishes).await
}
