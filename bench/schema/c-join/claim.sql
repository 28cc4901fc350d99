WITH pick AS MATERIALIZED (
    SELECT r.job_id FROM bench.heads(64, :targets::integer) AS t
    CROSS JOIN LATERAL (
        SELECT job_id FROM hook.ready
        WHERE shard = 0 AND tier = 0 AND target_id = t.target_id
          AND run_at >= now() - :low_s::float8 * interval '1 second' AND run_at <= now()
        ORDER BY run_at, job_id LIMIT 4 FOR UPDATE SKIP LOCKED) AS r
    LIMIT 50),
gone AS (
    DELETE FROM hook.ready WHERE shard = 0 AND job_id = ANY (ARRAY(SELECT job_id FROM pick))
    RETURNING shard, tier, bucket, target_id, run_at, job_id, fence, attempt, expires_at, timeout_ms),
leased AS (
    INSERT INTO hook.lease (shard, tier, bucket, target_id, run_at, job_id, fence, attempt, expires_at, timeout_ms,
                            leased_at, leased_until, worker)
    SELECT shard, tier, bucket, target_id, run_at, job_id, fence + 1, attempt + 1, expires_at, timeout_ms,
           now(), now() + interval '30 seconds', 'bench-1' FROM gone
    RETURNING ctid AS tid, shard, bucket, job_id, fence)
SELECT coalesce(array_agg(l.job_id), '{}') AS ids, coalesce(array_agg(l.fence), '{}') AS fences,
       coalesce(array_agg(l.tid), '{}') AS tids, coalesce(sum(length(j.body) + length(j.url)), 0) AS bytes
FROM leased AS l JOIN hook.job AS j ON j.shard = 0 AND j.bucket = l.bucket AND j.job_id = l.job_id;
