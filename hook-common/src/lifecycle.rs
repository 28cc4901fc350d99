//! How a process stops: it drains, and at a deadline it aborts.
//!
//! Every loop holds a clone of one [`Stop`]. Draining means: take no new work, finish what is in
//! hand. Aborting means: give back what is in hand and go. The first signal starts the drain and
//! sets the deadline, the deadline or a second signal aborts. Phases only move forward.
//!
//! [`Stop::pause`] and [`Stop::pause_until_abort`] are the only sleeps of the product, so that
//! nothing sleeps through the end. Deliberately absent: a way back from draining, and detached
//! tasks: [`Loops`] and [`Stop::join_all`] join everything that was started.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    task::{JoinError, JoinSet},
    time::{Instant, timeout},
};

mod loops;
mod signals;

#[cfg(test)]
mod tests;

pub use loops::{LoopFault, Loops};
pub use signals::Signals;

/// Says when to stop; cheap to clone, and every clone tells the same.
#[derive(Clone, Debug)]
pub struct Stop {
    phase: Arc<watch::Sender<Phase>>,
    grace: Duration,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Running,
    /// Aborts by itself once the deadline has passed.
    Draining {
        deadline: Instant,
    },
    Aborting,
}

/// What became of the tasks of a [`JoinSet`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Joined {
    /// Tasks that came to their end.
    pub finished: usize,
    /// Tasks that panicked.
    pub panicked: usize,
    /// Tasks that were cut because the process aborts.
    pub aborted: usize,
}

impl Joined {
    /// Adds the end of one task.
    pub fn count<T>(&mut self, end: &Result<T, JoinError>) {
        match end {
            Ok(_) => self.finished += 1,
            Err(error) if error.is_panic() => self.panicked += 1,
            Err(_) => self.aborted += 1,
        }
    }
}

impl Stop {
    /// Makes a stop that is moved by [`Stop::drain`] and [`Stop::abort`] alone.
    ///
    /// `grace` is the time between the start of the drain and the abort.
    #[must_use]
    pub fn manual(grace: Duration) -> Self {
        let (phase, _) = watch::channel(Phase::Running);
        Self {
            phase: Arc::new(phase),
            grace,
        }
    }

    /// Starts the drain; does nothing when it has begun already.
    pub fn drain(&self) {
        let deadline = Instant::now() + self.grace;
        self.phase.send_if_modified(|phase| match phase {
            Phase::Running => {
                *phase = Phase::Draining { deadline };
                true
            }
            Phase::Draining { .. } | Phase::Aborting => false,
        });
    }

    /// Aborts at once.
    pub fn abort(&self) {
        self.phase.send_if_modified(|phase| {
            let moved = *phase != Phase::Aborting;
            *phase = Phase::Aborting;
            moved
        });
    }

    /// Whether no new work may be taken.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        *self.phase.borrow() != Phase::Running
    }

    /// Whether the work in hand has to be given back now.
    #[must_use]
    pub fn is_aborting(&self) -> bool {
        match *self.phase.borrow() {
            Phase::Running => false,
            Phase::Draining { deadline } => Instant::now() >= deadline,
            Phase::Aborting => true,
        }
    }

    /// The time between the start of the drain and the abort.
    #[must_use]
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// When the drain turns into the abort; `None` while running, now when aborting.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match *self.phase.borrow() {
            Phase::Running => None,
            Phase::Draining { deadline } => Some(deadline),
            Phase::Aborting => Some(Instant::now()),
        }
    }

    /// Waits until the drain begins.
    ///
    /// # Cancel safety
    /// Holds nothing; may be dropped at any time.
    pub async fn draining(&self) {
        self.wait_for(|phase| phase != Phase::Running).await;
    }

    /// Waits until the process aborts.
    ///
    /// # Cancel safety
    /// Holds nothing; may be dropped at any time.
    pub async fn aborting(&self) {
        self.draining().await;
        let Some(deadline) = self.deadline() else {
            unreachable!("phases never move back to running");
        };
        let abort = self.wait_for(|phase| phase == Phase::Aborting);
        tokio::select! {
            () = abort => {}
            () = sleep_until(deadline) => {}
        }
    }

    /// Gives the future's value, or `None` when the drain begins first.
    ///
    /// The future is dropped in that case, so it must be cancel-safe. A drain that has begun wins
    /// over a future that is ready.
    ///
    /// # Cancel safety
    /// As safe as the future.
    pub async fn unless_draining<F: Future>(&self, future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            () = self.draining() => None,
            value = future => Some(value),
        }
    }

    /// Gives the future's value, or `None` when the process aborts first.
    ///
    /// # Cancel safety
    /// As safe as the future.
    pub async fn unless_aborting<F: Future>(&self, future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            () = self.aborting() => None,
            value = future => Some(value),
        }
    }

    /// Waits for `duration`, or until the drain begins. While draining it returns at once: a loop
    /// that goes on working during the drain uses [`Stop::pause_until_abort`].
    ///
    /// # Cancel safety
    /// Holds nothing; may be dropped at any time.
    pub async fn pause(&self, duration: Duration) {
        self.unless_draining(sleep_until(Instant::now() + duration))
            .await;
    }

    /// Waits for `duration`, or until the process aborts.
    ///
    /// # Cancel safety
    /// Holds nothing; may be dropped at any time.
    pub async fn pause_until_abort(&self, duration: Duration) {
        self.unless_aborting(sleep_until(Instant::now() + duration))
            .await;
    }

    /// Joins every task; once the process aborts, cuts those that are left.
    pub async fn join_all<T: 'static>(&self, mut tasks: JoinSet<T>) -> Joined {
        let mut joined = Joined::default();
        while let Some(next) = self.unless_aborting(tasks.join_next()).await {
            match next {
                Some(end) => joined.count(&end),
                None => return joined,
            }
        }
        tasks.abort_all();
        while let Some(end) = tasks.join_next().await {
            joined.count(&end);
        }
        joined
    }

    async fn wait_for(&self, reached: impl Fn(Phase) -> bool) {
        let mut phases = self.phase.subscribe();
        phases
            .wait_for(|phase| reached(*phase))
            .await
            .expect("self holds the sender");
    }
}

/// Runs the future for at most `limit`; `None` says that the time was up and it was dropped.
///
/// # Cancel safety
/// As safe as the future.
pub async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    timeout(limit, future).await.ok()
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the one sleep; everybody else pauses through Stop"
)]
async fn sleep_until(deadline: Instant) {
    tokio::time::sleep(deadline.saturating_duration_since(Instant::now())).await;
}
