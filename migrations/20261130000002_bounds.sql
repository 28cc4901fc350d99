-- Bounds on what can be written into hook.ready by hand: a row at the end of a number's range, or
-- in a bucket that does not exist, would fail every dequeue or finish that meets it, and with it
-- the jobs beside it.
-- Locks: hook.ready is locked for a moment; NOT VALID, so no row is read.
ALTER TABLE hook.ready ADD CONSTRAINT ready_can_be_leased CHECK (
    fence < 4611686018427387904 AND attempt < 1000000 AND bucket BETWEEN -1 AND 7
    AND timeout_ms BETWEEN 1 AND 60000) NOT VALID;
