WITH done AS (
    UPDATE bench.job AS j SET status = 2, finished_at = now(), leased_until = NULL
    FROM unnest(:ids::uuid[], :fences::bigint[]) AS d (job_id, fence)
    WHERE j.shard = 0 AND j.status = 1 AND j.job_id = d.job_id AND j.fence = d.fence
    RETURNING j.job_id, j.fence, j.attempt)
INSERT INTO bench.attempt (shard, job_id, fence, attempt, started_at, duration_ms, outcome,
                           response_status, worker, response_excerpt)
SELECT 0, job_id, fence, attempt, now(), 12, 0, 200, 'bench-1', 'ok' FROM done;
