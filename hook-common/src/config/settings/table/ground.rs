//! Settings that several programs share.

use super::{EVERYONE, OPS_LISTEN, SERVICES};
use crate::config::{
    parse,
    settings::{
        Default::{Computed, PerBinary, Required, Text, Unset},
        Mask, Setting,
    },
};

pub(super) const POSTGRES: &[Setting] = &[
    Setting {
        name: "DATABASE_URL",
        used_by: EVERYONE,
        default: Required,
        form: parse::POSTGRES_URL,
        says: "Where the queue lives, in the schema `hook`. May lead through a transaction pooler; then set `HOOK_DATABASE_DIRECT_URL` too.",
        too_small: "",
        too_large: "",
        mask: Mask::Password,
    },
    Setting {
        name: "HOOK_DATABASE_DIRECT_URL",
        used_by: EVERYONE,
        default: Computed("DATABASE_URL"),
        form: parse::POSTGRES_URL,
        says: "A way to Postgres past any pooler, for migrations and `LISTEN`. Setting it says that `DATABASE_URL` goes through a pooler, so no start-up options are sent there.",
        too_small: "",
        too_large: "",
        mask: Mask::Password,
    },
    Setting {
        name: "HOOK_DB_POOL_MAX",
        used_by: SERVICES,
        default: Text("10"),
        form: "whole number",
        says: "Connections of this process to Postgres, whatever is in flight. A few more are opened for listening and for health.",
        too_small: "statements wait for a connection (`hook_gate_wait_seconds{gate=\"db_pool\"}` rises)",
        too_large: "many processes use up the server's `max_connections`",
        mask: Mask::Nothing,
    },
    Setting {
        name: "HOOK_DB_STATEMENT_TIMEOUT",
        used_by: SERVICES,
        default: Text("30s"),
        form: parse::DURATION,
        says: "Postgres ends a statement that runs longer: the last net under the process's own, shorter deadlines.",
        too_small: "honest statements on a busy server are cut",
        too_large: "a statement that hangs keeps its locks for as long",
        mask: Mask::Nothing,
    },
];

pub(super) const SERVICE: &[Setting] = &[
    Setting {
        name: "HOOK_OPS_LISTEN",
        used_by: SERVICES,
        default: PerBinary(OPS_LISTEN),
        form: parse::ADDRESS,
        says: "Where `/livez`, `/readyz` and `/metrics` are served, without a token. Port 0 takes any free port.",
        too_small: "",
        too_large: "",
        mask: Mask::Nothing,
    },
    Setting {
        name: "HOOK_SHUTDOWN_GRACE",
        used_by: SERVICES,
        default: Text("25s"),
        form: parse::DURATION,
        says: "From the first signal to giving back what is still in hand.",
        too_small: "attempts in flight are cut and repeated, so receivers see them twice",
        too_large: "a rollout waits for the slowest receiver; the orchestrator may kill first",
        mask: Mask::Nothing,
    },
    Setting {
        name: "HOOK_STARTUP_TIMEOUT",
        used_by: SERVICES,
        default: Unset,
        form: parse::DURATION,
        says: "How long to wait for Postgres and its schema at start before leaving with exit code 1; not set means for ever.",
        too_small: "a process gives up while Postgres is only restarting",
        too_large: "a wrong address is noticed by `/readyz` alone",
        mask: Mask::Nothing,
    },
    Setting {
        name: "HOOK_LOG",
        used_by: EVERYONE,
        default: Text("info"),
        form: "a level (error, warn, info, debug, trace, off) or a list such as info,hook_worker=debug",
        says: "What is logged. A bare level speaks of the product's own crates; libraries stay at `warn` unless named.",
        too_small: "faults cannot be explained afterwards",
        too_large: "`trace` costs throughput",
        mask: Mask::Nothing,
    },
    Setting {
        name: "HOOK_LOG_FORMAT",
        used_by: EVERYONE,
        default: Computed("text on a terminal, else json"),
        form: "text or json",
        says: "How log lines look.",
        too_small: "",
        too_large: "",
        mask: Mask::Nothing,
    },
];
