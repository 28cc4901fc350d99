WITH gone AS (
    DELETE FROM hook.lease AS l USING unnest(:ids::uuid[], :fences::bigint[]) AS d (job_id, fence)
    WHERE l.ctid = ANY (:tids::tid[]) AND l.job_id = d.job_id AND l.fence = d.fence
    RETURNING l.*)
INSERT INTO hook.finished (shard, tier, bucket, target_id, job_id, fence, attempt, finished_at, status,
                           outcome, response_status, duration_ms, started_at, worker, response_excerpt)
SELECT shard, tier, bucket, target_id, job_id, fence, attempt, now(), 2, 0, 200, 12, leased_at, worker, 'ok'
FROM gone;
