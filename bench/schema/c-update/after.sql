-- Candidate D: C, but a lease is an update of the `ready` row that moves its due time to the end of
-- the lease. No reaper and no lease table; the head index gets one more entry per attempt.
DROP TABLE hook.lease;
DROP INDEX IF EXISTS hook.ready_retried;
ALTER TABLE hook.ready DROP CONSTRAINT IF EXISTS ready_pkey;
ALTER TABLE hook.ready ADD COLUMN worker text, ADD COLUMN leased_at timestamptz;
CREATE VIEW hook.lease AS SELECT * FROM hook.ready WHERE worker IS NOT NULL;
