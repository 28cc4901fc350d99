-- What all candidates share: made-up targets, the job every one of them stores, and the low-water
-- mark. Loaded after the project's own migrations.
CREATE SCHEMA bench;

-- The id of the n-th made-up target, spread over the whole range as the real ones are.
CREATE FUNCTION bench.target_id(n integer) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT hashint8extended(n, 0) $$;

-- A UUIDv7 for a time in microseconds, in a form that Postgres inlines.
CREATE FUNCTION bench.new_id(us bigint) RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT encode(overlay(uuid_send(gen_random_uuid())
        PLACING int8send(((us / 1000) << 16) | 28672 | (us % 1000 * 4096 / 1000)) FROM 1 FOR 8), 'hex')::uuid
$$;

-- `rows` new jobs over `targets` targets; every candidate stores exactly these columns.
CREATE FUNCTION bench.new_jobs(rows integer, targets integer, body_bytes integer)
RETURNS TABLE (job_id uuid, target_id bigint, target text, url text, body bytea)
LANGUAGE sql VOLATILE AS $$
    SELECT bench.new_id(us + g), bench.target_id(n), 'host' || n || '.example.com',
           'https://host' || n || '.example.com/hooks/42',
           convert_to(repeat('0123456789abcdef', body_bytes / 16), 'UTF8')
    FROM (SELECT g, floor(random() * targets)::integer AS n,
                 (date_part('epoch', now()) * 1000000)::bigint AS us
          FROM generate_series(1, rows) AS g OFFSET 0) AS t
$$;

-- The heads that a worker would send: `heads` targets, up to 4 jobs each.
CREATE FUNCTION bench.heads(heads integer, targets integer) RETURNS TABLE (target_id bigint)
LANGUAGE sql VOLATILE AS $$
    SELECT bench.target_id(floor(random() * targets)::integer) FROM generate_series(1, heads)
$$;
