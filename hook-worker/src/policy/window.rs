//! How many slots a target may use at one time: as many as its answers have earned.
//!
//! Every target starts with a few. An answer that came in good time, while the target used more
//! than half of what it had, earns one slot more, so the window doubles with each round of answers; a failure halves
//! it; what was not used for a while is lost again. So a target that stops answering is stuck with
//! little more than it needed lately, long before anything has noticed, however many jobs wait for
//! it; and one that comes back after a hold is released step by step. The caps bind above this.

use std::time::Duration;

/// Slots of a target of which nothing is known: enough for the ordinary one, and few enough that
/// a hundred new targets that hang do not matter.
const INITIAL: usize = 4;

/// Slots of a target that was held: one attempt can hang while the other shows that it is back.
const AFTER_HOLD: usize = 2;

/// Over this time a window shrinks to twice what was used.
const USE_PERIOD: Duration = Duration::from_secs(5);

/// The slots that one target may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    size: usize,
    /// Most slots used at one time since `period_from`.
    peak: usize,
    period_from: Duration,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            size: INITIAL,
            peak: 0,
            period_from: Duration::ZERO,
        }
    }
}

impl Window {
    /// Slots that may be used at one time.
    pub(crate) const fn size(&self) -> usize {
        self.size
    }

    /// Notes that so many slots are used from now on.
    pub(super) fn used(&mut self, in_flight: usize, now: Duration) {
        let period = now.saturating_sub(self.period_from);
        if period >= USE_PERIOD {
            // After a longer silence what was used before says nothing.
            let used = if period >= USE_PERIOD * 2 {
                0
            } else {
                self.peak
            };
            self.size = self.size.min((used * 2).max(INITIAL));
            self.period_from = now;
            self.peak = 0;
        }
        self.peak = self.peak.max(in_flight);
    }

    /// Notes a good answer.
    pub(super) fn grow(&mut self, slots: usize) {
        if self.peak * 2 > self.size {
            self.size = (self.size + 1).min(slots);
        }
    }

    /// Notes a good answer that came late because too many run at one time: gives a slot back, but
    /// none of the first `kept`.
    pub(super) fn shrink(&mut self, kept: usize) {
        self.size = self.size.min((self.size - 1).max(kept));
    }

    /// Notes a failure.
    pub(super) fn halve(&mut self) {
        self.size = (self.size / 2).max(INITIAL.min(self.size));
    }

    /// Begins anew, as after a hold.
    pub(super) fn restart(&mut self) {
        self.size = AFTER_HOLD;
        self.peak = 0;
    }
}
