-- What people changed through the API. Locks: creates a new object only.

-- One row per change that was asked for, written before the change is made, so that no change can
-- be without its row. The id begins with the time, as that of a job does.
CREATE TABLE hook.audit (
    audit_id uuid NOT NULL,
    at hook.instant NOT NULL,
    shard smallint NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    -- What was asked for; never a secret.
    detail jsonb NOT NULL,
    -- The beginning of the token's digest, and where the request came from.
    token text,
    remote text NOT NULL,
    PRIMARY KEY (shard, audit_id)
);
