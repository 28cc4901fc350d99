-- What attempts of a target came to lately: kept with its totals, where it is counted, instead of in
-- hook.target, where nothing wrote it. Locks: each table for the moment of its change.

-- Element n of it belongs to the n-th attempt, as in the other arrays; NULL where an older service
-- has written the tally.
ALTER TABLE hook.tally ADD COLUMN error_kind smallint[];
ALTER TABLE hook.tally ALTER COLUMN error_kind SET STORAGE EXTERNAL;

ALTER TABLE hook.target_total
    ADD COLUMN last_success_at hook.instant,
    ADD COLUMN last_error_at hook.instant,
    ADD COLUMN last_error_kind smallint,
    ADD COLUMN latency_p50_ms integer,
    ADD COLUMN latency_p95_ms integer;
-- Serve the lists of targets that fail and of slow ones (queue/targets_admin.rs).
CREATE INDEX target_total_error ON hook.target_total (shard, last_error_at) WHERE last_error_at IS NOT NULL;
CREATE INDEX target_total_latency ON hook.target_total (shard, latency_p95_ms) WHERE latency_p95_ms IS NOT NULL;

ALTER TABLE hook.target
    DROP COLUMN last_error_kind, DROP COLUMN last_error_at, DROP COLUMN last_success_at,
    DROP COLUMN latency_p50_ms, DROP COLUMN latency_p95_ms;
