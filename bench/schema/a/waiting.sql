SELECT count(*) FROM bench.job WHERE status = 0;
