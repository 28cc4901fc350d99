-- C with `finished` and `attempt` as plain tables that are purged by DELETE; only `job` is a ring.
DROP TABLE hook.finished;
DROP TABLE hook.attempt;
CREATE TABLE hook.finished (
    job_id uuid NOT NULL,
    target_id bigint NOT NULL,
    finished_at timestamptz NOT NULL,
    fence bigint NOT NULL,
    attempt integer NOT NULL,
    shard smallint NOT NULL,
    bucket smallint NOT NULL,
    tier smallint NOT NULL,
    status smallint NOT NULL,
    outcome smallint,
    error_kind smallint,
    response_status smallint,
    duration_ms integer,
    started_at timestamptz,
    worker text,
    response_excerpt bytea,
    PRIMARY KEY (shard, job_id)
);
CREATE INDEX finished_age ON hook.finished (shard, status, finished_at);
CREATE OR REPLACE FUNCTION bench.turn_ring() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    was smallint := hook.open_bucket(0::smallint);
    next smallint := (was + 1) % 8;
BEGIN
    IF EXISTS (SELECT FROM hook.ready WHERE bucket = next)
       OR EXISTS (SELECT FROM hook.lease WHERE bucket = next) THEN
        RETURN 'busy';
    END IF;
    SET LOCAL lock_timeout = '200ms';
    EXECUTE format('TRUNCATE hook.job_%s', next);
    UPDATE hook.bucket SET closed_at = now() WHERE shard = 0 AND bucket = was;
    UPDATE hook.bucket SET opened_at = now(), closed_at = NULL WHERE shard = 0 AND bucket = next;
    RETURN 'turned';
EXCEPTION WHEN lock_not_available THEN
    RETURN 'locked';
END
$$;
