-- C with a primary key on `lease`, which a finish uses instead of the row's place.
ALTER TABLE hook.lease ADD PRIMARY KEY (shard, job_id);
