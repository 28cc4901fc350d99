-- An index for lists of jobs that did not complete.
-- Locks: writes to hook.finished wait while the index is built; it is small, because completed
-- jobs are not in it.

-- Serves the lists of failed and cancelled jobs of all targets, newest first (queue/listing.rs),
-- and their replay, oldest first (queue/replay.rs).
CREATE INDEX finished_uncompleted ON hook.finished (shard, status, job_id) WHERE status <> 2;
