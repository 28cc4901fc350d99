# A private Postgres for the measurements, and the helpers that run.sh is written in.
#
# The cluster lives in a fresh directory, listens on a unix socket only, keeps fsync and
# synchronous_commit on, and is stopped and removed when the caller ends, however it ends.

PG_BIN=${PG_BIN:-/usr/lib/postgresql/15/bin}
PG_DIR=
RING=

# Postgres refuses to run as root, so that root runs it as another user.
as_pg() {
    if [ "$(id -u)" = 0 ]; then runuser -u "${PG_USER:-postgres}" -- "$@"; else "$@"; fi
}

start_postgres() {
    PG_DIR=$(mktemp -d "${TMPDIR:-/tmp}/hookschema.XXXXXX")
    chmod 755 "$PG_DIR"
    if [ "$(id -u)" = 0 ]; then chown "${PG_USER:-postgres}" "$PG_DIR"; fi
    trap stop_postgres EXIT
    as_pg "$PG_BIN/initdb" -D "$PG_DIR/data" -U postgres -A trust -E UTF8 --locale=C >"$PG_DIR/initdb.log"
    as_pg tee -a "$PG_DIR/data/postgresql.conf" >/dev/null <<CONF
listen_addresses = ''
unix_socket_directories = '$PG_DIR'
shared_buffers = 512MB
max_wal_size = 4GB
autovacuum_naptime = 1s
jit = off
CONF
    as_pg "$PG_BIN/pg_ctl" -D "$PG_DIR/data" -l "$PG_DIR/log" -w start >/dev/null
    export PGHOST=$PG_DIR PGUSER=postgres PGOPTIONS="-c client_min_messages=warning"
}

stop_postgres() {
    stop_ring
    if [ -n "$PG_DIR" ]; then
        as_pg "$PG_BIN/pg_ctl" -D "$PG_DIR/data" -m immediate -w stop >/dev/null 2>&1 || true
        if [ -z "${KEEP:-}" ]; then rm -rf "$PG_DIR"; fi
        PG_DIR=
    fi
}

# sql DATABASE [psql options]: statements from the options or from standard input.
sql() {
    local db=$1
    shift
    "$PG_BIN/psql" -X -q -A -t -v ON_ERROR_STOP=1 -d "$db" "$@"
}

# Processor time that the whole cluster has used, in milliseconds: the postmaster with the backends
# that ended, and its children that live.
cluster_cpu_ms() {
    local pid
    pid=$(head -1 "$PG_DIR/data/postmaster.pid")
    { awk '{ print $14 + $15 + $16 + $17 }' "/proc/$pid/stat"
      for pid in $(cat "/proc/$pid/task/$pid/children"); do
          sed 's/.*) /0 0 /' "/proc/$pid/stat" 2>/dev/null | awk '{ print $14 + $15 }' || true
      done; } | awk -v hz="$(getconf CLK_TCK)" '{ n += $1 } END { printf "%d", n * 1000 / hz }'
}

# The middle of the numbers on standard input.
median() { sort -n | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)]; else print "-" }'; }

# File NAME of a candidate; a variant such as c-lean or c-lean-key falls back on c-lean's files and
# then on those of c.
file_of() {
    local name=$1
    while [ ! -e "$HERE/$name/$2" ]; do
        case $name in *-*) name=${name%-*} ;; *) return 0 ;; esac
    done
    echo "$HERE/$name/$2"
}

# Makes the database of a candidate: the project's migrations, then what the candidate changes.
create_candidate() {
    local db=$1 name=$2
    sql postgres -c "CREATE DATABASE \"$db\""
    {
        echo "CREATE SCHEMA hook;"
        cat "$HERE"/../../migrations/*.sql "$HERE/common.sql"
        cat "$(file_of "$name" schema.sql)"
        # What a variant of a variant changes comes on top of what that one changes.
        case $name in *-*-*) cat "$HERE/${name%-*}/after.sql" ;; esac
        if [ -e "$HERE/$name/after.sql" ]; then cat "$HERE/$name/after.sql"; fi
    } | sql "$db" -1 >/dev/null
}

# The transaction that pgbench repeats: 100 jobs in, twice 50 claimed and finished, as many purged.
cycle_script() {
    local name=$1 low=$2 step file
    # One claim in 50 starts at the beginning, as workers do to find what lies behind the mark.
    echo "\\set low_s CASE WHEN random(1, 50) = 1 THEN 1000000 ELSE $low END"
    cat "$(file_of "$name" enqueue.sql)"
    for step in 1 2; do
        sed '$ s/;$/ \\gset/' "$(file_of "$name" claim.sql)"
        cat "$(file_of "$name" finish.sql)"
    done
    file=$(file_of "$name" purge.sql)
    if [ -n "$file" ]; then cat "$file"; fi
}

# cycles DATABASE SCRIPT SECONDS [more pgbench options]
cycles() {
    local db=$1 script=$2 seconds=$3
    shift 3
    "$PG_BIN/pgbench" -n -M prepared -c "$CLIENTS" -j 2 -T "$seconds" -f "$script" \
        -D batch=100 -D targets="$TARGETS" -D body_bytes="$BODY_BYTES" "$@" "$db" >"$PG_DIR/pgbench.out" 2>&1 ||
        { grep -E -A3 "error|ERROR" "$PG_DIR/pgbench.out" >&2; return 1; }
    cat "$PG_DIR/pgbench.out"
}

# Puts COUNT jobs in, a hundred at a time.
fill() {
    local db=$1 name=$2 count=$3
    "$PG_BIN/pgbench" -n -M prepared -c 1 -t $((count / 100)) -f "$(file_of "$name" enqueue.sql)" \
        -D batch=100 -D targets="$TARGETS" -D body_bytes="$BODY_BYTES" "$db" >/dev/null 2>&1
}

has_ring() { case $1 in c*) true ;; *) false ;; esac; }

# Turns the ring of a candidate that has one every two seconds, in the background, for SECONDS.
start_ring() {
    local name=$1 db=$2 seconds=$3
    if has_ring "$name"; then
        echo "SELECT bench.turn_ring();" >"$PG_DIR/ring.sql"
        "$PG_BIN/pgbench" -n -c 1 -R 0.5 -T "$seconds" -f "$PG_DIR/ring.sql" "$db" >"$PG_DIR/ring.$db" 2>&1 &
        RING=$!
    fi
}

stop_ring() {
    if [ -n "$RING" ]; then kill "$RING" 2>/dev/null || true; wait "$RING" 2>/dev/null || true; fi
    RING=
}
