-- hook.enqueue_many refuses a signing that is not understood; it used to send such a job unsigned.
-- Locks: replaces a function only.

CREATE OR REPLACE FUNCTION hook.enqueue_many(jobs json) RETURNS SETOF text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known CONSTANT text[] := ARRAY['url', 'payload', 'body', 'body_base64', 'headers', 'method', 'metadata',
        'target', 'scheduled_at', 'expires_at', 'max_attempts', 'timeout_ms', 'idempotency_key', 'signing'];
    job json;
    place integer := -1;
    unknown text;
    the_body bytea;
    the_headers jsonb;
    signing_is_good boolean;
BEGIN
    IF jobs IS NULL OR json_typeof(jobs) <> 'array' THEN
        RAISE EXCEPTION 'hook.enqueue_many: jobs must be a JSON array' USING ERRCODE = '22023';
    END IF;
    FOR job IN SELECT value FROM json_array_elements(jobs) LOOP
        place := place + 1;
        IF json_typeof(job) <> 'object' THEN
            RAISE EXCEPTION 'hook.enqueue_many: must be an object' USING ERRCODE = '22023';
        END IF;
        SELECT name INTO unknown FROM json_object_keys(job) AS name WHERE name <> ALL (known) LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'hook.enqueue_many: there is no field %', quote_ident(left(unknown, 64))
                USING ERRCODE = '22023';
        ELSIF (job->'payload' IS NOT NULL)::int + (job->>'body' IS NOT NULL)::int
            + (job->>'body_base64' IS NOT NULL)::int > 1
        THEN
            RAISE EXCEPTION 'hook.enqueue_many: at most one of payload, body and body_base64' USING ERRCODE = '22023';
        END IF;
        -- A job that was to be signed is never sent unsigned.
        signing_is_good := CASE
            WHEN job->'signing' IS NULL OR json_typeof(job->'signing') = 'null' THEN true
            WHEN json_typeof(job->'signing') <> 'object' THEN false
            WHEN EXISTS (SELECT FROM json_object_keys(job->'signing') AS name WHERE name <> 'secrets') THEN false
            WHEN json_typeof(job->'signing'->'secrets') IS DISTINCT FROM 'array' THEN false
            WHEN json_array_length(job->'signing'->'secrets') = 0 THEN false
            ELSE NOT EXISTS (SELECT FROM json_array_elements(job->'signing'->'secrets') AS e
                WHERE json_typeof(e) <> 'string') END;
        IF NOT signing_is_good THEN
            RAISE EXCEPTION 'hook.enqueue_many: signing must be {"secrets": ["name", …]}' USING ERRCODE = '22023';
        END IF;
        the_body := CASE WHEN job->'payload' IS NOT NULL THEN convert_to((job->'payload')::text, 'UTF8')
            WHEN job->>'body' IS NOT NULL THEN convert_to(job->>'body', 'UTF8')
            ELSE decode(job->>'body_base64', 'base64') END;
        the_headers := coalesce((job->'headers')::jsonb, '{}');
        -- As over HTTP: a body of text is JSON unless a header says otherwise.
        IF (job->'payload' IS NOT NULL OR job->>'body' IS NOT NULL) AND jsonb_typeof(the_headers) = 'object'
            AND NOT EXISTS (SELECT FROM jsonb_object_keys(the_headers) AS name WHERE lower(name) = 'content-type')
        THEN
            the_headers := the_headers || '{"content-type": "application/json"}';
        END IF;
        RETURN NEXT hook.enqueue(
            url => job->>'url',
            body => the_body,
            headers => the_headers,
            method => coalesce(job->>'method', 'POST'),
            metadata => coalesce((job->'metadata')::jsonb, '{}'),
            target => job->>'target',
            scheduled_at => coalesce((job->>'scheduled_at')::timestamptz, now()),
            expires_at => (job->>'expires_at')::timestamptz,
            max_attempts => (job->>'max_attempts')::integer,
            timeout_ms => (job->>'timeout_ms')::integer,
            idempotency_key => job->>'idempotency_key',
            signing => (SELECT array_agg(name) FROM json_array_elements_text(job->'signing'->'secrets') AS name));
    END LOOP;
EXCEPTION WHEN data_exception OR unique_violation THEN
    RAISE EXCEPTION '%', SQLERRM
        USING ERRCODE = SQLSTATE, DETAIL = format('It is job %s of the array, counted from 0.', place);
END
$$;
