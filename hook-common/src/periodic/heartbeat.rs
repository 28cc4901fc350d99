//! Signs of life of the loops, read by `/livez`.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, timeout};

/// All loops of a process whose life is watched; cheap to clone.
#[derive(Clone, Debug)]
pub struct Heartbeats {
    begun: Instant,
    loops: Arc<Mutex<Vec<Arc<Watched>>>>,
}

/// One loop's way to say that it still turns; the loop stops being watched when this is dropped.
#[derive(Debug)]
pub struct Heartbeat {
    watched: Arc<Watched>,
    all: Heartbeats,
}

#[derive(Debug)]
struct Watched {
    name: &'static str,
    silence_max: Duration,
    /// Milliseconds since `Heartbeats::begun`.
    last_beat_ms: AtomicU64,
}

/// A loop that has been silent for too long.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stuck {
    /// The loop.
    pub name: &'static str,
    /// Time since its last sign of life.
    pub silent_for: Duration,
}

impl Default for Heartbeats {
    fn default() -> Self {
        Self::new()
    }
}

impl Heartbeats {
    /// Watches nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            begun: Instant::now(),
            loops: Arc::default(),
        }
    }

    /// Watches a loop that promises to beat at least every `silence_max`.
    #[must_use = "the loop is watched only while its heartbeat lives"]
    pub fn register(&self, name: &'static str, silence_max: Duration) -> Heartbeat {
        let watched = Arc::new(Watched {
            name,
            silence_max,
            last_beat_ms: AtomicU64::new(0),
        });
        let heartbeat = Heartbeat {
            watched: Arc::clone(&watched),
            all: self.clone(),
        };
        heartbeat.beat();
        self.lock().push(watched);
        heartbeat
    }

    /// The loops that are silent for longer than they promised.
    #[must_use]
    pub fn stuck(&self) -> Vec<Stuck> {
        let now_ms = self.now_ms();
        self.lock()
            .iter()
            .filter_map(|watched| {
                let last = watched.last_beat_ms.load(Ordering::Relaxed);
                let silent_for = Duration::from_millis(now_ms.saturating_sub(last));
                (silent_for > watched.silence_max).then_some(Stuck {
                    name: watched.name,
                    silent_for,
                })
            })
            .collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Watched>>> {
        self.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Heartbeat {
    /// Says that the loop turns.
    pub fn beat(&self) {
        let now_ms = self.all.now_ms();
        self.watched.last_beat_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Awaits something that may rightly take for ever (a free permit, a notification), beating
    /// meanwhile: the runtime still polls this loop, which is all that it owes.
    ///
    /// # Cancel safety
    /// As safe as the future.
    pub async fn while_waiting<F: Future>(&self, future: F) -> F::Output {
        tokio::pin!(future);
        loop {
            self.beat();
            if let Ok(value) = timeout(self.watched.silence_max / 3, &mut future).await {
                self.beat();
                return value;
            }
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.all
            .lock()
            .retain(|watched| !Arc::ptr_eq(watched, &self.watched));
    }
}
