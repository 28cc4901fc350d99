//! What the queue tests share: jobs, leases, and a look at where every job is.

use std::time::Duration;

use hook_common::{
    db::Db,
    job::{Due, ErrorKind, Expiry, JobId, NewJob, Outcome, Tier},
    queue::{
        AttemptRecord, Enqueue, Enqueued, Finish, Head, LeaseTerm, LeasedJob, Next, Queue,
        ReapLeases,
    },
    target::Target,
};
use hook_testkit::db::TestDb;
use sqlx::PgPool;

/// A database with a queue in it.
pub(crate) struct Kit {
    pub(crate) queue: Queue,
    pub(crate) pool: PgPool,
    db: TestDb,
}

/// Where the jobs are.
#[derive(Clone, Copy, Debug, Eq, PartialEq, sqlx::FromRow)]
pub(crate) struct Places {
    pub(crate) jobs: i64,
    pub(crate) ready: i64,
    pub(crate) lease: i64,
    pub(crate) finished: i64,
}

impl Kit {
    pub(crate) async fn new() -> Self {
        let db = TestDb::new().await;
        let pool = db.pool().await;
        Self {
            queue: Queue::new(Db::around(pool.clone())),
            pool,
            db,
        }
    }

    /// Address of the database.
    pub(crate) fn url(&self) -> String {
        self.db.url()
    }

    /// Stores one plain job per target, in this order.
    pub(crate) async fn enqueue(&self, targets: &[&str]) -> Vec<JobId> {
        let jobs: Vec<Enqueue> = targets
            .iter()
            .map(|target| enqueue(new_job(target)))
            .collect();
        self.store(&jobs).await
    }

    pub(crate) async fn store(&self, jobs: &[Enqueue]) -> Vec<JobId> {
        let stored = self
            .queue
            .enqueue(jobs, Duration::from_secs(3600))
            .await
            .unwrap();
        stored
            .into_iter()
            .map(|enqueued| match enqueued {
                Enqueued::Stored(id) => id,
                Enqueued::KeyTaken => panic!("a key was taken"),
            })
            .collect()
    }

    /// Leases up to `limit` jobs of these targets, from every tier.
    pub(crate) async fn dequeue(&self, targets: &[&str], limit: usize) -> Vec<LeasedJob> {
        let heads: Vec<Head> = targets
            .iter()
            .flat_map(|target| Tier::ALL.iter().map(|tier| head(target, *tier, limit)))
            .collect();
        self.queue
            .dequeue(&heads, limit, &term(Duration::from_secs(60)))
            .await
            .unwrap()
            .jobs
    }

    pub(crate) async fn places(&self) -> Places {
        sqlx::query_as(
            "SELECT (SELECT count(*) FROM hook.job) AS jobs, (SELECT count(*) FROM hook.ready) AS ready,
                (SELECT count(*) FROM hook.lease) AS lease, (SELECT count(*) FROM hook.finished) AS finished",
        )
        .fetch_one(&self.pool)
        .await
        .unwrap()
    }

    /// Lets all leases be over.
    pub(crate) async fn expire_leases(&self) {
        sqlx::query("UPDATE hook.lease SET leased_until = now() - interval '1 second'")
            .execute(&self.pool)
            .await
            .unwrap();
    }

    /// Makes every waiting job due.
    pub(crate) async fn make_due(&self) {
        sqlx::query("UPDATE hook.ready SET run_at = now() - interval '1 second'")
            .execute(&self.pool)
            .await
            .unwrap();
    }
}

pub(crate) fn new_job(target: &str) -> NewJob {
    NewJob {
        url: format!("http://{target}/hook"),
        target: Target::new(target).unwrap(),
        method: hook_common::job::Method::Post,
        headers: vec![("content-type".into(), "application/json".into())],
        body: br#"{"n":12345678901234567890}"#.as_slice().into(),
        metadata: None,
        due: Due::Now,
        expires: Expiry::Never,
        max_attempts: None,
        timeout: None,
        idempotency: None,
        signing: Vec::new(),
    }
}

pub(crate) fn enqueue(job: NewJob) -> Enqueue {
    Enqueue {
        job,
        tier: Tier::Primary,
        headers_sealed: None,
    }
}

pub(crate) fn head(target: &str, tier: Tier, take: usize) -> Head {
    Head {
        target_id: Target::new(target).unwrap().id(),
        tier,
        take: i32::try_from(take).unwrap(),
        low: None,
    }
}

pub(crate) fn term(lease: Duration) -> LeaseTerm {
    LeaseTerm {
        lease,
        margin: Duration::from_secs(15),
        worker: "test-worker".into(),
    }
}

pub(crate) fn reap(max_attempts: i16) -> ReapLeases<'static> {
    ReapLeases {
        max_attempts,
        ..ReapLeases::default()
    }
}

pub(crate) fn finish(job: LeasedJob, next: Next) -> Finish {
    let delivered = matches!(next, Next::End(hook_common::job::Status::Completed));
    Finish {
        lease: job.lease,
        record: AttemptRecord {
            outcome: if delivered {
                Outcome::Delivered
            } else {
                Outcome::Retryable
            },
            error_kind: (!delivered).then_some(ErrorKind::HttpStatus),
            response_status: Some(if delivered { 200 } else { 503 }),
            response_excerpt: Some(b"\x00\xff answer".to_vec()),
            response_truncated: true,
            duration: Duration::from_millis(7),
        },
        next,
    }
}

/// Fills the ready table past the API: many jobs of few targets, and as many targets of one job.
pub(crate) async fn fill(pool: &PgPool, jobs: i32, targets: i32) {
    sqlx::query(
        "INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, bucket)
         SELECT 0, 0, hook.target_id('t' || n % $2), now() - n * interval '1 millisecond',
             hook.new_job_id((extract(epoch FROM now()) * 1000000)::bigint + n), 0
         FROM generate_series(1, $1) AS n",
    )
    .bind(jobs)
    .bind(targets)
    .execute(pool)
    .await
    .unwrap();
}
