-- C without any CHECK constraint, neither of the tables nor of the domains: what they cost.
DO $$
DECLARE
    c record;
BEGIN
    FOR c IN SELECT conname, conrelid, contypid FROM pg_constraint
             WHERE contype = 'c' AND connamespace = 'hook'::regnamespace AND coninhcount = 0 LOOP
        IF c.contypid <> 0 THEN
            EXECUTE format('ALTER DOMAIN %s DROP CONSTRAINT %I', c.contypid::regtype, c.conname);
        ELSE
            EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', c.conrelid::regclass, c.conname);
        END IF;
    END LOOP;
END
$$;
