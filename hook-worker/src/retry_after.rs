//! How long a target asks to be left alone.

use std::time::{Duration, UNIX_EPOCH};

/// Reads a `retry-after` value: seconds as digits, however many, or a date in the IMF form.
///
/// Anything else is ignored: the caller's schedule holds then. `now` is in Unix seconds.
pub(crate) fn parse(value: &[u8], now: i64) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?.trim_matches([' ', '\t']);
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    // The library reads the two obsolete forms as well; the IMF form alone has this length.
    if text.len() != 29 {
        return None;
    }
    let at = httpdate::parse_http_date(text).ok()?;
    let now = UNIX_EPOCH + Duration::from_secs(u64::try_from(now).ok()?);
    at.duration_since(now).ok()
}
