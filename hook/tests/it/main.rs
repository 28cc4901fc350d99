//! The command as people and scripts run it.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests may fail loudly, as tests may"
)]

mod bench;
mod command;
