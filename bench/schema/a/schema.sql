-- Candidate A: one wide row holds the state and the body, and is updated in place.
CREATE TABLE bench.job (
    job_id uuid NOT NULL,
    target_id bigint NOT NULL,
    run_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    leased_until timestamptz,
    finished_at timestamptz,
    started_at timestamptz,
    fence bigint NOT NULL DEFAULT 0,
    attempt integer NOT NULL DEFAULT 0,
    duration_ms integer,
    shard smallint NOT NULL,
    tier smallint NOT NULL,
    status smallint NOT NULL DEFAULT 0,
    method smallint NOT NULL DEFAULT 0,
    outcome smallint,
    response_status smallint,
    worker text,
    target text NOT NULL,
    url text NOT NULL,
    headers jsonb,
    metadata text,
    response_excerpt bytea,
    body bytea,
    PRIMARY KEY (shard, job_id)
);
CREATE INDEX job_head ON bench.job (shard, tier, target_id, run_at, job_id) WHERE status = 0;
CREATE INDEX job_leased ON bench.job (shard, leased_until) WHERE status = 1;
CREATE INDEX job_finished ON bench.job (shard, finished_at) WHERE status >= 2;
