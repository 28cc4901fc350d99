-- Which workers live, so that each can work out its part of a limit that holds for all of them.
-- Locks: creates a new object only, so nothing that runs is ever waited for.

-- One row per worker process, touched by that process alone, about once a second; rows of
-- processes that are gone are deleted by the others. `serves` has a bit per queue (1 primary,
-- 2 degraded). No index beside the key: the table is as long as there are workers.
CREATE TABLE hook.worker (
    worker_id bigint NOT NULL,
    seen_at hook.instant NOT NULL,
    shard smallint NOT NULL,
    serves smallint NOT NULL CHECK (serves BETWEEN 1 AND 3),
    PRIMARY KEY (shard, worker_id)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
