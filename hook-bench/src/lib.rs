//! `hook bench`: load scenarios over the public interfaces, against real processes.
//!
//! A scenario starts a private Postgres with default durability and the services as processes of
//! their own, loads them, and prints what it cost beside a floor or a base that ran in the same
//! call. Figures of two calls are never compared: the machine is another each time.
//!
//! From the inside out: `clock` and `proc` read the machine; `child`, `rig` and `role` run
//! processes; `receiver` is what jobs are delivered to, `load` what produces them; `measure`
//! and `scrape` count what that took, `report` and `plot` show it. One module for each scenario puts them together.
//!
//! A crate of its own, so that `hook` stays a thin shell and the services know nothing of it.

mod child;
mod clock;
pub mod command;
mod deliver;
mod dequeue;
mod floor;
mod http;
mod ingest;
mod isolation;
mod latency;
mod load;
mod machine;
mod manage;
mod measure;
mod memory;
mod path;
mod plot;
mod proc;
mod progress;
mod purge;
mod receiver;
mod replay;
mod report;
mod rig;
mod role;
mod scene;
mod scrape;
mod server_log;
mod soak;
mod sql;
