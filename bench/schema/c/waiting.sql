SELECT count(*) FROM hook.ready;
