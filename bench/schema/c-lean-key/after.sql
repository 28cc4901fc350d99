-- C-lean with the index on the id of waiting jobs, for look-ups, cancelling and lists.
CREATE UNIQUE INDEX ready_id ON hook.ready (shard, job_id);
