WITH new AS MATERIALIZED (
    SELECT * FROM bench.new_jobs(:batch::integer, :targets::integer, :body_bytes::integer)),
payload AS (
    INSERT INTO bench.payload (shard, job_id, target_id, created_at, target, url, body)
    SELECT 0, job_id, target_id, now(), target, url, body FROM new)
INSERT INTO bench.job (shard, tier, job_id, target_id, run_at)
SELECT 0, 0, job_id, target_id, now() FROM new;
