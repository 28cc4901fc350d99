//! The janitor: reaps expired leases, purges finished jobs after their retention, and measures.
//!
//! It is a process of its own, so that cleaning goes on while workers are in trouble. Any number
//! of janitors may run: all reap, one leads and does the rest, and rows decide who that is.

use std::time::Duration;

pub mod leader;
pub mod purge;
pub mod reap;

/// How long one run of a loop may go on with further batches.
const BUDGET: Duration = Duration::from_secs(20);
