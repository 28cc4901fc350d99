//! What people look at reads a bounded part of large tables, once autovacuum has analysed them; what
//! they ask about one job, and what they change, finds it by an index even before.

use std::{collections::BTreeMap, time::Duration};

use hook_common::{
    db::Db,
    job::{JobId, QueueName, Status},
    queue::{JobFilter, NewReplay, Queue, TargetChange, TargetOrder},
    target::Target,
};
use sqlx::{Executor as _, PgPool, postgres::PgPoolOptions};

use super::kit::Kit;

const MINUTE: Duration = Duration::from_secs(60);

/// Waiting jobs, two for each target; failed jobs; entries of the audit; replays that have ended.
const FILL: &str = "
    INSERT INTO hook.target (shard, target_id, name, penalty, failures_in_row)
    SELECT 0, hook.target_id('t' || n), 't' || n, (n % 500 = 0)::int, 3 * (n % 100 = 0)::int
    FROM generate_series(1, 30000) AS n;
    INSERT INTO hook.target_total (shard, target_id, delivered, retryable, permanent, duration_ms, ended_at,
        last_error_at, last_error_kind, latency_p95_ms)
    SELECT 0, hook.target_id('t' || n), 1, 1, 0, 1, now(), now() - n * interval '1 s', 1, n
    FROM generate_series(1, 30000) AS n;
    INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, bucket)
    SELECT 0, 0, hook.target_id('t' || n / 2), now() - n * interval '1 ms', hook.new_job_id(n), 0
    FROM generate_series(1, 60000) AS n;
    INSERT INTO hook.finished (shard, bucket, tier, job_id, target_id, finished_at, status, fence, attempt)
    SELECT 0, 0, 0, hook.new_job_id(n), hook.target_id('t' || n % 9), now(), 2 + n % 2, 1, 1
    FROM generate_series(1, 60000) AS n;
    INSERT INTO hook.audit (shard, audit_id, at, action, subject, detail, remote)
    SELECT 0, hook.new_job_id(n), now(), 'x', '', '{}', '' FROM generate_series(1, 5000) AS n;
    INSERT INTO hook.replay (shard, replay_id, requested_at, next_at, finished_at, first_job, end_job, cursor,
        rate_per_second, job_limit, state, job_status, tiers)
    SELECT 0, id, now(), now(), now(), id, id, id, 1, 1, 2, 3, '{0}'
    FROM (SELECT hook.new_job_id(n) AS id FROM generate_series(1, 5000) AS n) AS ids";

/// A queue with one connection, so that what its statements read can be told.
struct Looks {
    queue: Queue,
    pool: PgPool,
    _kit: Kit,
}

impl Looks {
    async fn new() -> Self {
        let kit = Kit::new().await;
        let pool = PgPoolOptions::new().max_connections(1);
        let pool = pool.connect(&kit.url()).await.unwrap();
        pool.execute("ALTER TABLE hook.ready SET (autovacuum_enabled = off)")
            .await
            .unwrap();
        pool.execute(FILL).await.unwrap();
        Self {
            queue: Queue::new(Db::around(pool.clone())),
            pool,
            _kit: kit,
        }
    }

    /// Rows and entries of indexes that have been read so far, by table.
    async fn read(&self) -> BTreeMap<String, i64> {
        for statement in [
            "SELECT pg_stat_force_next_flush()",
            "SELECT pg_stat_clear_snapshot()",
        ] {
            self.pool.execute(statement).await.unwrap();
        }
        let rows: Vec<(String, i64)> = sqlx::query_as(
            "SELECT CASE WHEN relname LIKE 'finished%' THEN 'finished' ELSE relname END, sum(seq_tup_read + COALESCE((
                SELECT sum(idx_tup_read) FROM pg_stat_user_indexes AS i WHERE i.relid = t.relid), 0))::bigint
             FROM pg_stat_user_tables AS t WHERE schemaname = 'hook' GROUP BY 1",
        )
        .fetch_all(&self.pool)
        .await
        .unwrap();
        rows.into_iter().collect()
    }

    /// Fails unless the look reads no more of each table than `most`; of others it may read little.
    async fn check(&self, name: &str, most: &[(&str, i64)], look: impl Future<Output = ()>) {
        let before = self.read().await;
        look.await;
        for (table, after) in self.read().await {
            let read = after - before.get(&table).copied().unwrap_or(0);
            let most = most.iter().find(|(other, _)| *other == table);
            let most = most.map_or(1_000, |(_, most)| *most);
            assert!(read <= most, "{name}: {read} rows of {table}");
        }
    }
}

fn jobs(status: Option<Status>, target: Option<&str>, queue: Option<QueueName>) -> JobFilter {
    JobFilter {
        status,
        target: target.map(|name| Target::new(name).unwrap()),
        queue,
        from: None,
        to: None,
    }
}

#[tokio::test]
async fn no_look_reads_a_large_table_to_its_end() {
    let looks = Looks::new().await;
    let queue = &looks.queue;
    looks.pool.execute("ANALYZE").await.unwrap();
    // Early executions have plans for their values, later ones a plan for any.
    for mode in ["force_custom_plan", "force_generic_plan"] {
        let set = sqlx::query("SELECT set_config('plan_cache_mode', $1, false)").bind(mode);
        set.execute(&looks.pool).await.unwrap();
        // The sample is 10,000 of 60,000 jobs, of whole pages.
        let sampled = ("ready", 16_000);
        for order in [
            TargetOrder::Waiting,
            TargetOrder::Failing,
            TargetOrder::Slow,
        ] {
            let name = format!("{order:?}");
            let most = [sampled, ("finished", 60_000), ("target", 2_000)];
            looks
                .check(&name, &most, async {
                    let found = queue.targets(order, 50, 24, MINUTE).await.unwrap();
                    assert_eq!(found.len(), 50, "{name}");
                })
                .await;
        }
        looks
            .check("failures", &[("finished", 12_000)], async {
                queue.failures(50).await.unwrap();
            })
            .await;
        looks
            .check("next", &[sampled], async {
                queue.due_next(MINUTE, 50).await.unwrap();
            })
            .await;
        looks
            .check("counts", &[], async {
                let counts = queue.target_counts(MINUTE).await.unwrap();
                assert_eq!(counts.penalised, 60);
            })
            .await;
        looks
            .check("stats", &[("ready", 20_000), ("finished", 20_000)], async {
                queue.queue_stats().await.unwrap();
            })
            .await;
        looks
            .check("audit", &[], async {
                assert_eq!(queue.audit(None, 50).await.unwrap().len(), 50);
            })
            .await;
        looks
            .check("replays", &[], async {
                assert_eq!(queue.replays(None, 50).await.unwrap().len(), 50);
                assert_eq!(queue.replay_work(MINUTE).await.unwrap().len(), 0);
            })
            .await;
        jobs_are_listed(&looks).await;
    }
}

/// Filters that an index serves, and others.
async fn jobs_are_listed(looks: &Looks) {
    let queue = &looks.queue;
    for (status, target, of) in [
        (None, None, None),
        (None, Some("t7"), None),
        (Some(Status::Failed), None, None),
        (Some(Status::Failed), None, Some(QueueName::Degraded)),
        (Some(Status::Failed), Some("t7"), Some(QueueName::Degraded)),
        (Some(Status::Completed), Some("t7"), None),
        (Some(Status::Available), Some("t7"), None),
        (Some(Status::Available), None, Some(QueueName::Degraded)),
    ] {
        let name = format!("{status:?} {target:?} {of:?}");
        let most = [("ready", 12_000), ("finished", 16_000)];
        looks
            .check(&name, &most, async {
                queue
                    .list(&jobs(status, target, of), None, 50)
                    .await
                    .unwrap();
            })
            .await;
    }
}

/// Jobs that wait, have failed and were delivered, a third of them each, and some that run, with their
/// attempts; as large as jobs are, so that a scan costs more than any index. Leases have no index by job: there are
/// never more than slots.
const FILL_JOBS: &str = "
    INSERT INTO hook.target (shard, target_id, name)
    SELECT 0, hook.target_id('t' || n), 't' || n FROM generate_series(0, 9999) AS n;
    INSERT INTO hook.target_total (shard, target_id, delivered, retryable, permanent, duration_ms, ended_at)
    SELECT 0, hook.target_id('t' || n), 1, 1, 0, 1, now() FROM generate_series(0, 9999) AS n;
    INSERT INTO hook.job (shard, bucket, job_id, created_at, target_id, target, url, body)
    SELECT 0, n % 2 - 1, hook.new_job_id(n), now(), hook.target_id('t' || n % 40), 't' || n % 40, 'http://a.example/',
        convert_to(repeat('x', 1500), 'UTF8')
    FROM generate_series(1, 16000) AS n;
    INSERT INTO hook.attempt (shard, bucket, job_id, target_id, fence, attempt, started_at, duration_ms, outcome,
        error_kind, worker, response_excerpt)
    SELECT 0, bucket, job_id, target_id, 1, 1, now(), 1, 1, 1, 'w', convert_to(repeat('x', 1500), 'UTF8') FROM hook.job;
    WITH n AS (
        SELECT *, CASE WHEN n <= 200 THEN 1 ELSE ('{0,2,3}'::int[])[1 + n % 3] END AS of
        FROM (SELECT *, row_number() OVER (ORDER BY job_id) AS n FROM hook.job) AS jobs
    ), waiting AS (
        INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, bucket, fence)
        SELECT 0, 1, target_id, now() + interval '1 hour', job_id, bucket, 1 FROM n WHERE of = 0
    ), running AS (
        INSERT INTO hook.lease (shard, tier, target_id, run_at, job_id, bucket, fence, attempt, leased_at,
            leased_until, worker)
        SELECT 0, 1, target_id, now(), job_id, bucket, 2, 2, now(), now() + interval '1 hour', 'w'
        FROM n WHERE of = 1
    )
    INSERT INTO hook.finished (shard, bucket, tier, job_id, target_id, finished_at, status, fence, attempt, outcome,
        error_kind, duration_ms, started_at, worker, response_excerpt)
    SELECT 0, bucket, 1, job_id, target_id, now(), of, 2, 2, 2 * (of - 2), 0, 1, now(), 'w',
        convert_to(repeat('x', 1500), 'UTF8')
    FROM n WHERE of > 1";

/// Ids of some jobs with this number, as `FILL_JOBS` has made them.
async fn ids(pool: &PgPool, table: &str) -> Vec<JobId> {
    let ids: Vec<uuid::Uuid> = sqlx::query_scalar(match table {
        "ready" => "SELECT job_id FROM hook.ready ORDER BY job_id LIMIT 10",
        "lease" => "SELECT job_id FROM hook.lease ORDER BY job_id LIMIT 10",
        _ => "SELECT job_id FROM hook.finished WHERE status = 3 ORDER BY job_id LIMIT 10",
    })
    .fetch_all(pool)
    .await
    .unwrap();
    ids.into_iter().map(JobId).collect()
}

/// Tables that are empty and will not be analysed.
async fn never_analysed() -> Looks {
    let kit = Kit::new().await;
    let pool = PgPoolOptions::new().max_connections(1);
    let pool = pool.connect(&kit.url()).await.unwrap();
    pool.execute(
        "DO $$ DECLARE name text; BEGIN
            FOR name IN SELECT oid::regclass FROM pg_class
                WHERE relnamespace = 'hook'::regnamespace AND relkind = 'r'
            LOOP EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', name); END LOOP;
        END $$",
    )
    .await
    .unwrap();
    Looks {
        queue: Queue::new(Db::around(pool.clone())),
        pool,
        _kit: kit,
    }
}

#[tokio::test]
async fn what_is_asked_of_a_job_and_changed_is_found_by_an_index_in_tables_never_analysed() {
    let looks = never_analysed().await;
    let target = Target::new("t1").unwrap();
    for mode in ["force_custom_plan", "force_generic_plan", "auto"] {
        let set = sqlx::query("SELECT set_config('plan_cache_mode', $1, false)").bind(mode);
        set.execute(&looks.pool).await.unwrap();
        let (queue, pool) = (&looks.queue, &looks.pool);
        if mode == "force_custom_plan" {
            pool.execute(FILL_JOBS).await.unwrap();
        }
        let (waiting, running) = (ids(pool, "ready").await, ids(pool, "lease").await);
        let failed = ids(pool, "finished").await;
        for id in [waiting[0], running[0], failed[0]] {
            looks
                .check(&format!("{mode}: a job"), &[], async {
                    assert!(queue.job(id, true).await.unwrap().is_some());
                    assert!(!queue.attempts(id).await.unwrap().is_empty());
                })
                .await;
        }
        looks
            .check(&format!("{mode}: cancel"), &[], async {
                assert!(queue.cancel(waiting[1]).await.unwrap());
            })
            .await;
        looks
            .check(&format!("{mode}: retry"), &[], async {
                assert!(queue.retry(failed[1]).await.unwrap());
            })
            .await;
        looks
            .check(&format!("{mode}: settings of a target"), &[], async {
                queue.probe_now(&target).await.unwrap();
                let change = TargetChange::default();
                queue.change_target(&target, &change).await.unwrap();
            })
            .await;
        looks
            .check(&format!("{mode}: the next bucket"), &[], async {
                queue.rotate(Duration::ZERO).await.unwrap();
            })
            .await;
        // A batch of a replay looks at 2000 jobs at most.
        let walked = ["finished", "job_kept", "job_0"].map(|table| (table, 2_500));
        looks
            .check(&format!("{mode}: a replay"), &walked, async {
                let filter = jobs(Some(Status::Failed), None, None);
                let wanted = NewReplay {
                    filter: &filter,
                    error_kind: None,
                    limit: 20,
                    rate_per_second: 20,
                    requested_by: None,
                    key: None,
                };
                queue.start_replay(&wanted).await.unwrap();
                for _ in 0..2 {
                    for work in queue.replay_work(MINUTE).await.unwrap() {
                        queue.replay_step(&work).await.unwrap();
                    }
                }
                assert_eq!(queue.replays(None, 1).await.unwrap()[0].done, 20);
            })
            .await;
    }
}
