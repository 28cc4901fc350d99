INSERT INTO bench.job (shard, tier, job_id, target_id, run_at, created_at, target, url, body)
SELECT 0, 0, job_id, target_id, now(), now(), target, url, body
FROM bench.new_jobs(:batch::integer, :targets::integer, :body_bytes::integer);
