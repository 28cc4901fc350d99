//! Waiting between two looks at the API, for commands that watch something.

use std::time::Duration;

use anyhow::Context as _;
use hook_common::lifecycle::Stop;
use tokio::runtime::{Builder, Runtime};

use crate::exit::Failure;

/// The clock of a command.
#[derive(Debug)]
pub(crate) struct Pace {
    runtime: Runtime,
    stop: Stop,
    every: Duration,
}

impl Pace {
    /// One look every so often.
    pub(crate) fn new(every: Duration) -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread().enable_time().build();
        Ok(Self {
            runtime: runtime.context("starting the runtime")?,
            stop: Stop::manual(Duration::ZERO),
            every,
        })
    }

    /// Waits until the next look is due.
    pub(crate) fn wait(&self) {
        self.runtime.block_on(self.stop.pause(self.every));
    }
}
