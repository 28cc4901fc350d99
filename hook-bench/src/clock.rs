//! Time that processes of one machine share.
//!
//! The kernel's monotonic clock reads the same in every process, so that one process can tell how
//! long ago another did something. It says nothing about the time of day, and nothing here asks.

use std::{future::pending, time::Duration};

use hook_common::lifecycle::within;
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the monotonic clock.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).expect("the monotonic clock starts at zero");
    let nanos = u64::try_from(time.tv_nsec).expect("a part of a second is not negative");
    seconds * 1_000_000_000 + nanos
}

/// Seconds between two readings.
#[expect(
    clippy::cast_precision_loss,
    reason = "a benchmark is shorter than a month"
)]
pub(crate) fn seconds_between(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1e9
}

/// Waits; a benchmark has nothing to drain meanwhile.
///
/// # Cancel safety
/// Holds nothing; may be dropped at any time.
pub(crate) async fn pause(duration: Duration) {
    within(duration, pending::<()>()).await;
}
