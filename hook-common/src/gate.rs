//! A bounded number of permits with a name, and the metrics that show how full it is.
//!
//! Everything in the product that is limited in number is limited by a gate: API requests,
//! deliveries, statements. Permits are given in the order of asking. Deliberately absent: a way
//! to resize a gate or to take permits without counting them.

use std::sync::Arc;

use ::metrics::{Gauge, Histogram};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use crate::metrics::process::{GATE_IN_FLIGHT, GATE_MAX, GATE_WAIT_SECONDS};

#[cfg(test)]
mod tests;

/// Gives at most `max` permits at one time; cheap to clone, all clones share the permits.
#[derive(Clone, Debug)]
pub struct Gate {
    semaphore: Arc<Semaphore>,
    max: usize,
    in_flight: InFlight,
    wait: WaitHistogram,
}

/// One or more permits of a gate; they go back when this is dropped.
#[must_use = "a permit that is dropped at once limits nothing"]
#[derive(Debug)]
pub struct Permit {
    permits: OwnedSemaphorePermit,
    in_flight: InFlight,
}

#[derive(Clone)]
struct InFlight(Gauge);

#[derive(Clone)]
struct WaitHistogram(Histogram);

impl Gate {
    /// Makes a gate of `max` permits; `name` becomes the label of its metrics.
    ///
    /// # Panics
    /// When `max` is zero: nothing would ever pass.
    #[must_use]
    pub fn new(name: &'static str, max: usize) -> Self {
        assert!(max > 0, "a gate of zero permits lets nothing through");
        let gate = Self {
            semaphore: Arc::new(Semaphore::new(max)),
            max,
            in_flight: InFlight(GATE_IN_FLIGHT.gauge(&[name])),
            wait: WaitHistogram(GATE_WAIT_SECONDS.histogram(&[name])),
        };
        gate.in_flight.0.set(0.0);
        #[expect(
            clippy::cast_precision_loss,
            reason = "a gate has far fewer than 2^52 permits"
        )]
        GATE_MAX.gauge(&[name]).set(max as f64);
        gate
    }

    /// All permits, free or not.
    #[must_use]
    pub fn max(&self) -> usize {
        self.max
    }

    /// Permits that nobody holds right now.
    #[must_use]
    pub fn free(&self) -> usize {
        self.semaphore.available_permits()
    }

    /// Permits that somebody holds right now.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.max.saturating_sub(self.free())
    }

    /// Gives a permit now, or `None` when all are taken.
    pub fn try_enter(&self) -> Option<Permit> {
        self.take(1)
    }

    /// Gives as many permits as are free now, at most `up_to`; `None` when that is zero.
    pub fn try_enter_many(&self, up_to: usize) -> Option<Permit> {
        let mut wanted = up_to.min(self.free());
        while wanted > 0 {
            if let Some(permit) = self.take(wanted) {
                return Some(permit);
            }
            // Somebody was faster between the look and the grab.
            wanted = wanted.saturating_sub(1).min(self.free());
        }
        None
    }

    /// Waits for one permit.
    ///
    /// # Cancel safety
    /// Dropped while waiting, it loses its place and holds nothing.
    pub async fn enter(&self) -> Permit {
        let asked = Instant::now();
        let permits = Arc::clone(&self.semaphore)
            .acquire_owned()
            .await
            .expect("the semaphore of a gate is never closed");
        self.wait.0.record(asked.elapsed());
        self.permit(permits)
    }

    /// Waits for one permit, then adds those that are free, up to `up_to` in all.
    ///
    /// # Cancel safety
    /// Dropped while waiting, it loses its place and holds nothing.
    pub async fn enter_many(&self, up_to: usize) -> Permit {
        let mut permit = self.enter().await;
        if let Some(more) = self.try_enter_many(up_to.saturating_sub(1)) {
            permit.merge(more);
        }
        permit
    }

    fn take(&self, count: usize) -> Option<Permit> {
        let permits = Arc::clone(&self.semaphore)
            .try_acquire_many_owned(u32::try_from(count).ok()?)
            .ok()?;
        for _ in 0..count {
            self.wait.0.record(0.0);
        }
        Some(self.permit(permits))
    }

    fn permit(&self, permits: OwnedSemaphorePermit) -> Permit {
        self.in_flight.add(permits.num_permits());
        Permit {
            permits,
            in_flight: self.in_flight.clone(),
        }
    }
}

impl Permit {
    /// How many permits this holds.
    #[must_use]
    pub fn count(&self) -> usize {
        self.permits.num_permits()
    }

    /// Takes `count` permits out into one of their own; `None` when there are fewer.
    pub fn split(&mut self, count: usize) -> Option<Self> {
        Some(Self {
            permits: self.permits.split(count)?,
            in_flight: self.in_flight.clone(),
        })
    }

    /// Adds the permits of another one of the same gate.
    ///
    /// # Panics
    /// When they belong to different gates.
    pub fn merge(&mut self, mut other: Self) {
        let count = other.count();
        let permits = other
            .permits
            .split(count)
            .expect("a permit can be split into all of itself");
        self.permits.merge(permits);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.in_flight.remove(self.permits.num_permits());
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a gate has far fewer than 2^52 permits"
)]
impl InFlight {
    fn add(&self, count: usize) {
        self.0.increment(count as f64);
    }

    fn remove(&self, count: usize) {
        self.0.decrement(count as f64);
    }
}

impl std::fmt::Debug for InFlight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InFlight")
    }
}

impl std::fmt::Debug for WaitHistogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WaitHistogram")
    }
}
