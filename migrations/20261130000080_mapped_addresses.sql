-- An IPv6 address that stands for an IPv4 one leads to the same receiver, so it has the same target,
-- as for the API. Locks: replaces a function only.

CREATE OR REPLACE FUNCTION hook.url_target(url text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    host CONSTANT text := lower(regexp_replace(
        substring(url FROM '^[hH][tT][tT][pP][sS]?://(\[[0-9a-fA-F:.]*\]|[^][/?#:@\\]+)(?::[0-9]*)?(?:[/?#\\].*)?$'),
        '\.$', ''));
    address text;
BEGIN
    IF host ~ '^\[([0-9a-f:]+|::ffff:[0-9.]+)\]$' THEN
        address := host(trim(BOTH '[]' FROM host)::inet);
        RETURN COALESCE(substring(address FROM '^::ffff:([0-9]+\.[0-9]+\.[0-9]+\.[0-9]+)$'), address);
    END IF;
    RETURN host;
EXCEPTION WHEN invalid_text_representation THEN
    -- No address at all: the worker ends the job.
    RETURN host;
END
$$;
