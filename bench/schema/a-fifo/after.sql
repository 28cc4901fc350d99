-- A with the order of a plain queue: oldest first, whatever the target.
DROP INDEX bench.job_head;
CREATE INDEX job_head ON bench.job (shard, tier, run_at, job_id) WHERE status = 0;
