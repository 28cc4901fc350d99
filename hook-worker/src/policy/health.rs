//! What this worker has seen of one target, and what follows for its level, window and holds.

use std::{collections::VecDeque, time::Duration};

use hook_common::job::Outcome;

use super::{
    BEST_DRIFT, CONGESTED_BY_MIN_MS, CONGESTED_TIMES, Circuit, DURATION_WEIGHT, Directive,
    GOOD_TO_STEP_DOWN, LEVEL_MAX, PROVEN_AFTER, PolicySettings, SUSPECT_AFTER_MIN, SUSPECT_TIMES,
    WASTE_TIME_CONSTANT, Window,
};

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
    /// The best average lately.
    best_ms: f64,
    samples: u32,
    good_in_row: u32,
    failures_in_row: u32,
    failing_since: Option<Duration>,
    /// The end of the last attempt that was not slow and no failure.
    good_at: Option<Duration>,
    /// It asked not to be called until then.
    asked_until: Option<Duration>,
    circuit: Circuit,
    window: Window,
    // Starts of the running attempts in order; an ended one leaves a gap until it is in front.
    starts: VecDeque<Option<Duration>>,
    first_start: u64,
    in_flight: usize,
    /// The attempt that looks whether the target is back.
    probe: Option<Running>,
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

    /// The target asked this worker not to be called until then.
    pub(crate) fn asked_until(&self) -> Option<Duration> {
        self.asked_until
    }

    /// Whether it is held because it is down.
    pub(crate) fn circuit(&self) -> &Circuit {
        &self.circuit
    }

    /// As [`Self::circuit`], to be changed by what other workers say.
    pub(crate) fn circuit_mut(&mut self) -> &mut Circuit {
        &mut self.circuit
    }

    /// Slots that its answers have earned it.
    pub(crate) fn window(&self) -> usize {
        self.window.size()
    }

    /// True if enough recent attempts ended well that an older snapshot no longer counts.
    pub(crate) fn overrules_snapshot(&self) -> bool {
        self.good_in_row >= GOOD_TO_STEP_DOWN
    }

    /// True if its attempts are known to free their slots soon, and none seems to hang.
    pub(crate) fn proven(&self, now: Duration) -> bool {
        self.good_in_row >= PROVEN_AFTER && self.level == 0 && !self.suspect(now)
    }

    /// True if idle slots may be lent to it.
    pub(crate) fn quick(&self, now: Duration, settings: &PolicySettings) -> bool {
        self.proven(now) && self.average_ms <= settings.quick.as_secs_f64() * 1000.0
    }

    /// True if nothing worth remembering is known.
    pub(crate) fn forgettable(&self) -> bool {
        self.in_flight == 0
            && self.level == 0
            && self.asked_until.is_none()
            && !self.circuit.is_open()
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
        self.window.used(self.in_flight, now);
        let running = Running(self.first_start + self.starts.len() as u64 - 1);
        // Jobs that were leased just before the circuit opened start too, and are no probes.
        if self.circuit.may_probe(now) {
            self.circuit.probe_started();
            self.probe = Some(running);
        }
        running
    }

    /// True if this attempt looks whether the target is back.
    pub(crate) fn is_probe(&self, running: Running) -> bool {
        self.probe == Some(running)
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
        self.average(took);
        match outcome {
            Outcome::Retryable => {
                // Attempts from before the circuit opened may still be ending.
                if self.is_probe(running) {
                    self.circuit.probe_failed(took, now, settings);
                }
                self.failed(took, now, settings);
            }
            Outcome::Delivered | Outcome::Permanent => {
                let slow = took > settings.slow_after;
                if !slow {
                    self.good_at = Some(now);
                }
                self.succeeded(slow);
                if self.congested() {
                    self.window.shrink(settings.target_in_flight_max);
                } else if !slow {
                    self.window.grow(settings.slots);
                }
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
            // Not if others of its attempts end well meanwhile.
            if crowded && self.oldest_start() >= self.good_at {
                self.level = self.level.max(1);
            }
        }
    }

    /// Lowers the level of a target that has nothing to do, one step a call.
    pub(crate) fn relax(&mut self, now: Duration) {
        self.decay(now);
        let held = self.circuit.is_open() || self.asked_until.is_some_and(|until| until > now);
        if self.in_flight == 0 && !held {
            self.level = self.level.saturating_sub(1);
        }
    }

    /// Holds the target as it asked for with Retry-After; never shortens a hold, and lets it come
    /// back step by step.
    pub(crate) fn hold_as_asked(&mut self, until: Duration) {
        self.asked_until = self.asked_until.max(Some(until));
        self.window.restart();
    }

    /// Forgets a pause that is over.
    pub(crate) fn end_pause(&mut self, now: Duration) {
        if self.asked_until.is_some_and(|until| until <= now) {
            self.asked_until = None;
        }
    }

    /// Takes over what the workers share about it; `before` is what they shared last.
    pub(crate) fn hear(&mut self, heard: &Directive, before: &Directive) {
        if heard.asked_until.is_some() && before.asked_until.is_none() {
            self.window.restart();
        }
        if self
            .asked_until
            .is_some_and(|until| heard.lifts(until, before))
        {
            self.asked_until = None;
        }
        if self.circuit.hear(heard.circuit, before.circuit) {
            // Opened or closed by others: what this worker counted is void, and it begins anew.
            self.failures_in_row = 0;
            self.failing_since = None;
            self.window.restart();
        }
    }

    fn succeeded(&mut self, slow: bool) {
        self.failures_in_row = 0;
        self.failing_since = None;
        if self.circuit.succeeded() {
            self.window.restart();
        }
        self.good_in_row = if slow {
            0
        } else {
            self.good_in_row.saturating_add(1)
        };
    }

    fn failed(&mut self, took: Duration, now: Duration, settings: &PolicySettings) {
        // What lies beyond `slow_after` was counted while the attempt ran.
        self.wasted +=
            took.min(settings.slow_after).as_secs_f64() / WASTE_TIME_CONSTANT.as_secs_f64();
        self.good_in_row = 0;
        self.window.halve();
        self.failures_in_row = self.failures_in_row.saturating_add(1);
        let failing_since = *self.failing_since.get_or_insert(now.saturating_sub(took));
        let down = self.failures_in_row >= settings.hold_failures
            && now.saturating_sub(failing_since) >= settings.hold_after;
        if down && !self.circuit.is_open() {
            self.circuit.open(now, settings);
            self.level = LEVEL_MAX;
        }
    }

    /// True while an attempt runs for much longer than they usually take.
    fn suspect(&self, now: Duration) -> bool {
        let usual = Duration::from_secs_f64(self.average_ms * SUSPECT_TIMES / 1000.0);
        self.oldest_start()
            .is_some_and(|start| now.saturating_sub(start) > usual.max(SUSPECT_AFTER_MIN))
    }

    fn average(&mut self, took: Duration) {
        let took_ms = took.as_secs_f64() * 1000.0;
        self.average_ms = if self.samples == 0 {
            took_ms
        } else {
            self.average_ms + (took_ms - self.average_ms) * DURATION_WEIGHT
        };
        let drift = (self.average_ms - self.best_ms) * BEST_DRIFT;
        self.best_ms = if self.samples == 0 {
            took_ms
        } else {
            self.average_ms.min(self.best_ms + drift)
        };
        self.samples = self.samples.saturating_add(1);
    }

    /// True if attempts take much longer than they did with fewer beside them: more slots would
    /// bring no more answers, only a longer wait for everybody.
    fn congested(&self) -> bool {
        self.average_ms > self.best_ms * CONGESTED_TIMES + CONGESTED_BY_MIN_MS
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
