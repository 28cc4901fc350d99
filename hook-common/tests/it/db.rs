//! The way to Postgres, against a real server: what is waited for, what ends the start, what
//! becomes of connections that are of no more use.

mod hygiene;
mod recovery;
mod startup;
mod support;
