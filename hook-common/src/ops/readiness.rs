//! What has to be proven before a process is ready, and what takes its readiness away.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use crate::lifecycle::Stop;

/// Named conditions, all of which must hold; cheap to clone.
///
/// A new one is not ready: Postgres has not been seen, and [`Readiness::START_UP`] is unproven.
/// Saturation is no condition: a busy process stays ready.
#[derive(Clone, Debug)]
pub struct Readiness {
    state: Arc<State>,
    stop: Stop,
}

#[derive(Debug)]
struct State {
    begun: Instant,
    /// Why each condition does not hold; `None` while it does.
    conditions: Mutex<BTreeMap<&'static str, Option<String>>>,
    /// Milliseconds since `begun` plus one; 0 means never.
    postgres_seen: AtomicU64,
    postgres_fault: Mutex<Option<String>>,
    /// Postgres takes no connections, as the last attempt to open one was told at once.
    postgres_refuses: watch::Sender<bool>,
}

impl Readiness {
    /// Holds once the whole start is done.
    pub const START_UP: &'static str = "start-up";

    /// Postgres may be silent for this long before the process stops being ready.
    pub const POSTGRES_SILENCE_MAX: Duration = Duration::from_secs(5);

    /// Not ready; `stop` takes readiness away for good.
    #[must_use]
    pub fn new(stop: Stop) -> Self {
        let readiness = Self {
            state: Arc::new(State {
                begun: Instant::now(),
                conditions: Mutex::default(),
                postgres_seen: AtomicU64::new(0),
                postgres_fault: Mutex::default(),
                postgres_refuses: watch::Sender::new(false),
            }),
            stop,
        };
        readiness.require(Self::START_UP);
        readiness
    }

    /// Adds a condition, unproven; does nothing when it is there already.
    pub fn require(&self, condition: &'static str) {
        self.conditions()
            .entry(condition)
            .or_insert_with(|| Some("not done yet".to_owned()));
    }

    /// Says that a condition holds.
    pub fn prove(&self, condition: &'static str) {
        self.conditions().insert(condition, None);
    }

    /// Says why a condition does not hold (any more). The reason is shown to the outside: no
    /// secrets, no database text.
    pub fn lose(&self, condition: &'static str, reason: impl Into<String>) {
        self.conditions().insert(condition, Some(reason.into()));
    }

    /// Whether a condition holds; one that nobody requires does.
    #[must_use]
    pub fn holds(&self, condition: &str) -> bool {
        let conditions = self.conditions();
        conditions.get(condition).is_none_or(Option::is_none)
    }

    /// Says that Postgres answered just now.
    pub fn postgres_seen(&self) {
        let now = self.now_ms().saturating_add(1);
        self.state.postgres_seen.fetch_max(now, Ordering::Relaxed);
    }

    /// Says why Postgres could not be asked; shown once it has been silent for too long.
    pub fn postgres_away(&self, reason: impl Into<String>) {
        *lock(&self.state.postgres_fault) = Some(reason.into());
    }

    /// Says whether Postgres refuses connections. It takes no readiness away before the silence
    /// has lasted, but what needs Postgres need not wait for it.
    pub fn set_postgres_refuses(&self, refuses: bool) {
        self.state.postgres_refuses.send_replace(refuses);
    }

    /// Whether Postgres refuses connections.
    #[must_use]
    pub fn postgres_refuses(&self) -> bool {
        *self.state.postgres_refuses.borrow()
    }

    /// Returns once Postgres refuses connections.
    ///
    /// # Cancel safety
    /// Dropped while waiting, it has done nothing.
    pub async fn postgres_refusal(&self) {
        let mut refuses = self.state.postgres_refuses.subscribe();
        // The sender lives as long as `self`.
        drop(refuses.wait_for(|refuses| *refuses).await);
    }

    /// How long Postgres has been silent; `None` before it was first seen.
    #[must_use]
    pub fn postgres_silent_for(&self) -> Option<Duration> {
        let seen = self.state.postgres_seen.load(Ordering::Relaxed);
        let seen = seen.checked_sub(1)?;
        Some(Duration::from_millis(self.now_ms().saturating_sub(seen)))
    }

    /// Whether Postgres has been seen within [`Readiness::POSTGRES_SILENCE_MAX`].
    #[must_use]
    pub fn postgres_is_near(&self) -> bool {
        self.postgres_silent_for()
            .is_some_and(|silent| silent < Self::POSTGRES_SILENCE_MAX)
    }

    /// Whether every condition holds.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.reasons().is_empty()
    }

    /// Whether the process drains, which ends its readiness for good.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.stop.is_draining()
    }

    /// Every reason not to be ready; empty when ready.
    #[must_use]
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.stop.is_draining() {
            reasons.push("draining".to_owned());
        }
        if let Some(reason) = self.postgres_reason() {
            reasons.push(reason);
        }
        for (condition, missing) in self.conditions().iter() {
            if let Some(reason) = missing {
                reasons.push(format!("{condition}: {reason}"));
            }
        }
        reasons
    }

    fn postgres_reason(&self) -> Option<String> {
        let since = match self.postgres_silent_for() {
            None => "not reached yet".to_owned(),
            Some(silent) if silent >= Self::POSTGRES_SILENCE_MAX => {
                format!("silent for {} s", silent.as_secs())
            }
            Some(_) => return None,
        };
        let why = lock(&self.state.postgres_fault)
            .as_ref()
            .map_or_else(String::new, |fault| format!(" ({fault})"));
        Some(format!("postgres: {since}{why}"))
    }

    fn conditions(&self) -> MutexGuard<'_, BTreeMap<&'static str, Option<String>>> {
        lock(&self.state.conditions)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.state.begun.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
