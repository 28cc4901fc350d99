-- Candidate B: a narrow row that changes state beside an immutable payload row, one row per
-- attempt, and a purge by DELETE.
CREATE TABLE bench.job (
    job_id uuid NOT NULL,
    target_id bigint NOT NULL,
    run_at timestamptz NOT NULL,
    leased_until timestamptz,
    finished_at timestamptz,
    fence bigint NOT NULL DEFAULT 0,
    attempt integer NOT NULL DEFAULT 0,
    shard smallint NOT NULL,
    tier smallint NOT NULL,
    status smallint NOT NULL DEFAULT 0,
    PRIMARY KEY (shard, job_id)
);
CREATE INDEX job_head ON bench.job (shard, tier, target_id, run_at, job_id) WHERE status = 0;
CREATE INDEX job_leased ON bench.job (shard, leased_until) WHERE status = 1;
CREATE INDEX job_finished ON bench.job (shard, finished_at) WHERE status >= 2;
CREATE TABLE bench.payload (
    job_id uuid NOT NULL,
    target_id bigint NOT NULL,
    created_at timestamptz NOT NULL,
    shard smallint NOT NULL,
    method smallint NOT NULL DEFAULT 0,
    target text NOT NULL,
    url text NOT NULL,
    headers jsonb,
    metadata text,
    body bytea,
    PRIMARY KEY (shard, job_id)
);
CREATE TABLE bench.attempt (
    job_id uuid NOT NULL,
    started_at timestamptz NOT NULL,
    fence bigint NOT NULL,
    attempt integer NOT NULL,
    duration_ms integer NOT NULL,
    shard smallint NOT NULL,
    outcome smallint NOT NULL,
    response_status smallint,
    worker text NOT NULL,
    response_excerpt bytea,
    PRIMARY KEY (shard, job_id, fence)
);
