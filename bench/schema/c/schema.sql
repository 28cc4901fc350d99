-- Candidate C is the project's own schema, which is loaded already: `ready`, `lease`, `finished`
-- and the ring of buckets. Here only the janitor's turn of the ring, as a stand-in.

-- Opens the next bucket after emptying it; does nothing while a job of that bucket is not final.
CREATE FUNCTION bench.turn_ring() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    was smallint := hook.open_bucket(0::smallint);
    next smallint := (was + 1) % 8;
BEGIN
    IF EXISTS (SELECT FROM hook.ready WHERE bucket = next)
       OR EXISTS (SELECT FROM hook.lease WHERE bucket = next) THEN
        RETURN 'busy';
    END IF;
    -- Nobody may queue up behind a TRUNCATE that waits for a reader.
    SET LOCAL lock_timeout = '200ms';
    EXECUTE format('TRUNCATE hook.job_%1$s, hook.attempt_%1$s, hook.finished_%1$s', next);
    UPDATE hook.bucket SET closed_at = now() WHERE shard = 0 AND bucket = was;
    UPDATE hook.bucket SET opened_at = now(), closed_at = NULL WHERE shard = 0 AND bucket = next;
    RETURN 'turned';
EXCEPTION WHEN lock_not_available THEN
    RETURN 'locked';
END
$$;
