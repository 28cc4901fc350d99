-- The queue: targets, jobs, the three places a job can be in, earlier attempts, idempotency keys.
-- Locks: creates new objects only, so nothing that runs is ever waited for.
--
-- One job's way: a row in `job` that never changes, and exactly one row in `ready`, `lease` or
-- `finished`. A state change deletes one of these rows and inserts another in one statement.
-- `shard` comes first in every key and is 0 on a single server (docs/adr/0002).

-- A point in time that every client can read: neither infinite nor outside the years 1 to 9999.
CREATE DOMAIN hook.instant AS timestamptz
    CHECK (VALUE >= '0001-01-01T00:00:00Z' AND VALUE < '10000-01-01T00:00:00Z');

-- Computes the id of a target from its name; the services compute the same from the same bytes.
CREATE FUNCTION hook.target_id(name text) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT ('x' || encode(substring(sha256(convert_to(name, 'UTF8')) FROM 1 FOR 8), 'hex'))::bit(64)::bigint
$$;

-- Makes a UUIDv7 (RFC 9562) for this time in microseconds since 1970: the milliseconds, then 12
-- bits of the rest, then random bits. Ids made one microsecond apart sort in that order. Neither
-- STRICT nor with a FROM, so that Postgres inlines it: it runs once for every job.
CREATE FUNCTION hook.new_job_id(us bigint) RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT encode(overlay(uuid_send(gen_random_uuid())
        PLACING int8send(((us / 1000) << 16) | 28672 | (us % 1000 * 4096 / 1000)) FROM 1 FOR 8), 'hex')::uuid
$$;

-- What people set for a target and what workers found out about it. A missing row means: no
-- settings, nothing known.
CREATE TABLE hook.target (
    shard smallint NOT NULL,
    target_id bigint NOT NULL,
    name text NOT NULL CHECK (name <> '' AND length(name) <= 255),
    created_at hook.instant NOT NULL DEFAULT now(),
    -- Set by people; NULL leaves the worker's setting in force.
    paused boolean NOT NULL DEFAULT false,
    max_in_flight integer CHECK (max_in_flight >= 1),
    rate_per_second double precision CHECK (rate_per_second > 0),
    penalty_pin smallint CHECK (penalty_pin BETWEEN 0 AND 9),
    -- Found by workers.
    penalty smallint NOT NULL DEFAULT 0 CHECK (penalty BETWEEN 0 AND 9),
    held_until hook.instant,
    hold_interval_ms bigint,
    failures_in_row integer NOT NULL DEFAULT 0,
    last_error_kind smallint,
    last_error_at hook.instant,
    last_success_at hook.instant,
    latency_p50_ms integer,
    latency_p95_ms integer,
    -- When any of the above last changed: what a refresh has to read.
    changed_at hook.instant NOT NULL DEFAULT now(),
    PRIMARY KEY (shard, target_id)
) WITH (fillfactor = 50);

-- Serves the refresh of settings and penalties (queue/targets.rs): only rows that differ from
-- "nothing known" are in it.
CREATE INDEX target_special ON hook.target (shard, changed_at)
    WHERE paused OR max_in_flight IS NOT NULL OR rate_per_second IS NOT NULL
       OR penalty_pin IS NOT NULL OR penalty > 0 OR held_until IS NOT NULL;

-- The ring of buckets that jobs are stored in. The janitor opens the next bucket, and empties one
-- by TRUNCATE once everything in it is final and old enough; -1 is the bucket for what must stay
-- longer, emptied row by row. Exactly one bucket of a shard is open.
CREATE TABLE hook.bucket (
    shard smallint NOT NULL,
    bucket smallint NOT NULL CHECK (bucket BETWEEN 0 AND 7),
    opened_at hook.instant,
    closed_at hook.instant,
    PRIMARY KEY (shard, bucket)
);
CREATE UNIQUE INDEX bucket_open ON hook.bucket (shard) WHERE opened_at IS NOT NULL AND closed_at IS NULL;
INSERT INTO hook.bucket (shard, bucket, opened_at)
SELECT 0, n, CASE WHEN n = 0 THEN now() END FROM generate_series(0, 7) AS n;

-- The bucket that new jobs of a shard go into.
CREATE FUNCTION hook.open_bucket(of_shard smallint) RETURNS smallint
LANGUAGE sql STABLE AS $$
    SELECT bucket FROM hook.bucket
    WHERE shard = of_shard AND opened_at IS NOT NULL AND closed_at IS NULL
$$;

-- What to deliver. Written once, never updated but for its bucket.
CREATE TABLE hook.job (
    job_id uuid NOT NULL,
    created_at hook.instant NOT NULL,
    -- NULL: due when it was created.
    scheduled_at hook.instant,
    expires_at hook.instant,
    target_id bigint NOT NULL,
    timeout_ms integer CHECK (timeout_ms BETWEEN 1 AND 60000),
    shard smallint NOT NULL,
    bucket smallint NOT NULL,
    max_attempts smallint CHECK (max_attempts BETWEEN 1 AND 100),
    method smallint NOT NULL DEFAULT 0,
    target text NOT NULL,
    url text NOT NULL,
    headers jsonb,
    -- Header values that must not lie around in clear, sealed with HOOK_SECRET_KEY.
    headers_sealed bytea,
    -- A JSON object as it was written; text, so that any number keeps its spelling.
    metadata text,
    signing text[],
    body bytea
) PARTITION BY LIST (bucket);

-- What an attempt came to, for attempts that a later one followed.
CREATE TABLE hook.attempt (
    job_id uuid NOT NULL,
    target_id bigint NOT NULL,
    started_at hook.instant NOT NULL,
    fence bigint NOT NULL,
    attempt integer NOT NULL,
    duration_ms integer NOT NULL,
    shard smallint NOT NULL,
    bucket smallint NOT NULL,
    outcome smallint NOT NULL,
    error_kind smallint,
    response_status smallint,
    worker text NOT NULL,
    response_excerpt bytea
) PARTITION BY LIST (bucket);

-- A job that no attempt will follow on its own, with its last attempt (columns from started_at
-- on; NULL where none was made).
CREATE TABLE hook.finished (
    job_id uuid NOT NULL,
    target_id bigint NOT NULL,
    finished_at hook.instant NOT NULL,
    fence bigint NOT NULL,
    attempt integer NOT NULL CHECK (attempt BETWEEN 0 AND 1000000),
    shard smallint NOT NULL,
    bucket smallint NOT NULL,
    tier smallint NOT NULL,
    status smallint NOT NULL CHECK (status IN (2, 3, 4)),
    outcome smallint,
    error_kind smallint,
    response_status smallint,
    duration_ms integer,
    started_at hook.instant,
    worker text,
    response_excerpt bytea
) PARTITION BY LIST (bucket);

DO $$
DECLARE
    n integer;
    suffix text;
BEGIN
    FOR n IN -1..7 LOOP
        suffix := CASE WHEN n = -1 THEN 'kept' ELSE n::text END;
        EXECUTE format('CREATE TABLE hook.job_%s PARTITION OF hook.job FOR VALUES IN (%s)', suffix, n);
        EXECUTE format('CREATE TABLE hook.attempt_%s PARTITION OF hook.attempt FOR VALUES IN (%s)', suffix, n);
        EXECUTE format('CREATE TABLE hook.finished_%s PARTITION OF hook.finished FOR VALUES IN (%s)', suffix, n);
        -- Bodies are kept as they are: compressing them costs more CPU than the rest of the job.
        EXECUTE format('ALTER TABLE hook.job_%s ALTER COLUMN body SET STORAGE EXTERNAL', suffix);
        IF n >= 0 THEN
            -- Filled once and truncated: vacuuming for the visibility map would be wasted.
            EXECUTE format('ALTER TABLE hook.job_%s SET (autovacuum_vacuum_insert_threshold = -1)', suffix);
            EXECUTE format('ALTER TABLE hook.attempt_%s SET (autovacuum_vacuum_insert_threshold = -1)', suffix);
            EXECUTE format('ALTER TABLE hook.finished_%s SET (autovacuum_vacuum_insert_threshold = -1)', suffix);
        END IF;
    END LOOP;
END
$$;

-- Serve every look-up by id (queue/jobs.rs), and the join of the dequeue (queue/dequeue.rs).
CREATE UNIQUE INDEX job_id ON hook.job (shard, job_id, bucket);
CREATE UNIQUE INDEX attempt_id ON hook.attempt (shard, job_id, fence, bucket);
CREATE UNIQUE INDEX finished_id ON hook.finished (shard, job_id, bucket);
-- Serves the lists of jobs that did not complete (queue/jobs.rs).
CREATE INDEX finished_target_uncompleted ON hook.finished (shard, status, target_id, job_id) WHERE status <> 2;
-- Serves the purge of the kept bucket (queue/purge.rs).
CREATE INDEX finished_kept_age ON hook.finished_kept (shard, status, finished_at);

-- Jobs that wait for an attempt, one narrow row each.
CREATE TABLE hook.ready (
    target_id bigint NOT NULL,
    run_at hook.instant NOT NULL,
    job_id uuid NOT NULL,
    fence bigint NOT NULL DEFAULT 0 CHECK (fence >= 0),
    attempt integer NOT NULL DEFAULT 0 CHECK (attempt BETWEEN 0 AND 1000000),
    shard smallint NOT NULL,
    tier smallint NOT NULL CHECK (tier BETWEEN 0 AND 2),
    bucket smallint NOT NULL,
    expires_at hook.instant,
    timeout_ms integer,
    PRIMARY KEY (shard, job_id)
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_insert_scale_factor = 1, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.5, vacuum_truncate = false
);
-- Serves the dequeue and the sweep: the jobs of one target and tier in the order they are due.
CREATE INDEX ready_head ON hook.ready (shard, tier, target_id, run_at, job_id);
-- Serves the count of retryable failures per target (queue/targets.rs).
CREATE INDEX ready_retried ON hook.ready (shard, target_id) WHERE attempt > 0;
-- Serves the end of jobs whose time to live is over (queue/reap.rs).
CREATE INDEX ready_expiry ON hook.ready (shard, expires_at) WHERE expires_at IS NOT NULL;

-- Jobs that a worker may attempt until `leased_until`; `fence` proves whose lease it is. No index:
-- the table holds as many rows as there are slots in all workers, a finish addresses its row by
-- ctid (checked against job and fence), and the reaper reads the whole table.
CREATE TABLE hook.lease (
    target_id bigint NOT NULL,
    run_at hook.instant NOT NULL,
    job_id uuid NOT NULL,
    fence bigint NOT NULL,
    attempt integer NOT NULL,
    shard smallint NOT NULL,
    tier smallint NOT NULL,
    bucket smallint NOT NULL,
    leased_at hook.instant NOT NULL,
    leased_until hook.instant NOT NULL,
    expires_at hook.instant,
    timeout_ms integer,
    worker text NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.5, vacuum_truncate = false
);

-- Requests that must not be stored twice, with the answer that the first one got.
CREATE TABLE hook.idempotency (
    key text NOT NULL CHECK (key <> '' AND length(key) <= 255),
    request_sha256 bytea NOT NULL,
    job_id uuid NOT NULL,
    expires_at hook.instant NOT NULL,
    shard smallint NOT NULL,
    tier smallint NOT NULL,
    target text NOT NULL,
    PRIMARY KEY (shard, key)
);
-- Serves the purge of old keys (queue/purge.rs).
CREATE INDEX idempotency_age ON hook.idempotency (shard, expires_at);

-- Signing secrets, sealed with HOOK_SECRET_KEY.
CREATE TABLE hook.secret (
    name text PRIMARY KEY CHECK (name <> '' AND length(name) <= 255),
    kind text NOT NULL CHECK (kind IN ('hmac', 'ed25519')),
    sealed bytea NOT NULL,
    last_four text NOT NULL,
    created_at hook.instant NOT NULL DEFAULT now()
);

-- Postgres takes a small table for one that is quicker to read from end to end than to look into,
-- and a statement planned then keeps that plan while the table grows. Pages that are there from
-- the beginning, and stay (vacuum_truncate), keep the plans of dequeue and finish at their rows.
INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, bucket)
SELECT -1, 0, n, now(), gen_random_uuid(), 0 FROM generate_series(1, 8000) AS n;
INSERT INTO hook.lease (shard, tier, target_id, run_at, job_id, fence, attempt, bucket, leased_at, leased_until, worker)
SELECT -1, 0, n, now(), gen_random_uuid(), 1, 1, 0, now(), now(), '' FROM generate_series(1, 6000) AS n;
DELETE FROM hook.ready;
DELETE FROM hook.lease;
