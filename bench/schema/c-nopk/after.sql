-- C without a second index on `ready`: the head index, which holds the id, is the key.
ALTER TABLE hook.ready DROP CONSTRAINT IF EXISTS ready_pkey;
