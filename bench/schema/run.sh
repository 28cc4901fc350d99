#!/usr/bin/env bash
# Measures the table layouts that docs/adr/0001 chose between. Prints one table per question.
#
# Settings (environment): PARTS ("wal cycle pin who"), CANDIDATES (of the WAL part),
# CYCLE_CANDIDATES, PIN_CANDIDATES, SECONDS_EACH (throughput run), ROUNDS, PIN_SECONDS, WHO_SECONDS,
# JOBS (WAL run), BACKLOG, CLIENTS, TARGETS, BODY_BYTES, PG_BIN, PG_USER (when root), KEEP (leave the
# cluster's files). The defaults end within 10 minutes, also on two busy cores.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/lib.sh"
. "$HERE/who.sh"

PARTS=${PARTS:-wal cycle pin who}
CANDIDATES=${CANDIDATES:-a a-fifo b c c-nopk c-keyed c-join c-flat c-lean c-update c-hot}
CYCLE_CANDIDATES=${CYCLE_CANDIDATES:-a a-fifo b c c-lean c-update c-hot}
PIN_CANDIDATES=${PIN_CANDIDATES:-a c}
SECONDS_EACH=${SECONDS_EACH:-2}
ROUNDS=${ROUNDS:-3}
PIN_SECONDS=${PIN_SECONDS:-60}
JOBS=${JOBS:-4000}
BACKLOG=${BACKLOG:-5000}
CLIENTS=${CLIENTS:-4}
TARGETS=${TARGETS:-1000}
BODY_BYTES=${BODY_BYTES:-1024}

# WAL of each phase of JOBS jobs, one client, vacuum counted with the purge; and buffers per claim.
measure_wal() {
    local name=$1 db="wal-$1" marks=() script n claims purge
    create_candidate "$db" "$name"
    # Extends the tables once, so that what is measured is not the first page of everything.
    fill "$db" "$name" 100
    sql "$db" -c "CHECKPOINT"
    lsn() { marks+=("$(sql "$db" -c 'SELECT pg_current_wal_insert_lsn()')"); }
    lsn
    fill "$db" "$name" $((JOBS - 100))
    lsn
    # Claims keep what they got in a table outside the candidate, so that finishing is a phase of its own.
    sql "$db" -c "CREATE UNLOGGED TABLE bench.claimed (ids text, fences text, tids text)"
    claims="$PG_DIR/claims.sql"
    { sed '$ s/;$/ \\gset/' "$(file_of "$name" claim.sql)"
      echo "INSERT INTO bench.claimed SELECT :ids::text, :fences::text, :tids::text WHERE :ids::text <> '{}';"; } >"$claims"
    script="$PG_DIR/finish.sql"
    { echo "DELETE FROM bench.claimed WHERE ctid = (SELECT ctid FROM bench.claimed LIMIT 1) RETURNING ids, fences, tids \\gset"
      cat "$(file_of "$name" finish.sql)"; } >"$script"
    measure_buffers "$db" "$name" >"$PG_DIR/buffers.$name"
    vacuum "$db"
    lsn
    "$PG_BIN/pgbench" -n -M prepared -c 1 -t $((JOBS / 50)) -f "$claims" -D low_s=1000000 -D batch=50 -D targets="$TARGETS" "$db" >/dev/null 2>&1
    lsn
    n=$(sql "$db" -c "SELECT coalesce(sum(cardinality(ids::uuid[])), 0) FROM bench.claimed")
    claims=$(sql "$db" -c "SELECT count(*) FROM bench.claimed")
    "$PG_BIN/pgbench" -n -M prepared -c 1 -t "$claims" -f "$script" "$db" >/dev/null 2>&1
    lsn
    sleep 1.1
    purge=$(file_of "$name" purge.sql)
    if [ -n "$purge" ]; then
        "$PG_BIN/pgbench" -n -M prepared -c 1 -t $((n / 100 + 1)) -f "$purge" -D batch=100 "$db" >/dev/null 2>&1
    fi
    if has_ring "$name"; then sql "$db" -c "TRUNCATE hook.job_0$(ring_extra "$name")"; fi
    vacuum "$db"
    lsn
    sql "$db" -c "SELECT concat_ws(' ', '$name', e::int, c::int, f::int, p::int, (e + c + f + p)::int, (e + c + f + p)::int - $BODY_BYTES)
        FROM (SELECT ('${marks[1]}'::pg_lsn - '${marks[0]}') / ($JOBS - 100.0) AS e, ('${marks[3]}'::pg_lsn - '${marks[2]}') / $n.0 AS c,
                     ('${marks[4]}'::pg_lsn - '${marks[3]}') / $n.0 AS f, ('${marks[5]}'::pg_lsn - '${marks[4]}') / $n.0 AS p) AS t" |
        while read -r line; do echo "$line $(cat "$PG_DIR/buffers.$name") $n"; done
    sql postgres -c "DROP DATABASE \"$db\""
}

# Vacuums what autovacuum would: the tables whose rows die one by one.
vacuum() {
    sql "$1" -c "SELECT format('VACUUM %I.%I;', schemaname, relname) FROM pg_stat_user_tables
        WHERE schemaname IN ('hook', 'bench') AND relname !~ '_([0-7]|kept)\$' AND relname <> 'claimed'" | sql "$1"
}

# Tables that a candidate truncates together with a bucket of `job`.
ring_extra() { case $1 in c-flat) ;; *) echo ", hook.attempt_0, hook.finished_0" ;; esac; }

# Buffers that one claim touches, divided by the jobs it got: the middle of 21 claims, rolled back.
measure_buffers() {
    local db=$1 name=$2 claim turn
    sql "$db" -c "ANALYZE"
    claim=$(sed "s/:low_s::float8/1000000::float8/g; s/:targets::integer/$TARGETS/g; \$ s/;\$//" "$(file_of "$name" claim.sql)" |
        sed 's/^SELECT coalesce(array_agg/SELECT count(*) AS jobs, coalesce(array_agg/')
    for turn in $(seq 21); do
        echo "BEGIN; EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, SUMMARY OFF) $claim; ROLLBACK;"
    done | sql "$db" | awk '
        # The first line of a plan is its top node, whose buffers include all the others.
        /^Aggregate/ { top = 1 }
        /Buffers:/ && top { top = 0; b = 0; for (i = 1; i <= NF; i++) if ($i ~ /^(hit|read)=/) { split($i, p, "="); b += p[2] }; printf "%.1f\n", b / 50 }' | median
}

# Jobs finished per second: cycles bring 100 jobs each; what the backlog lost or won is added.
measure_cycle() {
    local name=$1 db="cycle-$1" before after out from to cpu
    from=$(sql "$db" -c 'SELECT pg_current_wal_insert_lsn()')
    before=$(sql "$db" -f "$(file_of "$name" waiting.sql)")
    cpu=$(cluster_cpu_ms)
    start_ring "$name" "$db" "$SECONDS_EACH"
    out=$(cycles "$db" "$PG_DIR/cycle.$name" "$SECONDS_EACH")
    stop_ring
    # The backends are counted once they have ended.
    sleep 0.5
    cpu=$(($(cluster_cpu_ms) - cpu))
    after=$(sql "$db" -f "$(file_of "$name" waiting.sql)")
    to=$(sql "$db" -c "SELECT pg_current_wal_insert_lsn() - '$from'")
    echo "$out" | awk -v before="$before" -v after="$after" -v s="$SECONDS_EACH" -v wal="$to" -v cpu="$cpu" '
        /number of transactions actually processed/ { n = $NF } /ERROR|FATAL/ { print > "/dev/stderr" }
        END { jobs = 100 * n + before - after; printf "%d %d %.1f\n", jobs / s, wal / jobs, 1000 * cpu / jobs }'
}

# Throughput while a transaction elsewhere pins the horizon: first and last ten seconds.
measure_pinned() {
    local name=$1 low=$2 db="pin-$1" out pin
    create_candidate "$db" "$name"
    cycle_script "$name" "$low" >"$PG_DIR/pin.$name"
    fill "$db" "$name" "$BACKLOG"
    cycles "$db" "$PG_DIR/pin.$name" 3 >/dev/null
    { echo "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current();"; sleep $((PIN_SECONDS + 1)); } | sql "$db" >/dev/null &
    pin=$!
    start_ring "$name" "$db" "$PIN_SECONDS"
    out=$(cycles "$db" "$PG_DIR/pin.$name" "$PIN_SECONDS" -P 10)
    stop_ring
    wait "$pin" || true
    echo "$out" | awk -v name="$name" -v low="$low" '/^progress:/ { t[++n] = $4 }
        END { printf "%s %s %d %d %.2f\n", name, (low > 1000 ? "none" : low "s"), 100 * t[1], 100 * t[n], t[n] / t[1] }'
    sql postgres -c "DROP DATABASE \"$db\""
}

show() { column -t -s ' '; }

start_postgres
echo "# $(sql postgres -c 'SHOW server_version'), $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg), commit $(git -C "$HERE" rev-parse --short HEAD 2>/dev/null || echo -)"

if [[ " $PARTS " == *" wal "* ]]; then
    echo; echo "## WAL bytes per job and buffers per claimed job ($JOBS jobs, $TARGETS targets, $BODY_BYTES B bodies)"
    sql postgres -c "ALTER SYSTEM SET autovacuum = off" -c "SELECT pg_reload_conf()" >/dev/null
    { echo "candidate enqueue claim finish purge total over_body buffers/job jobs"
      for name in $CANDIDATES; do measure_wal "$name"; done; } | show
    sql postgres -c "ALTER SYSTEM RESET autovacuum" -c "SELECT pg_reload_conf()" >/dev/null
fi

if [[ " $PARTS " == *" cycle "* ]]; then
    echo; echo "## Jobs per second, whole cycle, $CLIENTS clients, $ROUNDS rounds of $SECONDS_EACH s taken in turn"
    for name in $CYCLE_CANDIDATES; do
        create_candidate "cycle-$name" "$name"
        cycle_script "$name" 1000000 >"$PG_DIR/cycle.$name"
        fill "cycle-$name" "$name" "$BACKLOG"
    done
    for round in $(seq "$ROUNDS"); do
        for name in $CYCLE_CANDIDATES; do measure_cycle "$name" >>"$PG_DIR/rates.$name"; done
    done
    { echo "candidate jobs/s best rounds WAL/job CPU_us/job least"
      for name in $CYCLE_CANDIDATES; do
          column_of() { cut -d' ' -f"$1" "$PG_DIR/rates.$name"; }
          echo "$name $(column_of 1 | median) $(column_of 1 | sort -n | tail -1) $(column_of 1 | paste -sd/)" \
              "$(column_of 2 | median) $(column_of 3 | median) $(column_of 3 | sort -n | head -1)"
      done; } | show
    for name in $CYCLE_CANDIDATES; do sql postgres -c "DROP DATABASE \"cycle-$name\""; done
fi

if [[ " $PARTS " == *" pin "* ]]; then
    echo; echo "## Jobs per second with a transaction pinned open for $PIN_SECONDS s: first and last ten seconds"
    { echo "candidate low_mark start end ratio"
      for name in $PIN_CANDIDATES; do
          measure_pinned "$name" 1000000
          measure_pinned "$name" 5
      done; } | show
fi

if [[ " $PARTS " == *" who "* ]]; then
    who_has_work
fi
