-- What shows that a worker is dead, so that its jobs need not wait for the end of their leases.
-- Locks: hook.worker exclusively, for a moment; it holds a row per worker.

-- A worker keeps one session open from its start to its end and notes it here: the process that
-- serves it, when that began, and when the server began that it belongs to. A row without a
-- session, or with one of another server, never shows that anybody is dead.
ALTER TABLE hook.worker
    ADD COLUMN name text,
    ADD COLUMN started_at hook.instant,
    ADD COLUMN backend_pid integer,
    ADD COLUMN backend_start hook.instant,
    ADD COLUMN server_start hook.instant;
