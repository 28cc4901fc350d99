-- The target of a URL with an IPv6 address is the address as the API writes it, without brackets, so
-- that a destination has one key however its jobs are enqueued. Locks: replaces a function only.

CREATE OR REPLACE FUNCTION hook.url_target(url text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    host CONSTANT text := lower(regexp_replace(
        substring(url FROM '^[hH][tT][tT][pP][sS]?://(\[[0-9a-fA-F:.]*\]|[^][/?#:@\\]+)(?::[0-9]*)?(?:[/?#\\].*)?$'),
        '\.$', ''));
BEGIN
    IF host ~ '^\[[0-9a-f:]+\]$' THEN
        RETURN host(trim(BOTH '[]' FROM host)::inet);
    END IF;
    RETURN host;
EXCEPTION WHEN invalid_text_representation THEN
    -- No address at all: the worker ends the job.
    RETURN host;
END
$$;
