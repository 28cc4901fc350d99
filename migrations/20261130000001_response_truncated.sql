-- Whether the body of an answer went on behind its excerpt.
-- Locks: each table is locked against everything for a moment; no row is rewritten.

-- NULL: the attempt was recorded by a worker that did not know of this.
ALTER TABLE hook.attempt ADD COLUMN response_truncated boolean;
ALTER TABLE hook.finished ADD COLUMN response_truncated boolean;
