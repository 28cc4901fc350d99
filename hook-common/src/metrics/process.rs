//! What every process exports: health, loops, gates and its view of Postgres.

use super::{Metric, Unit};

/// 1, with the version that runs.
pub const BUILD_INFO: Metric = Metric::gauge_of(
    "hook_build_info",
    &["binary", "version"],
    "Always 1; the labels say which program and version runs.",
);
/// Whether `/readyz` says yes.
pub const READY: Metric = Metric::gauge_of(
    "hook_ready",
    &["binary"],
    "1 while `/readyz` answers 200, else 0.",
);
/// Whether the process drains.
pub const DRAINING: Metric = Metric::gauge_of(
    "hook_draining",
    &["binary"],
    "1 once the process has been told to stop.",
);
/// Resident memory.
pub const RESIDENT_BYTES: Metric = Metric::gauge_of(
    "hook_process_resident_bytes",
    &[],
    "Resident memory of the process (Linux).",
)
.in_unit(Unit::Bytes);
/// Open file descriptors.
pub const OPEN_FDS: Metric = Metric::gauge_of(
    "hook_process_open_fds",
    &[],
    "Open file descriptors of the process (Linux).",
);
/// Limit of file descriptors.
pub const MAX_FDS: Metric = Metric::gauge_of(
    "hook_process_max_fds",
    &[],
    "File descriptors that the process may have open (Linux).",
);
/// Panics.
pub const PANICS_TOTAL: Metric = Metric::counter_of(
    "hook_panics_total",
    &[],
    "Panics in any thread or task; each is a fault of ours.",
);

/// Permits taken.
pub const GATE_IN_FLIGHT: Metric = Metric::gauge_of(
    "hook_gate_in_flight",
    &["gate"],
    "Permits of a bounded thing that are taken.",
);
/// Permits in all.
pub const GATE_MAX: Metric = Metric::gauge_of(
    "hook_gate_max",
    &["gate"],
    "Permits of a bounded thing in all.",
);
/// Wait for a permit.
pub const GATE_WAIT_SECONDS: Metric = Metric::seconds_of(
    "hook_gate_wait_seconds",
    &["gate"],
    "Time from asking for a permit to getting it.",
);

/// Runs of the periodic loops.
pub const LOOP_RUNS_TOTAL: Metric = Metric::counter_of(
    "hook_loop_runs_total",
    &["loop", "result"],
    "Runs of a periodic loop; `result` is `ok`, `failed`, `timeout` or `panicked`.",
);
/// Duration of those runs.
pub const LOOP_RUN_DURATION_SECONDS: Metric = Metric::seconds_of(
    "hook_loop_run_duration_seconds",
    &["loop"],
    "Duration of one run of a periodic loop.",
);
/// Last success of a periodic loop.
pub const LOOP_LAST_SUCCESS_TIMESTAMP_SECONDS: Metric = Metric::gauge_of(
    "hook_loop_last_success_timestamp_seconds",
    &["loop"],
    "Unix time of the last run of a periodic loop that succeeded; 0 before the first.",
)
.in_unit(Unit::Seconds);
/// Interval of a periodic loop.
pub const LOOP_INTERVAL_SECONDS: Metric = Metric::gauge_of(
    "hook_loop_interval_seconds",
    &["loop"],
    "Pause between two runs of a periodic loop.",
)
.in_unit(Unit::Seconds);

/// Whether Postgres answers.
pub const DB_UP: Metric = Metric::gauge_of(
    "hook_db_up",
    &["binary"],
    "1 while Postgres answered within the last seconds, else 0.",
);
/// Round trip to Postgres.
pub const DB_PING_DURATION_SECONDS: Metric = Metric::seconds_of(
    "hook_db_ping_duration_seconds",
    &["binary"],
    "Round trip of a trivial statement through the pool, once a second.",
);
/// Connections of the pool.
pub const DB_POOL_CONNECTIONS: Metric = Metric::gauge_of(
    "hook_db_pool_connections",
    &["binary", "state"],
    "Connections of the pool; `state` is `idle` or `used`.",
);
/// Pools thrown away.
pub const DB_POOL_REBUILDS_TOTAL: Metric = Metric::counter_of(
    "hook_db_pool_rebuilds_total",
    &["binary", "reason"],
    "Pools thrown away with all their connections; `reason` is `unreachable`, `not_writable`, `stale_statements`, `starving`, `startup_options` or `cancelled_begin`.",
);
/// Errors of statements, by what follows from them.
pub const DB_FAULTS_TOTAL: Metric = Metric::counter_of(
    "hook_db_faults_total",
    &["binary", "fault"],
    "Statements or connects that failed, by kind of fault.",
);

/// All of the above.
pub const ALL: &[Metric] = &[
    BUILD_INFO,
    READY,
    DRAINING,
    RESIDENT_BYTES,
    OPEN_FDS,
    MAX_FDS,
    PANICS_TOTAL,
    GATE_IN_FLIGHT,
    GATE_MAX,
    GATE_WAIT_SECONDS,
    LOOP_RUNS_TOTAL,
    LOOP_RUN_DURATION_SECONDS,
    LOOP_LAST_SUCCESS_TIMESTAMP_SECONDS,
    LOOP_INTERVAL_SECONDS,
    DB_UP,
    DB_PING_DURATION_SECONDS,
    DB_POOL_CONNECTIONS,
    DB_POOL_REBUILDS_TOTAL,
    DB_FAULTS_TOTAL,
];
