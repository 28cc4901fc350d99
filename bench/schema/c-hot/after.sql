-- Candidate E: C, but a lease is a heap-only update of the `ready` row: the columns that change
-- are in no index, so the head index keeps its entry and claims step over leased rows.
DROP TABLE hook.lease;
DROP INDEX IF EXISTS hook.ready_retried;
ALTER TABLE hook.ready DROP CONSTRAINT IF EXISTS ready_pkey;
ALTER TABLE hook.ready ADD COLUMN worker text, ADD COLUMN leased_until timestamptz;
ALTER TABLE hook.ready SET (fillfactor = 45);
CREATE VIEW hook.lease AS SELECT * FROM hook.ready WHERE worker IS NOT NULL;
