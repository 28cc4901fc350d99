//! Judges when a job may start and when it stops being worth it.

use chrono::{DateTime, Datelike, Utc};

use crate::job::{Due, Expiry};

/// Longest delay or time to live, in milliseconds: 100 years. Adding it to any time that Postgres
/// can call "now" stays far below what it can store.
pub(super) const DELAY_MS_MAX: u64 = 100 * 366 * 24 * 60 * 60 * 1000;

/// Reads an RFC 3339 time of the years 1970 to 9999.
///
/// The years before are what an unset time looks like in some languages (year 1 above all), and
/// the years after cannot be written in RFC 3339. A time in the past is fine: it means at once.
pub(super) fn time(text: &str) -> Option<DateTime<Utc>> {
    // The parser would take a space, or no separator at all, for the `T`.
    let separator = text.as_bytes().get(10)?;
    if !separator.eq_ignore_ascii_case(&b'T') || !text.is_ascii() {
        return None;
    }
    let time = DateTime::parse_from_rfc3339(text).ok()?.to_utc();
    (1970..=9999).contains(&time.year()).then_some(time)
}

/// Whether the job would be over before it may start.
///
/// A time and a delay cannot be compared without a clock, and Postgres has the only one.
pub(super) fn ends_before_it_starts(due: Due, expires: Expiry) -> bool {
    match (due, expires) {
        (Due::At(due), Expiry::At(end)) => end < due,
        (Due::After(delay), Expiry::After(life)) => life < delay,
        (_, Expiry::Never)
        | (Due::Now, Expiry::At(_) | Expiry::After(_))
        | (Due::At(_), Expiry::After(_))
        | (Due::After(_), Expiry::At(_)) => false,
    }
}
