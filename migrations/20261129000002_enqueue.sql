-- hook.enqueue: the transactional outbox. A job inserted here exists exactly if the caller's
-- transaction commits. Locks: creates functions only.
--
-- Only cheap checks are made; what needs the full URL and address rules is judged by the worker,
-- which ends such a job with `invalid_request` or `blocked_address`.

-- The destination key of a URL: its host in lower case, without user info, port and final dot.
CREATE FUNCTION hook.url_target(url text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT lower(regexp_replace(
        substring(url FROM '^[hH][tT][tT][pP][sS]?://(\[[0-9a-fA-F:.]*\]|[^][/?#:@\\]+)(?::[0-9]*)?(?:[/?#\\].*)?$'),
        '\.$', ''))
$$;

CREATE FUNCTION hook.enqueue(
    url text,
    body bytea DEFAULT NULL,
    headers jsonb DEFAULT '{}',
    method text DEFAULT 'POST',
    metadata jsonb DEFAULT '{}',
    target text DEFAULT NULL,
    scheduled_at timestamptz DEFAULT now(),
    expires_at timestamptz DEFAULT NULL,
    max_attempts integer DEFAULT NULL,
    timeout_ms integer DEFAULT NULL,
    idempotency_key text DEFAULT NULL,
    signing text[] DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    the_shard CONSTANT smallint := 0;
    at CONSTANT timestamptz := clock_timestamp();
    due CONSTANT timestamptz := greatest(coalesce(scheduled_at, at), at);
    method_code smallint;
    the_target text;
    the_id uuid;
    the_bucket CONSTANT smallint := hook.open_bucket(the_shard);
    the_digest bytea;
    seen hook.idempotency%ROWTYPE;
BEGIN
    IF url IS NULL OR url = '' THEN
        RAISE EXCEPTION 'hook.enqueue: url is required' USING ERRCODE = '22023';
    ELSIF octet_length(url) > 8192 THEN
        RAISE EXCEPTION 'hook.enqueue: url is longer than 8 KiB' USING ERRCODE = '22023';
    ELSIF url ~ '[\x01-\x20\x7f]' THEN
        RAISE EXCEPTION 'hook.enqueue: url has a control character or a space' USING ERRCODE = '22023';
    ELSIF url !~* '^https?://' THEN
        RAISE EXCEPTION 'hook.enqueue: url must be an absolute http or https URL' USING ERRCODE = '22023';
    ELSIF url ~ '^[^/]*//[^/?#]*@' THEN
        RAISE EXCEPTION 'hook.enqueue: url has user info; send it as an authorization header' USING ERRCODE = '22023';
    END IF;
    the_target := coalesce(target, hook.url_target(url));
    IF the_target IS NULL OR the_target = '' THEN
        RAISE EXCEPTION 'hook.enqueue: url has no host' USING ERRCODE = '22023';
    ELSIF length(the_target) > 255 OR the_target ~ '[\x01-\x1f\x7f-\x9f]' THEN
        RAISE EXCEPTION 'hook.enqueue: target must be 1 to 255 printable characters' USING ERRCODE = '22023';
    END IF;
    method_code := array_position(ARRAY['POST', 'PUT', 'PATCH', 'DELETE', 'GET'], upper(coalesce(method, 'POST'))) - 1;
    IF method_code IS NULL THEN
        RAISE EXCEPTION 'hook.enqueue: method must be POST, PUT, PATCH, DELETE or GET' USING ERRCODE = '22023';
    ELSIF jsonb_typeof(coalesce(headers, '{}')) <> 'object' THEN
        RAISE EXCEPTION 'hook.enqueue: headers must be a JSON object' USING ERRCODE = '22023';
    ELSIF EXISTS (SELECT FROM jsonb_each(coalesce(headers, '{}')) AS h WHERE jsonb_typeof(h.value) <> 'string') THEN
        RAISE EXCEPTION 'hook.enqueue: every header must be a string' USING ERRCODE = '22023';
    ELSIF jsonb_typeof(coalesce(metadata, '{}')) <> 'object' OR octet_length(metadata::text) > 16384 THEN
        RAISE EXCEPTION 'hook.enqueue: metadata must be a JSON object of at most 16 KiB' USING ERRCODE = '22023';
    ELSIF NOT isfinite(due) OR due > '9999-12-31T23:59:59.999999Z' THEN
        RAISE EXCEPTION 'hook.enqueue: scheduled_at must lie in the years up to 9999' USING ERRCODE = '22023';
    ELSIF expires_at IS NOT NULL AND (NOT isfinite(expires_at) OR expires_at > '9999-12-31T23:59:59.999999Z') THEN
        RAISE EXCEPTION 'hook.enqueue: expires_at must lie in the years up to 9999' USING ERRCODE = '22023';
    ELSIF expires_at < scheduled_at THEN
        RAISE EXCEPTION 'hook.enqueue: expires_at is before scheduled_at' USING ERRCODE = '22023';
    ELSIF max_attempts NOT BETWEEN 1 AND 100 THEN
        RAISE EXCEPTION 'hook.enqueue: max_attempts must be 1 to 100' USING ERRCODE = '22023';
    ELSIF timeout_ms NOT BETWEEN 1 AND 60000 THEN
        RAISE EXCEPTION 'hook.enqueue: timeout_ms must be 1 to 60000' USING ERRCODE = '22023';
    ELSIF idempotency_key IS NOT NULL AND (idempotency_key = '' OR length(idempotency_key) > 255
            OR idempotency_key ~ '[\x01-\x1f\x7f-\x9f]') THEN
        RAISE EXCEPTION 'hook.enqueue: idempotency_key must be 1 to 255 printable characters' USING ERRCODE = '22023';
    END IF;

    the_id := hook.new_job_id((extract(epoch FROM at) * 1000000)::bigint);
    IF idempotency_key IS NOT NULL THEN
        the_digest := sha256(convert_to(jsonb_build_array('sql', url, encode(body, 'hex'), headers, upper(method),
            metadata, target, expires_at, max_attempts, timeout_ms, signing)::text, 'UTF8'));
        LOOP
            INSERT INTO hook.idempotency AS i (shard, key, request_sha256, job_id, tier, target, expires_at)
            VALUES (the_shard, idempotency_key, the_digest, the_id, 0, the_target, at + interval '24 hours')
            ON CONFLICT (shard, key) DO UPDATE
                SET request_sha256 = excluded.request_sha256, job_id = excluded.job_id,
                    tier = excluded.tier, target = excluded.target, expires_at = excluded.expires_at
                WHERE i.expires_at <= at;
            EXIT WHEN FOUND;
            SELECT * INTO seen FROM hook.idempotency AS i WHERE i.shard = the_shard AND i.key = idempotency_key;
            IF FOUND AND seen.request_sha256 = the_digest THEN
                RETURN seen.job_id::text;
            ELSIF FOUND THEN
                RAISE EXCEPTION 'hook.enqueue: idempotency key was used for another request'
                    USING ERRCODE = '23505', HINT = 'idempotency_key_reused';
            END IF;
        END LOOP;
    END IF;

    -- No row in hook.target: two transactions that enqueue for the same new targets in opposite
    -- order would deadlock. The janitor adds what is missing.
    INSERT INTO hook.job (shard, bucket, job_id, created_at, scheduled_at, expires_at, target_id, target,
                          method, url, headers, metadata, max_attempts, timeout_ms, signing, body)
    VALUES (the_shard, the_bucket, the_id, at, nullif(due, at), expires_at, hook.target_id(the_target), the_target,
            method_code, url, nullif(headers, '{}'), nullif(metadata, '{}')::text, max_attempts, timeout_ms, signing, body);
    INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, bucket, expires_at, timeout_ms)
    VALUES (the_shard, 0, hook.target_id(the_target), due, the_id, the_bucket, expires_at, timeout_ms);
    -- Delivered by Postgres when the transaction commits.
    IF due <= at THEN
        PERFORM pg_notify('hook_ready', hook.target_id(the_target)::text);
    END IF;
    RETURN the_id::text;
END
$$;
