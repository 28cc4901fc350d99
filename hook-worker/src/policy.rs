//! How one target is judged: from the ends and ages of its attempts to a level, a cap and a hold.
//!
//! Pure: no clock, no I/O. Times are durations since the worker started.
//!
//! The measure is *wasted slots*. By Little's law a target that sends λ jobs/s, each holding a
//! slot for W seconds, holds L = λ·W slots. Of these, the time of attempts that end retryable, and
//! the time beyond `slow_after` of attempts that succeed, is time that others could have used. It
//! is averaged with the time constant [`WASTE_TIME_CONSTANT`]; steady waste of n slots reads n.
//! So a target is judged by what it costs, not by how often it fails: one that hangs is seen from
//! the age of its running attempts, before a single one has ended, one that answers 200 after
//! seconds counts the same, one that refuses at once hardly counts, and an answer such as 404
//! never does.

use std::{collections::VecDeque, time::Duration};

use hook_common::job::Outcome;

/// Averaging time of the waste: long enough that one slow answer does not flip a level, short
/// enough that a hanging target shows within a second or two.
const WASTE_TIME_CONSTANT: Duration = Duration::from_secs(10);

/// Good attempts in a row that lower the level by one, and that overrule an older snapshot.
const GOOD_TO_STEP_DOWN: u32 = 3;

/// Weight of the newest attempt in the average duration: about the last 8 count.
const DURATION_WEIGHT: f64 = 1.0 / 8.0;

/// Attempts that must have succeeded quickly in a row before a target is proven.
const PROVEN_AFTER: u32 = 4;

/// Highest level that the worker gives on its own; people may pin up to 9.
pub(crate) const LEVEL_MAX: u8 = 3;

/// The bounds that the policy keeps; see the settings of the same names.
#[derive(Clone, Debug)]
pub(crate) struct PolicySettings {
    /// Delivery slots of this worker.
    pub(crate) slots: usize,
    /// Slots that one target may hold.
    pub(crate) target_in_flight_max: usize,
    /// Slots that one penalised target may hold.
    pub(crate) penalised_in_flight_max: usize,
    /// An attempt that holds its slot for longer is slow.
    pub(crate) slow_after: Duration,
    /// Slots beyond its cap are lent only to a target whose attempts take no longer on average.
    pub(crate) quick: Duration,
    /// Retryable failures in a row that a hold needs.
    pub(crate) hold_failures: u32,
    /// Time without a success that a hold needs.
    pub(crate) hold_after: Duration,
    /// First pause between probes of a held target.
    pub(crate) probe_interval_min: Duration,
    /// Longest pause between probes.
    pub(crate) probe_interval_max: Duration,
}

impl PolicySettings {
    /// Wasted slots at which each level begins: 0.5 %, 2 % and 8 % of the slots, and never so few
    /// that a single slow answer counts.
    fn level_for(&self, wasted: f64) -> u8 {
        #[expect(clippy::cast_precision_loss, reason = "slots are far below 2^52")]
        let slots = self.slots as f64;
        let steps = [(0.005, 0.25), (0.02, 0.5), (0.08, 1.0)];
        let reached = steps
            .iter()
            .take_while(|(share, floor)| wasted >= (share * slots).max(*floor));
        u8::try_from(reached.count()).expect("there are three steps")
    }
}

/// What people, or other workers, say about a target.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Directive {
    /// Nothing is attempted.
    pub(crate) paused: bool,
    /// Slots of one worker that it may hold.
    pub(crate) max_in_flight: Option<usize>,
    /// Attempts a second.
    pub(crate) rate_per_second: Option<f64>,
    /// A level that people fixed.
    pub(crate) penalty_pin: Option<u8>,
    /// The level that the shared snapshot gives.
    pub(crate) penalty: u8,
    /// Held by another worker until then.
    pub(crate) held_until: Option<Duration>,
}

/// One attempt of a target that is running.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Running(u64);

/// What this worker has seen of one target.
#[derive(Debug, Default)]
pub(crate) struct Health {
    level: u8,
    wasted: f64,
    wasted_at: Duration,
    average_ms: f64,
    samples: u32,
    good_in_row: u32,
    failures_in_row: u32,
    failing_since: Option<Duration>,
    held_until: Option<Duration>,
    probe_interval: Duration,
    // Starts of the running attempts in order; an ended one leaves a gap until it is in front.
    starts: VecDeque<Option<Duration>>,
    first_start: u64,
    in_flight: usize,
}

impl Health {
    /// Attempts that hold a slot now.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Level found by this worker: 0 is healthy.
    pub(crate) fn level(&self) -> u8 {
        self.level
    }

    /// Retryable failures since the last success.
    pub(crate) fn failures_in_row(&self) -> u32 {
        self.failures_in_row
    }

    /// Held until then, if it is held.
    pub(crate) fn held_until(&self) -> Option<Duration> {
        self.held_until
    }

    /// True if enough recent attempts ended well that an older snapshot no longer counts.
    pub(crate) fn overrules_snapshot(&self) -> bool {
        self.good_in_row >= GOOD_TO_STEP_DOWN
    }

    /// True if its attempts are known to free their slots soon.
    pub(crate) fn proven(&self) -> bool {
        self.good_in_row >= PROVEN_AFTER && self.level == 0
    }

    /// True if idle slots may be lent to it.
    pub(crate) fn quick(&self, now: Duration, settings: &PolicySettings) -> bool {
        self.proven()
            && self.average_ms <= settings.quick.as_secs_f64() * 1000.0
            && self
                .oldest_start()
                .is_none_or(|start| now.saturating_sub(start) < settings.slow_after)
    }

    /// True if it is held because it was down, so that only one attempt at a time may look whether
    /// it is back.
    pub(crate) fn probing(&self) -> bool {
        self.held_until.is_some() && self.probe_interval > Duration::ZERO
    }

    /// True if nothing worth remembering is known.
    pub(crate) fn forgettable(&self) -> bool {
        self.in_flight == 0
            && self.level == 0
            && self.held_until.is_none()
            && self.failures_in_row == 0
            && self.wasted < 0.01
    }

    /// Notes that an attempt starts.
    pub(crate) fn start(&mut self, now: Duration) -> Running {
        if self.starts.is_empty() {
            self.decay(now);
        }
        self.starts.push_back(Some(now));
        self.in_flight += 1;
        Running(self.first_start + self.starts.len() as u64 - 1)
    }

    /// Notes that an attempt ended without telling anything about the target.
    pub(crate) fn abandon(&mut self, running: Running) {
        self.remove(running);
    }

    /// Notes what an attempt came to.
    pub(crate) fn end(
        &mut self,
        running: Running,
        outcome: Outcome,
        now: Duration,
        settings: &PolicySettings,
    ) {
        let took = self
            .remove(running)
            .map_or(Duration::ZERO, |start| now.saturating_sub(start));
        self.decay(now);
        let took_ms = took.as_secs_f64() * 1000.0;
        self.average_ms = if self.samples == 0 {
            took_ms
        } else {
            self.average_ms + (took_ms - self.average_ms) * DURATION_WEIGHT
        };
        self.samples = self.samples.saturating_add(1);
        let slow = took > settings.slow_after;
        if self.held_until.is_some_and(|until| until <= now) && !self.probing() {
            // The pause that it asked for is over.
            self.held_until = None;
        }
        match outcome {
            Outcome::Retryable => {
                // What lies beyond `slow_after` was counted while the attempt ran.
                self.wasted +=
                    took.min(settings.slow_after).as_secs_f64() / WASTE_TIME_CONSTANT.as_secs_f64();
                self.good_in_row = 0;
                self.failures_in_row = self.failures_in_row.saturating_add(1);
                let failing_since = *self.failing_since.get_or_insert(now.saturating_sub(took));
                self.hold_if_down(failing_since, now, settings);
            }
            Outcome::Delivered | Outcome::Permanent => {
                self.failures_in_row = 0;
                self.failing_since = None;
                self.held_until = None;
                self.probe_interval = Duration::ZERO;
                self.good_in_row = if slow {
                    0
                } else {
                    self.good_in_row.saturating_add(1)
                };
            }
        }
        self.raise_level(settings);
        if self.good_in_row > 0
            && self.good_in_row.is_multiple_of(GOOD_TO_STEP_DOWN)
            && self.level > 0
        {
            self.level -= 1;
            self.wasted = 0.0;
        }
    }

    /// Counts the time of attempts that are slow while they still run. To be called about every
    /// `since` for targets with attempts running.
    ///
    /// `crowded` says that more than half of the slots are taken: then a target whose attempts are
    /// slow is pushed back whatever its own share, since many such targets share the damage.
    pub(crate) fn observe_running(
        &mut self,
        now: Duration,
        since: Duration,
        crowded: bool,
        settings: &PolicySettings,
    ) {
        self.decay(now);
        let slow = self
            .starts
            .iter()
            .flatten()
            .take_while(|start| now.saturating_sub(**start) > settings.slow_after)
            .count();
        if slow > 0 {
            #[expect(clippy::cast_precision_loss, reason = "slots are far below 2^52")]
            let slots = slow as f64;
            self.wasted += slots * since.as_secs_f64() / WASTE_TIME_CONSTANT.as_secs_f64();
            self.raise_level(settings);
            if crowded && self.good_in_row < GOOD_TO_STEP_DOWN {
                self.level = self.level.max(1);
            }
        }
    }

    /// Lowers the level of a target that has nothing to do, one step a call.
    pub(crate) fn relax(&mut self, now: Duration) {
        self.decay(now);
        if self.in_flight == 0 && self.held_until.is_none() {
            self.level = self.level.saturating_sub(1);
        }
    }

    /// Holds the target as it asked for with Retry-After; never shortens a hold.
    pub(crate) fn hold_as_asked(&mut self, until: Duration) {
        self.held_until = Some(self.held_until.map_or(until, |held| held.max(until)));
    }

    fn hold_if_down(&mut self, failing_since: Duration, now: Duration, settings: &PolicySettings) {
        let probed = self.held_until.is_some_and(|until| until <= now);
        let down = self.failures_in_row >= settings.hold_failures
            && now.saturating_sub(failing_since) >= settings.hold_after;
        if probed && self.probe_interval > Duration::ZERO {
            self.probe_interval = (self.probe_interval * 2).min(settings.probe_interval_max);
            self.held_until = Some(now + self.probe_interval);
        } else if down && self.held_until.is_none() {
            self.probe_interval = settings.probe_interval_min;
            self.held_until = Some(now + self.probe_interval);
            self.level = LEVEL_MAX;
        }
    }

    fn raise_level(&mut self, settings: &PolicySettings) {
        self.level = self.level.max(settings.level_for(self.wasted));
    }

    fn decay(&mut self, now: Duration) {
        let age = now.saturating_sub(self.wasted_at).as_secs_f64();
        self.wasted *= (-age / WASTE_TIME_CONSTANT.as_secs_f64()).exp();
        self.wasted_at = now;
    }

    fn oldest_start(&self) -> Option<Duration> {
        self.starts.front().copied().flatten()
    }

    fn remove(&mut self, running: Running) -> Option<Duration> {
        let index = usize::try_from(running.0.checked_sub(self.first_start)?).ok()?;
        let start = self.starts.get_mut(index)?.take();
        if start.is_some() {
            self.in_flight -= 1;
        }
        while matches!(self.starts.front(), Some(None)) {
            self.starts.pop_front();
            self.first_start += 1;
        }
        start
    }
}
