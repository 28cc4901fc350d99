WITH gone AS (
    DELETE FROM bench.job WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM bench.job
        WHERE shard = 0 AND status >= 2 AND finished_at < now() - interval '1 second'
        ORDER BY finished_at LIMIT :batch::integer FOR UPDATE SKIP LOCKED))
    RETURNING job_id),
ids AS MATERIALIZED (SELECT array_agg(job_id) AS ids FROM gone),
payload AS (DELETE FROM bench.payload WHERE shard = 0 AND job_id = ANY ((SELECT ids FROM ids)::uuid[]))
DELETE FROM bench.attempt WHERE shard = 0 AND job_id = ANY ((SELECT ids FROM ids)::uuid[]);
