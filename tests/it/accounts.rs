//! What producers, receivers and the database know of the same jobs agrees in the end.
//!
//! These tests run for long. Tests begin in the order of their names, so nothing waits for these at
//! the end.

mod totals;
mod whole_path;
