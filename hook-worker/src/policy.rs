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
//!
//! Judging takes a second; what holds before is the [`window`](Window): a target may use as many
//! slots at one time as its answers have earned it.

use std::time::Duration;

mod circuit;
mod health;
mod share;
#[cfg(test)]
mod tests;
mod window;

use circuit::Circuit;
pub(crate) use health::{Health, Running};
pub(crate) use share::Crew;
use window::Window;

/// Averaging time of the waste: long enough that one slow answer does not flip a level, short
/// enough that a hanging target shows within a second or two.
const WASTE_TIME_CONSTANT: Duration = Duration::from_secs(10);

/// Good attempts in a row that lower the level by one, and that overrule an older snapshot.
const GOOD_TO_STEP_DOWN: u32 = 3;

/// Weight of the newest attempt in the average duration: about the last 8 count.
const DURATION_WEIGHT: f64 = 1.0 / 8.0;

/// By Little's law more slots bring more answers only while an answer takes no longer for it. Beyond
/// its cap, a target keeps slots only while its attempts take less than so many times the best
/// average lately, and so many milliseconds, which are noise of a busy machine.
const CONGESTED_TIMES: f64 = 3.0;
const CONGESTED_BY_MIN_MS: f64 = 2.0;

/// How fast the best average forgets: within some ten thousand attempts.
const BEST_DRIFT: f64 = 1.0 / 16_384.0;

/// Attempts that must have succeeded quickly in a row before a target is proven.
const PROVEN_AFTER: u32 = 4;

/// A target whose oldest running attempt is this much older than its average one has perhaps
/// stopped answering: until that attempt ends, it counts as unproven.
const SUSPECT_TIMES: f64 = 8.0;

/// The end of a pause differs by no more than this between those who were told of it.
const PAUSE_DRIFT: Duration = Duration::from_secs(1);

/// Below this age no running attempt makes a target suspect; less is noise of a busy machine.
const SUSPECT_AFTER_MIN: Duration = Duration::from_millis(50);

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
    /// Wasted slots at which each level begins.
    pub(crate) levels: Levels,
    /// Retryable failures in a row that a hold needs.
    pub(crate) hold_failures: u32,
    /// Time without a success that a hold needs.
    pub(crate) hold_after: Duration,
    /// First pause between probes of a held target.
    pub(crate) probe_interval_min: Duration,
    /// Longest pause between probes.
    pub(crate) probe_interval_max: Duration,
}

/// Shares of the slots, wasted on one target, from which each level holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Levels([f64; LEVEL_MAX as usize]);

/// Half a percent is where one target is felt by nobody yet but hundreds of them would be; each
/// further level is four times as bad.
impl Default for Levels {
    fn default() -> Self {
        Self([0.005, 0.02, 0.08])
    }
}

impl Levels {
    /// What [`Self::parse`] takes.
    pub(crate) const FORM: &str =
        "three rising percentages of the slots, above 0% and at most 100%, as 0.5%,2%,8%";

    /// However few slots there are, a single slow answer is no level.
    const WASTED_MIN: [f64; LEVEL_MAX as usize] = [0.25, 0.5, 1.0];

    /// Reads three rising percentages.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let share = |word: &str| -> Option<f64> {
            let percent: f64 = word.trim().strip_suffix('%')?.trim().parse().ok()?;
            (percent > 0.0 && percent <= 100.0).then_some(percent / 100.0)
        };
        let shares: Option<Vec<f64>> = text.split(',').map(share).collect();
        shares
            .and_then(|shares| <[f64; LEVEL_MAX as usize]>::try_from(shares).ok())
            .filter(|shares| shares.is_sorted_by(|lower, higher| lower < higher))
            .map(Self)
            .ok_or_else(|| Self::FORM.to_owned())
    }
}

impl PolicySettings {
    /// The level of a target on which so many slots are wasted.
    fn level_for(&self, wasted: f64) -> u8 {
        #[expect(clippy::cast_precision_loss, reason = "slots are far below 2^52")]
        let slots = self.slots as f64;
        let steps = self.levels.0.iter().zip(Levels::WASTED_MIN);
        let reached = steps.take_while(|(share, floor)| wasted >= (**share * slots).max(*floor));
        u8::try_from(reached.count()).expect("there are three steps")
    }
}

/// What people, other workers and the snapshot say about a target.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Directive {
    /// Nothing is attempted.
    pub(crate) paused: bool,
    /// This worker's part of the slots that all workers together may hold.
    pub(crate) max_in_flight: Option<usize>,
    /// This worker's part of the attempts a second.
    pub(crate) rate_per_second: Option<f64>,
    /// A level that people fixed.
    pub(crate) penalty_pin: Option<u8>,
    /// The level that follows from its waiting retries.
    pub(crate) failing: u8,
    /// The level that other workers found.
    pub(crate) penalty: u8,
    /// It asked another worker not to be called until then.
    pub(crate) asked_until: Option<Duration>,
    /// Its circuit, as all workers share it; `None` while it is closed.
    pub(crate) circuit: Option<HeardCircuit>,
}

impl Directive {
    /// True if a person has ended a pause that lasts `until`: what is shared held the target for as
    /// long, and does so no more. When a circuit opens or closes, another time takes the place of
    /// the pause, which is no such end.
    fn lifts(&self, until: Duration, before: &Self) -> bool {
        self.circuit.is_some() == before.circuit.is_some()
            && before.holds(until)
            && !self.holds(until)
    }

    /// True if it is held until then. A pause is told as a length, so that its end moves a little.
    pub(crate) fn holds(&self, until: Duration) -> bool {
        let probe_at = self.circuit.map(|circuit| circuit.probe_at);
        let held_until = probe_at.or(self.asked_until);
        held_until.is_some_and(|held_until| held_until + PAUSE_DRIFT >= until)
    }
}

/// An open circuit, as all workers share it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct HeardCircuit {
    /// Nobody attempts anything before.
    pub(crate) probe_at: Duration,
    /// The pause between probes.
    pub(crate) interval: Duration,
}
