//! SIGTERM and SIGINT: the first drains, the second aborts.
//!
//! One owner per process listens, also where several services share it (`hook dev`).

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use super::Stop;

/// The signals that stop a process, caught from [`Signals::install`] on.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Catches the signals from now on. Until [`Signals::run`] is polled they wait.
    ///
    /// # Errors
    /// When the system refuses the handlers.
    pub fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Moves `stop` as signals arrive; never returns.
    ///
    /// # Cancel safety
    /// A signal that arrives after the drop is lost.
    pub async fn run(mut self, stop: Stop) {
        loop {
            let name = tokio::select! {
                _ = self.terminate.recv() => "SIGTERM",
                _ = self.interrupt.recv() => "SIGINT",
            };
            if stop.is_draining() {
                warn!(signal = name, "second signal: giving back and leaving");
                stop.abort();
            } else {
                info!(
                    signal = name,
                    grace_ms = u64::try_from(stop.grace().as_millis()).unwrap_or(u64::MAX),
                    "draining"
                );
                stop.drain();
            }
        }
    }
}
