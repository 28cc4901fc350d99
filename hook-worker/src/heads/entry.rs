//! One target as the heads see it: its lines, what is said and seen of it, and what follows.

use std::time::Duration;

use chrono::{DateTime, Utc};
use hook_common::job::Tier;

use crate::policy::{Directive, Health, LEVEL_MAX, PolicySettings};

/// First tries and retries of one level.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Class {
    First,
    Retry,
}

impl Class {
    pub(super) const ALL: [Self; 2] = [Self::First, Self::Retry];

    pub(super) const fn tiers(self) -> &'static [Tier] {
        match self {
            Self::First => &[Tier::Primary, Tier::DegradedFirst],
            Self::Retry => &[Tier::DegradedRetry],
        }
    }

    pub(super) const fn index(self) -> usize {
        match self {
            Self::First => 0,
            Self::Retry => 1,
        }
    }
}

/// What is known of one line of a target.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    pub(super) due: Option<Duration>,
    pub(super) low: Option<DateTime<Utc>>,
}

#[derive(Debug, Default)]
pub(super) struct Entry {
    /// The allowance that its running attempts are counted in.
    pub(super) stands_as: Standing,
    pub(super) health: Health,
    pub(super) directive: Directive,
    pub(super) lines: [Line; 3],
    // The level of the lane that it waits in, for each class.
    pub(super) waits_in: [Option<usize>; 2],
    pub(super) lendable: bool,
    pub(super) stalled: bool,
    /// With both lines of first tries due and one job to ask for, the other one is asked next.
    pub(super) other_first: bool,
    /// Its heads that a dequeue under way asks for.
    pub(super) asked: u8,
    pub(super) wakes: u64,
    pub(super) tokens: f64,
    pub(super) tokens_at: Duration,
}

/// Which shared allowance the attempts of a target use.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Standing {
    Proven,
    #[default]
    Unproven,
    Penalised,
}

impl Entry {
    /// The level that counts: what people fixed, else the worst of what this worker, the others and
    /// the snapshot found, unless the target has just shown that it is well.
    pub(super) fn level(&self) -> u8 {
        let heard = if self.health.overrules_snapshot() {
            0
        } else {
            self.directive.penalty.min(LEVEL_MAX)
        };
        self.directive
            .penalty_pin
            .unwrap_or_else(|| self.found_level().max(heard))
    }

    /// The level that this worker tells the others: what it heard from them is left out, or they
    /// would confirm each other for ever.
    pub(super) fn found_level(&self) -> u8 {
        let failing = if self.health.overrules_snapshot() {
            0
        } else {
            self.directive.failing
        };
        self.health.level().max(failing)
    }

    pub(super) fn standing(&self, now: Duration) -> Standing {
        if self.level() > 0 {
            Standing::Penalised
        } else if self.health.proven(now) {
            Standing::Proven
        } else {
            Standing::Unproven
        }
    }

    /// When the pause that it asked for is over; `None` if it asked for none.
    fn asked_until(&self) -> Option<Duration> {
        self.health.asked_until().max(self.directive.asked_until)
    }

    /// True if it is held back, because it is down or because it asked for a pause.
    pub(super) fn is_held(&self, now: Duration) -> bool {
        self.health.circuit().is_open() || self.asked_until().is_some_and(|until| until > now)
    }

    /// True if nothing may be asked for until something is said or claimed.
    pub(super) fn is_shut(&self, now: Duration) -> bool {
        let circuit = self.health.circuit();
        self.directive.paused || (circuit.is_open() && !circuit.may_probe(now))
    }

    /// True if a job of this class may be asked for now.
    pub(super) fn is_open(&self, class: Class, now: Duration) -> bool {
        !self.is_shut(now)
            && self
                .due(class)
                .is_some_and(|due| self.open_at(due, now).is_none())
    }

    /// When the first job of a class is due; `None` if it has none.
    pub(super) fn due(&self, class: Class) -> Option<Duration> {
        class
            .tiers()
            .iter()
            .filter_map(|tier| self.lines[tier_index(*tier)].due)
            .min()
    }

    /// When the target may be asked for a job that is due then; `None` if at once.
    pub(super) fn open_at(&self, due: Duration, now: Duration) -> Option<Duration> {
        let asked = self.asked_until().filter(|until| *until > now);
        let refilled = self.directive.rate_per_second.and_then(|rate| {
            let missing = 1.0 - self.tokens_now(rate, now);
            (missing > 0.0).then(|| now + Duration::from_secs_f64((missing / rate).min(3600.0)))
        });
        Some(due).filter(|due| *due > now).max(asked).max(refilled)
    }

    /// Tokens of the rate limit, at most one second's worth.
    pub(super) fn tokens_now(&self, rate: f64, now: Duration) -> f64 {
        let earned = now.saturating_sub(self.tokens_at).as_secs_f64() * rate;
        (self.tokens + earned).min(rate.max(1.0))
    }

    /// Slots that it may take on its own account.
    pub(super) fn room(&self, settings: &PolicySettings, now: Duration) -> usize {
        let mut cap = self
            .directive
            .max_in_flight
            .unwrap_or(settings.target_in_flight_max);
        if self.level() > 0 {
            cap = cap.min(settings.penalised_in_flight_max);
        }
        if self.health.circuit().is_open() {
            cap = cap.min(1);
        }
        cap = cap.min(self.health.window());
        let mut room = cap.saturating_sub(self.health.in_flight());
        if let Some(rate) = self.directive.rate_per_second {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "small, ≥ 0"
            )]
            let tokens = self.tokens_now(rate, now).max(0.0) as usize;
            room = room.min(tokens);
        }
        room
    }

    /// True if idle slots may be lent to it beyond its cap.
    pub(super) fn may_borrow(&self, settings: &PolicySettings, now: Duration) -> bool {
        self.level() == 0
            && self.directive.max_in_flight.is_none()
            && self.directive.rate_per_second.is_none()
            && self.health.in_flight() < self.health.window()
            && self.health.quick(now, settings)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.health.forgettable()
            && self.directive == Directive::default()
            && self.lines.iter().all(|line| line.due.is_none())
    }
}

pub(super) const fn tier_index(tier: Tier) -> usize {
    match tier {
        Tier::Primary => 0,
        Tier::DegradedFirst => 1,
        Tier::DegradedRetry => 2,
    }
}

/// One part in `parts` of the slots, rounded up.
pub(super) const fn share(slots: usize, parts: usize) -> usize {
    slots.div_ceil(parts)
}

/// The slots without the last quarter, which is at least one slot if there are two.
pub(super) const fn without_last_quarter(slots: usize) -> usize {
    let most = slots - share(slots, 4);
    if most == 0 { 1 } else { most }
}
