UPDATE bench.job AS j SET status = 2, finished_at = now(), duration_ms = 12, outcome = 0,
    response_status = 200, response_excerpt = 'ok', leased_until = NULL
FROM unnest(:ids::uuid[], :fences::bigint[]) AS d (job_id, fence)
WHERE j.shard = 0 AND j.status = 1 AND j.job_id = d.job_id AND j.fence = d.fence;
