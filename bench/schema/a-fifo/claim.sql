WITH pick AS MATERIALIZED (
    SELECT ctid AS tid FROM bench.job
    WHERE shard = 0 AND tier = 0 AND status = 0
      AND run_at >= now() - :low_s::float8 * interval '1 second' AND run_at <= now()
    ORDER BY run_at, job_id LIMIT 50 FOR UPDATE SKIP LOCKED),
leased AS (
    UPDATE bench.job SET status = 1, attempt = attempt + 1, fence = fence + 1, started_at = now(),
        leased_until = now() + interval '30 seconds', worker = 'bench-1'
    WHERE ctid = ANY (ARRAY(SELECT tid FROM pick))
    RETURNING job_id, fence, url, body)
SELECT coalesce(array_agg(job_id), '{}') AS ids, coalesce(array_agg(fence), '{}') AS fences,
       '' AS tids, coalesce(sum(length(body) + length(url)), 0) AS bytes
FROM leased;
