//! The named loops of one service, none of which may end before the drain.

use std::{collections::HashMap, fmt, future::Future};

use tokio::task::{Id, JoinError, JoinSet};
use tracing::error;

use super::Stop;

/// The loops of one service; a loop that ends early or panics takes the service down.
#[derive(Debug, Default)]
pub struct Loops {
    tasks: JoinSet<anyhow::Result<()>>,
    names: HashMap<Id, &'static str>,
}

/// Why a service had to stop by itself.
#[derive(Debug, thiserror::Error)]
pub enum LoopFault {
    /// A loop returned although nobody asked it to stop.
    #[error("the loop {name} ended by itself")]
    EndedEarly {
        /// The loop.
        name: &'static str,
    },
    /// A loop gave up with an error.
    #[error("the loop {name} failed")]
    Failed {
        /// The loop.
        name: &'static str,
        /// What it said.
        #[source]
        source: FailedSource,
    },
    /// A loop panicked; the message is in the log.
    #[error("the loop {name} panicked")]
    Panicked {
        /// The loop.
        name: &'static str,
    },
}

/// The error of a failed loop, as a plain error value.
#[derive(Debug)]
pub struct FailedSource(anyhow::Error);

impl fmt::Display for FailedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for FailedSource {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.chain().nth(1)
    }
}

impl Loops {
    /// Starts with no loop.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a loop that has nothing to report; it may return only once the process drains.
    pub fn spawn(&mut self, name: &'static str, run: impl Future<Output = ()> + Send + 'static) {
        self.spawn_fallible(name, async {
            run.await;
            Ok(())
        });
    }

    /// Starts a loop that may fail; it may return `Ok` only once the process drains.
    pub fn spawn_fallible(
        &mut self,
        name: &'static str,
        run: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        let handle = self.tasks.spawn(run);
        self.names.insert(handle.id(), name);
    }

    /// Joins every loop. The first fault starts the drain, so that the other loops still finish
    /// what they have in hand; loops that outlast the abort are cut.
    ///
    /// # Errors
    /// The first fault; later ones are logged.
    pub async fn join(mut self, stop: &Stop) -> Result<(), LoopFault> {
        let mut first = Ok(());
        while let Some(next) = stop.unless_aborting(self.tasks.join_next_with_id()).await {
            let Some(end) = next else { return first };
            if let Err(fault) = self.judge(end, stop) {
                stop.drain();
                if first.is_ok() {
                    first = Err(fault);
                } else {
                    error!(error = ?fault, "another loop failed while draining");
                }
            }
        }
        self.give_up().await;
        first
    }

    /// Tells every loop that is left a last moment, then cuts it.
    async fn give_up(&mut self) {
        // Loops see the abort at the same instant as we do: let them return by themselves first.
        let last_moment = super::sleep_until(tokio::time::Instant::now() + LAST_MOMENT);
        tokio::pin!(last_moment);
        loop {
            tokio::select! {
                next = self.tasks.join_next() => if next.is_none() { return },
                () = &mut last_moment => break,
            }
        }
        self.tasks.abort_all();
        while self.tasks.join_next().await.is_some() {}
    }

    fn judge(
        &self,
        end: Result<(Id, anyhow::Result<()>), JoinError>,
        stop: &Stop,
    ) -> Result<(), LoopFault> {
        match end {
            Ok((_, Ok(()))) if stop.is_draining() => Ok(()),
            Ok((id, Ok(()))) => Err(LoopFault::EndedEarly {
                name: self.name(id),
            }),
            Ok((id, Err(source))) => Err(LoopFault::Failed {
                name: self.name(id),
                source: FailedSource(source),
            }),
            Err(error) => Err(LoopFault::Panicked {
                name: self.name(error.id()),
            }),
        }
    }

    fn name(&self, id: Id) -> &'static str {
        self.names.get(&id).copied().unwrap_or("unnamed")
    }
}

/// How long a loop may take to give its work back once the process aborts.
const LAST_MOMENT: std::time::Duration = std::time::Duration::from_secs(2);
