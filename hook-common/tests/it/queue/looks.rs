//! What people look at reads a bounded part of large tables, once autovacuum has analysed them.

use std::{collections::BTreeMap, time::Duration};

use hook_common::{
    db::Db,
    job::{QueueName, Status},
    queue::{JobFilter, Queue, TargetOrder},
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
