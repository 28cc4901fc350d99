DELETE FROM bench.job WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM bench.job
    WHERE shard = 0 AND status >= 2 AND finished_at < now() - interval '1 second'
    ORDER BY finished_at LIMIT :batch::integer FOR UPDATE SKIP LOCKED));
