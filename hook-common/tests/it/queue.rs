//! The queue against a real Postgres: every statement, every race, and the plans they run on.

mod kit;
mod lifecycle;
mod looks;
mod migrations;
mod orphans;
mod outbox;
mod plans;
mod properties;
mod races;
mod rehearsals;
mod statistics;
mod targets;
