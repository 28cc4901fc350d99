-- An index for the list of targets that fail. Locks: writes to hook.target wait while it is built; few
-- targets are in it, because one that delivers is not.

-- Serves the list of targets that fail most (queue/targets_admin.rs).
CREATE INDEX target_failing ON hook.target (shard, failures_in_row, penalty, target_id) WHERE failures_in_row > 0;
