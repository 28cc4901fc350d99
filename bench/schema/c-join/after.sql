-- C with the pick joined by key instead of by ctid, which needs the key's index.
ALTER TABLE hook.ready DROP CONSTRAINT IF EXISTS ready_pkey, ADD CONSTRAINT ready_pkey PRIMARY KEY (shard, job_id);
