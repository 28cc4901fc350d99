SELECT count(*) FROM hook.ready WHERE worker IS NULL;
