-- The janitor's own objects: who leads, and how a bucket of the ring is emptied at one stroke.
-- Locks: creates new objects only, so nothing that runs is ever waited for.

-- Which janitor purges and measures. A row with a time instead of a session lock, so that it works
-- behind a transaction pooler; whoever finds the time passed takes over. It saves double work and
-- keeps gauges single; no job depends on there being only one leader.
CREATE TABLE hook.leader (
    shard smallint PRIMARY KEY,
    leader text NOT NULL,
    leased_until hook.instant NOT NULL
);

-- Waits until every transaction that has written to this bucket's jobs is over; false if that
-- takes longer than the lock timeout. The lock ends with the statement.
CREATE FUNCTION hook.flush_bucket(which smallint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET lock_timeout = '100ms' SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('LOCK TABLE hook.job_%s IN SHARE MODE', which);
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END
$$;

-- Empties a closed bucket. Answers `emptied`, `live` (a job in it is not final), `busy` (somebody
-- uses its tables), or `gone` (another janitor has it, or it is no longer the bucket that was
-- opened at `opened`).
--
-- Why no live job can be lost:
-- 1. The SHARE lock on job_N waits for every transaction that has inserted a job there, and lets
--    no other insert one. A statement that read this bucket's number while it was open, and was
--    held up since, waits here; it then finds an empty partition, and its job is stored as usual.
-- 2. The look at ready and lease is one statement, so it sees each job in exactly one state,
--    whatever moves meanwhile. It begins after the lock was granted and, at READ COMMITTED, with
--    a snapshot of its own: all that 1 waited for is seen.
-- 3. A live job of this bucket comes from an insert (held off by 1) or from another state of the
--    same live job (there is none, by 2); a retry by hand moves its job to the kept bucket. So
--    what 2 found stays true until this transaction ends.
-- Readers are kept out only after the look, for the time of the TRUNCATE itself. That lock is
-- asked for without queueing, since all traffic would queue behind it; `patient` adds one request
-- that does queue, for as long as the lock timeout, where traffic never leaves a gap.
-- Which finished jobs may go is for the caller to have settled (queue/purge.rs).
CREATE FUNCTION hook.truncate_bucket(of_shard smallint, which smallint, opened timestamptz, patient boolean)
RETURNS text
LANGUAGE plpgsql VOLATILE SET lock_timeout = '100ms' SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tables CONSTANT text := format('hook.finished_%1$s, hook.job_%1$s, hook.attempt_%1$s', which);
    tries integer := 0;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'hook.truncate_bucket: the transaction must be READ COMMITTED' USING ERRCODE = '25001';
    END IF;
    PERFORM FROM hook.bucket
    WHERE shard = of_shard AND bucket = which AND opened_at = opened AND closed_at IS NOT NULL
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 'gone';
    END IF;

    BEGIN
        -- In the order in which a retry by hand takes them, so that nobody holds one and waits for
        -- the other.
        EXECUTE format('LOCK TABLE hook.finished_%1$s, hook.job_%1$s IN SHARE MODE', which);
    EXCEPTION WHEN lock_not_available THEN
        RETURN 'busy';
    END;
    -- Of every shard: the tables are shared by all of them.
    IF EXISTS (SELECT FROM hook.ready WHERE bucket = which)
        OR EXISTS (SELECT FROM hook.lease WHERE bucket = which)
    THEN
        RETURN 'live';
    END IF;

    LOOP
        BEGIN
            IF tries < 20 THEN
                EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT', tables);
            ELSIF patient THEN
                EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', tables);
            ELSE
                RETURN 'busy';
            END IF;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            IF tries >= 20 THEN
                RETURN 'busy';
            END IF;
            tries := tries + 1;
            PERFORM pg_sleep(0.005);
        END;
    END LOOP;
    EXECUTE format('TRUNCATE %s', tables);
    UPDATE hook.bucket SET opened_at = NULL, closed_at = NULL WHERE shard = of_shard AND bucket = which;
    RETURN 'emptied';
END
$$;
