WITH new AS MATERIALIZED (
    SELECT * FROM bench.new_jobs(:batch::integer, :targets::integer, :body_bytes::integer)),
bucket AS MATERIALIZED (
    SELECT bucket FROM hook.bucket WHERE shard = 0 AND opened_at IS NOT NULL AND closed_at IS NULL),
job AS (
    INSERT INTO hook.job (shard, bucket, job_id, target_id, url, body)
    SELECT 0, bucket, job_id, target_id, url, body FROM new, bucket)
INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, fence, attempt, bucket)
SELECT 0, 0, target_id, now(), job_id, 0, 0, bucket FROM new, bucket;
