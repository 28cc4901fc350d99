WITH pick AS MATERIALIZED (
    SELECT r.tid FROM bench.heads(64, :targets::integer) AS t
    CROSS JOIN LATERAL (
        SELECT ctid AS tid FROM hook.ready
        WHERE shard = 0 AND tier = 0 AND target_id = t.target_id
          AND run_at >= now() - :low_s::float8 * interval '1 second' AND run_at <= now()
          AND (leased_until IS NULL OR leased_until < now())
        ORDER BY run_at, job_id LIMIT 4 FOR UPDATE SKIP LOCKED) AS r
    LIMIT 50),
leased AS (
    UPDATE hook.ready SET leased_until = now() + interval '30 seconds', fence = fence + 1, attempt = attempt + 1,
        worker = 'bench-1'
    WHERE ctid = ANY (ARRAY(SELECT tid FROM pick))
    RETURNING ctid AS tid, shard, bucket, job_id, fence)
SELECT coalesce(array_agg(l.job_id), '{}') AS ids, coalesce(array_agg(l.fence), '{}') AS fences,
       coalesce(array_agg(l.tid), '{}') AS tids, coalesce(sum(length(j.body) + length(j.url)), 0) AS bytes
FROM leased AS l JOIN hook.job AS j ON j.shard = 0 AND j.bucket = l.bucket AND j.job_id = l.job_id;
