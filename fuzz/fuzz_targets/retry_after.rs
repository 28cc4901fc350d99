//! No header value, however odd, asks for a wait out of bounds.
#![no_main]

use std::time::Duration;

use chrono::DateTime;
use hook_common::retry_after;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|value: &[u8]| {
    if let Some(wait) = retry_after::parse(value, DateTime::UNIX_EPOCH) {
        assert!(!wait.is_zero() && wait <= Duration::from_secs(365 * 24 * 60 * 60));
    }
});
