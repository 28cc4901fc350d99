# Choice 3 of docs/adr/0001: how workers learn which targets have work. Sourced by run.sh.
#
# First what keeping a table of active targets, or a notification in each insert, costs the
# producer; then what the sweep that needs neither costs the worker.

WHO_SECONDS=${WHO_SECONDS:-2}

# The project's sweep (hook-common, queue/sweep.rs) from a random place, 256 heads at most.
sweep_sql() {
    cat <<'SQL'
WITH RECURSIVE head (tier, target_id, run_at) AS (
    (SELECT tier, target_id, run_at FROM hook.ready
     WHERE shard = 0 AND (tier, target_id) > (0::smallint, :after::bigint) AND tier <= 2
     ORDER BY tier, target_id, run_at LIMIT 1)
    UNION ALL
    SELECT next.tier, next.target_id, next.run_at FROM head CROSS JOIN LATERAL (
        SELECT tier, target_id, run_at FROM hook.ready
        WHERE shard = 0 AND (ready.tier, ready.target_id) > (head.tier, head.target_id) AND ready.tier <= 2
        ORDER BY tier, target_id, run_at LIMIT 1) AS next
)
SELECT count(*) FROM (SELECT * FROM head LIMIT 256) AS chunk;
SQL
}

# One line: producer's way, targets, jobs per statement, then jobs/s and WAL per job.
measure_enqueue() {
    local way=$1 targets=$2 batch=$3 script="$PG_DIR/enqueue.$1" from to out
    {
        if [ "$way" != nothing ]; then
            # The same statement with one more step; the rows of `new` are what was stored.
            sed 's/^INSERT INTO hook.ready/, ready AS (INSERT INTO hook.ready/; s/bucket FROM new, bucket;$/bucket FROM new, bucket)/' "$HERE/c/enqueue.sql"
        fi
        case $way in
            nothing) cat "$HERE/c/enqueue.sql" ;;
            table) echo "INSERT INTO bench.active (shard, target_id) SELECT DISTINCT 0, target_id FROM new ORDER BY 2 ON CONFLICT DO NOTHING;" ;;
            notify) echo "SELECT pg_notify('hook_ready', left(string_agg(target_id::text, ','), 7000)) FROM new;" ;;
        esac
    } >"$script"
    sql who -c "TRUNCATE hook.ready, hook.job" -c "CHECKPOINT"
    from=$(sql who -c 'SELECT pg_current_wal_insert_lsn()')
    out=$("$PG_BIN/pgbench" -n -M prepared -c "$CLIENTS" -j 2 -T "$WHO_SECONDS" -f "$script" \
        -D batch="$batch" -D targets="$targets" -D body_bytes="$BODY_BYTES" who 2>&1) || { echo "$out" >&2; return 1; }
    to=$(sql who -c "SELECT pg_current_wal_insert_lsn() - '$from'")
    echo "$out" | awk -v way="$way" -v t="$targets" -v b="$batch" -v s="$WHO_SECONDS" -v wal="$to" '
        /actually processed/ { n = $NF * b } END { printf "%s %d %d %d %d\n", way, t, b, n / s, wal / n }'
}

# One line: what `ready` holds, then latency and buffers of one chunk and the time of a whole round.
measure_sweep() {
    local label=$1 targets=$2 out buffers
    {
        if [ "$targets" -le 256 ]; then
            echo '\set after -9223372036854775807'
        else
            echo '\set after random(-2000000000, 2000000000) * 4000000000'
        fi
        sweep_sql
    } >"$PG_DIR/sweep.sql"
    out=$("$PG_BIN/pgbench" -n -M prepared -c 1 -T 2 -f "$PG_DIR/sweep.sql" who 2>&1) || { echo "$out" >&2; return 1; }
    buffers=$(sql who -c "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) $(sweep_sql | sed 's/:after::bigint/-9223372036854775807/')" |
        awk '/Buffers:/ && !n { for (i = 1; i <= NF; i++) if ($i ~ /^(hit|read)=/) { split($i, p, "="); n += p[2] } } END { print n }')
    echo "$out" | awk -v label="$label" -v t="$targets" -v b="$buffers" '
        /latency average/ { ms = $4 } END { c = int((t + 255) / 256); printf "%s %.2f %d %d %.0f\n", label, ms, b, c, c * ms }'
}

# Fills `ready` alone: COUNT jobs over TARGETS targets, due in DELAY.
fill_ready() {
    sql who -c "INSERT INTO hook.ready (shard, tier, target_id, run_at, job_id, bucket)
        SELECT 0, 0, bench.target_id(n % $2), now() + interval '$3', gen_random_uuid(), 0 FROM generate_series(1, $1) AS n"
}

who_has_work() {
    local targets batch way
    create_candidate who c
    sql who -c "CREATE TABLE bench.active (shard smallint, target_id bigint, PRIMARY KEY (shard, target_id))"
    echo; echo "## Choice 3, producer: enqueue only, $CLIENTS clients, $WHO_SECONDS s each, active targets already known"
    { echo "way targets batch jobs/s WAL/job"
      for targets in 100 100000; do
          sql who -c "INSERT INTO bench.active SELECT 0, bench.target_id(n) FROM generate_series(0, $targets - 1) AS n ON CONFLICT DO NOTHING"
          for way in nothing table notify; do measure_enqueue "$way" "$targets" 100; done
      done
      for way in nothing table notify; do measure_enqueue "$way" 1000 1; done; } | show

    echo; echo "## Choice 3, worker: one sweep chunk of 256 heads"
    sql who -c "TRUNCATE hook.ready, hook.job"
    { echo "ready_holds chunk_ms chunk_buffers chunks round_ms"
      measure_sweep empty 1
      fill_ready 100000 100 '-1 second'; measure_sweep "100k_due/100_targets" 100
      sql who -c "TRUNCATE hook.ready"
      fill_ready 100000 1000 '-1 second'; measure_sweep "100k_due/1k_targets" 1000
      sql who -c "TRUNCATE hook.ready"
      fill_ready 100000 100000 '-1 second'; measure_sweep "100k_due/100k_targets" 100000
      fill_ready 1000000 100000 '1 day'; measure_sweep "+1M_later/100k_targets" 100000
      # The due ones go while a snapshot is held: their index entries stay and are stepped over.
      { echo "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current();"; sleep 12; } | sql who >/dev/null &
      sleep 0.5
      sql who -c "DELETE FROM hook.ready WHERE run_at < now()"
      measure_sweep "+the_due_dead,_pinned" 100000
      wait; } | show
    sql postgres -c "DROP DATABASE who"
}
