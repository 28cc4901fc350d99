//! Looking at a bounded part of the waiting jobs: some of the pages of the table, all that is in them.
//!
//! A table of a few thousand jobs is read whole, and what is said about it is exact. Of a larger one
//! the same pages are read each time, so that two looks differ by what has changed and not by chance.

/// Waiting jobs that are looked at.
pub(super) const SAMPLED_MAX: i64 = 10_000;

/// The share of the waiting jobs that a sample holds; `$max` is the placeholder for [`SAMPLED_MAX`].
macro_rules! sampled_share {
    ($max:literal) => {
        concat!(
            "LEAST(1, ",
            $max,
            "::float8 / GREATEST(pg_stat_get_live_tuples('hook.ready'::regclass), 1))"
        )
    };
}

/// A sample of the waiting jobs, as a source of rows. The numbers that Postgres keeps may be wrong
/// after a crash, so a condition on rows needs a `LIMIT` of a few times the maximum beside it.
macro_rules! sampled_ready {
    ($max:literal) => {
        concat!(
            "hook.ready TABLESAMPLE SYSTEM (100 * ",
            $crate::queue::sample::sampled_share!($max),
            ") REPEATABLE (0)"
        )
    };
}

pub(super) use {sampled_ready, sampled_share};
