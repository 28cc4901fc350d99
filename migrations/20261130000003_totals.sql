-- What attempts came to, per target, kept apart from the jobs so that a purge takes nothing away.
-- Locks: creates new objects only, so nothing that runs is ever waited for.
--
-- Whoever ends attempts leaves one tally for all of them in the same statement: one insert, no row
-- that others wait for. The leading janitor counts tallies into hours and totals and deletes them in
-- one statement, so that every attempt is counted exactly once, whoever dies when.

-- Attempts that are not counted yet; element n of each array belongs to the n-th attempt.
CREATE TABLE hook.tally (
    ended_at hook.instant NOT NULL,
    shard smallint NOT NULL,
    target_id bigint[] NOT NULL,
    outcome smallint[] NOT NULL,
    duration_ms integer[] NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false,
    toast_tuple_target = 8160
);
-- Random ids do not compress; the attempt would cost more than the page it saves.
ALTER TABLE hook.tally ALTER COLUMN target_id SET STORAGE EXTERNAL,
    ALTER COLUMN outcome SET STORAGE EXTERNAL, ALTER COLUMN duration_ms SET STORAGE EXTERNAL;

-- Attempts of one target that ended within one hour.
CREATE TABLE hook.target_hour (
    target_id bigint NOT NULL,
    hour hook.instant NOT NULL,
    delivered bigint NOT NULL,
    retryable bigint NOT NULL,
    permanent bigint NOT NULL,
    duration_ms bigint NOT NULL,
    shard smallint NOT NULL,
    PRIMARY KEY (shard, target_id, hour)
) WITH (fillfactor = 70);
-- Serves the purge of old hours and the history of all targets (queue/history.rs).
CREATE INDEX target_hour_age ON hook.target_hour (shard, hour);

-- Attempts of one target, ever.
CREATE TABLE hook.target_total (
    target_id bigint NOT NULL,
    delivered bigint NOT NULL,
    retryable bigint NOT NULL,
    permanent bigint NOT NULL,
    duration_ms bigint NOT NULL,
    -- When the last of them ended.
    ended_at hook.instant NOT NULL,
    shard smallint NOT NULL,
    PRIMARY KEY (shard, target_id)
) WITH (fillfactor = 70);

-- Attempts of all targets, ever, also of those whose own total is gone.
CREATE TABLE hook.attempt_total (
    shard smallint PRIMARY KEY,
    delivered bigint NOT NULL,
    retryable bigint NOT NULL,
    permanent bigint NOT NULL,
    duration_ms bigint NOT NULL
);
