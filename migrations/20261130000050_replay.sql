-- Replays: many finished jobs put back at a bounded rate. Locks: creates new objects
-- only, so nothing that runs is ever waited for.

-- One row per replay that was asked for. Its progress is written by the statement that puts a batch of
-- jobs back, so that whoever dies in between has done both or nothing.
CREATE TABLE hook.replay (
    -- Begins with the time, as the id of a job does.
    replay_id uuid NOT NULL,
    requested_at hook.instant NOT NULL,
    -- No further batch is put back before this, so that the rate is kept.
    next_at hook.instant NOT NULL,
    finished_at hook.instant,
    -- The jobs it is for, as they were asked for.
    jobs_from hook.instant,
    jobs_to hook.instant,
    target_id bigint,
    -- The range of their ids, and the last one that was looked at: ids sort by time of enqueue, so each
    -- job is passed once, and one that fails again is not put back again.
    first_job uuid NOT NULL,
    end_job uuid NOT NULL,
    cursor uuid NOT NULL,
    -- Jobs that were found when it was counted, and jobs that were put back.
    total bigint NOT NULL DEFAULT 0,
    done bigint NOT NULL DEFAULT 0,
    rate_per_second integer NOT NULL CHECK (rate_per_second BETWEEN 1 AND 1000),
    job_limit integer NOT NULL CHECK (job_limit > 0),
    shard smallint NOT NULL,
    -- 0 being counted, 1 running, 2 completed, 3 cancelled.
    state smallint NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 3),
    job_status smallint NOT NULL CHECK (job_status IN (2, 3, 4)),
    error_kind smallint,
    tiers smallint[] NOT NULL,
    target text,
    -- Who asked for it: the beginning of the token's digest.
    requested_by text,
    -- A second request with the same key is the first one again.
    key text CHECK (key <> '' AND length(key) <= 255),
    PRIMARY KEY (shard, replay_id),
    UNIQUE (shard, key)
) WITH (fillfactor = 50);
-- Serves the look for replays to go on with (queue/replay.rs).
CREATE INDEX replay_under_way ON hook.replay (shard, replay_id) WHERE state < 2;
