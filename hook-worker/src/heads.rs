//! Heads: which targets have work, and the order in which a dequeue asks for it.
//!
//! Pure: no clock, no I/O. The worker keeps one `Heads` under a short lock; wake-ups, sweeps and
//! ended attempts change it, and each dequeue asks it to [`Heads::pick`].
//!
//! Targets with due work and room under their cap wait in lanes, one pair (first tries, retries)
//! per level. A pick serves the lanes in the order of their levels and goes round robin inside a
//! lane. What it keeps:
//!
//! - no target holds more slots than its cap, except lent ones: idle slots, never the last
//!   quarter, lent to a target whose attempts end quickly while nobody else can use them;
//! - targets that are not proven share at most three quarters of the slots, so that proven ones
//!   always find a free slot however many new targets turn out to hang;
//! - penalised targets get at most a fifth of the slots while healthy jobs wait, at most half
//!   otherwise, and always a twentieth;
//! - retries get a tenth of each lane pair while first tries wait.
//!
//! Deliberately absent: jobs. Only Postgres knows how many there are and hands them out.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use hook_common::{
    job::{Outcome, Tier},
    queue::{Head, SweptHead},
    target::TargetId,
};

use crate::policy::{Directive, Health, LEVEL_MAX, PolicySettings, Running};

mod pick;
#[cfg(test)]
mod tests;

/// Highest level there is; people may pin it.
const LEVELS: usize = 10;

/// How far behind the last job taken a probe starts, so that jobs whose transaction committed
/// late are still seen; older ones are found by the sweep.
const LOW_MARGIN: TimeDelta = TimeDelta::seconds(5);

/// Share of a batch that retries get while first tries wait.
const RETRY_SHARE: f64 = 0.1;

/// Targets remembered although they have nothing to do.
const IDLE_TARGETS_MAX: usize = 50_000;

/// First tries and retries of one level.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Class {
    First,
    Retry,
}

impl Class {
    const ALL: [Self; 2] = [Self::First, Self::Retry];

    const fn tiers(self) -> &'static [Tier] {
        match self {
            Self::First => &[Tier::Primary, Tier::DegradedFirst],
            Self::Retry => &[Tier::DegradedRetry],
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::First => 0,
            Self::Retry => 1,
        }
    }
}

/// What is known of one line of a target.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    due: Option<Duration>,
    low: Option<DateTime<Utc>>,
}

#[derive(Debug, Default)]
struct Entry {
    health: Health,
    directive: Directive,
    lines: [Line; 3],
    // The level of the lane that it waits in, for each class.
    waits_in: [Option<usize>; 2],
    lendable: bool,
    stalled: bool,
    wakes: u64,
    tokens: f64,
    tokens_at: Duration,
}

/// A head to ask for, and how many wake-ups its target had seen by then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick {
    pub(crate) head: Head,
    wakes: u64,
}

/// What a dequeue brought for one pick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// Jobs leased from it.
    pub(crate) jobs: usize,
    /// When the last of them was due.
    pub(crate) last_run_at: Option<DateTime<Utc>>,
    /// False if the batch was full before the head was looked at to its end.
    pub(crate) exhausted: bool,
}

/// The targets that this worker serves.
#[derive(Debug)]
pub(crate) struct Heads {
    settings: PolicySettings,
    tiers: std::ops::RangeInclusive<Tier>,
    targets: HashMap<TargetId, Entry>,
    lanes: Vec<[Lane; 2]>,
    lendable: VecDeque<TargetId>,
    stalled: VecDeque<TargetId>,
    later: BTreeSet<(Duration, TargetId)>,
    busy: HashSet<TargetId>,
    // Attempts by the standing they started with.
    in_flight: [usize; 3],
    retry_credit: f64,
}

/// Targets of one level and class that wait to be served.
#[derive(Debug, Default)]
struct Lane {
    // A target that moved to another lane leaves a void place behind.
    line: VecDeque<TargetId>,
    // Places that are not void.
    waiting: usize,
}

/// Which shared allowance an attempt uses; fixed when it starts, so that it is given back to the
/// same one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Standing {
    Proven,
    Unproven,
    Penalised,
}

/// An attempt that holds a slot.
#[derive(Debug)]
pub(crate) struct Slot {
    target_id: TargetId,
    running: Running,
    standing: Standing,
}

/// How many targets and slots are in which state.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Counts {
    pub(crate) known: usize,
    pub(crate) due: usize,
    pub(crate) penalised: usize,
    pub(crate) held: usize,
    pub(crate) penalised_slots: usize,
}

impl Heads {
    pub(crate) fn new(settings: PolicySettings, tiers: std::ops::RangeInclusive<Tier>) -> Self {
        Self {
            settings,
            tiers,
            targets: HashMap::new(),
            lanes: (0..LEVELS).map(|_| Default::default()).collect(),
            lendable: VecDeque::new(),
            stalled: VecDeque::new(),
            later: BTreeSet::new(),
            busy: HashSet::new(),
            in_flight: [0; 3],
            retry_credit: 0.0,
        }
    }

    /// How many targets and slots are in which state.
    pub(crate) fn counts(&self) -> Counts {
        let due = |entry: &&Entry| entry.lines.iter().any(|line| line.due.is_some());
        Counts {
            known: self.targets.len(),
            due: self.targets.values().filter(due).count(),
            penalised: self
                .targets
                .values()
                .filter(|entry| entry.level() > 0)
                .count(),
            held: self
                .targets
                .values()
                .filter(|entry| entry.held_until().is_some())
                .count(),
            penalised_slots: self.in_flight[Standing::Penalised as usize],
        }
    }

    /// When a head that is waiting for its time comes due.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.later.first().map(|(at, _)| *at)
    }

    /// Notes that a target may have a job from `at` on.
    pub(crate) fn wake(&mut self, target_id: TargetId, tier: Tier, at: Duration, now: Duration) {
        if !self.tiers.contains(&tier) {
            return;
        }
        let entry = self.targets.entry(target_id).or_default();
        entry.wakes += 1;
        let line = &mut entry.lines[tier_index(tier)];
        line.due = Some(line.due.map_or(at, |due| due.min(at)));
        self.refile(target_id, now);
    }

    /// Takes over what a sweep found.
    pub(crate) fn swept(&mut self, head: &SweptHead, now: Duration) {
        let entry = self.targets.entry(head.target_id).or_default();
        let line = &mut entry.lines[tier_index(head.tier)];
        // A job before the mark was stored late or given back; look from the beginning once.
        if line.low.is_some_and(|low| head.run_at < low) {
            line.low = None;
        }
        self.wake(head.target_id, head.tier, now + head.due_in, now);
    }

    /// Takes over what people and other workers say about a target.
    pub(crate) fn direct(&mut self, target_id: TargetId, directive: Directive, now: Duration) {
        if directive == Directive::default() && !self.targets.contains_key(&target_id) {
            return;
        }
        self.targets.entry(target_id).or_default().directive = directive;
        self.refile(target_id, now);
    }

    /// Holds a target back as it asked for.
    pub(crate) fn hold(&mut self, target_id: TargetId, until: Duration, now: Duration) {
        self.targets
            .entry(target_id)
            .or_default()
            .health
            .hold_as_asked(until);
        self.refile(target_id, now);
    }

    /// Puts a pick back whose dequeue failed.
    pub(crate) fn not_dequeued(&mut self, pick: &Pick, now: Duration) {
        self.refile(pick.head.target_id, now);
    }

    /// Takes over what a dequeue brought for a pick.
    pub(crate) fn dequeued(&mut self, pick: &Pick, taken: Taken, now: Duration) {
        let target_id = pick.head.target_id;
        let Some(entry) = self.targets.get_mut(&target_id) else {
            return;
        };
        let line = &mut entry.lines[tier_index(pick.head.tier)];
        if let Some(last) = taken.last_run_at {
            line.low = Some(last - LOW_MARGIN);
        }
        // A wake-up since the pick may speak of a job that the dequeue could not see yet.
        if taken.exhausted && entry.wakes == pick.wakes {
            line.due = None;
        }
        if let Some(rate) = entry.directive.rate_per_second {
            #[expect(clippy::cast_precision_loss, reason = "a batch is far below 2^52")]
            let used = taken.jobs as f64;
            entry.tokens = entry.tokens_now(rate, now) - used;
            entry.tokens_at = now;
        }
        self.refile(target_id, now);
    }

    /// Notes that an attempt starts, and takes a slot for it.
    pub(crate) fn start(&mut self, target_id: TargetId, now: Duration) -> Slot {
        let entry = self.targets.entry(target_id).or_default();
        let standing = entry.standing();
        let running = entry.health.start(now);
        self.in_flight[standing as usize] += 1;
        self.busy.insert(target_id);
        Slot {
            target_id,
            running,
            standing,
        }
    }

    /// Notes what an attempt came to, and frees its slot. `None` tells nothing about the target.
    pub(crate) fn end(&mut self, slot: Slot, outcome: Option<Outcome>, now: Duration) {
        self.in_flight[slot.standing as usize] -= 1;
        if let Some(entry) = self.targets.get_mut(&slot.target_id) {
            match outcome {
                Some(outcome) => entry.health.end(slot.running, outcome, now, &self.settings),
                None => entry.health.abandon(slot.running),
            }
            if entry.health.in_flight() == 0 {
                self.busy.remove(&slot.target_id);
            }
        }
        self.refile(slot.target_id, now);
    }

    /// Looks at the attempts that run; to be called every `since`.
    pub(crate) fn observe(&mut self, now: Duration, since: Duration) {
        let crowded = self.in_flight() > share(self.settings.slots, 2);
        let busy: Vec<TargetId> = self.busy.iter().copied().collect();
        for target_id in busy {
            let Some(entry) = self.targets.get_mut(&target_id) else {
                continue;
            };
            let before = entry.level();
            entry
                .health
                .observe_running(now, since, crowded, &self.settings);
            if entry.level() != before {
                self.refile(target_id, now);
            }
        }
    }

    /// Lowers the level of penalised targets that have nothing to do, and forgets idle targets
    /// when there are too many.
    pub(crate) fn relax(&mut self, now: Duration) {
        for entry in self
            .targets
            .values_mut()
            .filter(|entry| entry.health.level() > 0)
        {
            entry.health.relax(now);
        }
        if self.targets.len() > IDLE_TARGETS_MAX {
            self.targets.retain(|_, entry| !entry.is_idle());
        }
    }

    /// Every target that this worker itself found to be penalised, held or failing.
    pub(crate) fn findings(&self) -> impl Iterator<Item = (TargetId, &Health)> {
        self.targets
            .iter()
            .filter(|(_, entry)| entry.health.level() > 0 || entry.health.held_until().is_some())
            .map(|(target_id, entry)| (*target_id, &entry.health))
    }

    /// Slots in use.
    fn in_flight(&self) -> usize {
        self.in_flight.iter().sum()
    }

    /// Moves heads whose time has come into their lanes.
    fn promote_due(&mut self, now: Duration) {
        while let Some(&(at, target_id)) = self.later.first()
            && at <= now
        {
            self.later.pop_first();
            self.refile(target_id, now);
        }
    }

    /// Puts a target where it belongs now: into a lane, among those that may borrow, or on the
    /// list of what is due later.
    fn refile(&mut self, target_id: TargetId, now: Duration) {
        let Some(entry) = self.targets.get_mut(&target_id) else {
            return;
        };
        if entry.directive.paused {
            return;
        }
        let level = usize::from(entry.level());
        for class in Class::ALL {
            let Some(due) = entry.due(class) else {
                continue;
            };
            if let Some(at) = entry.open_at(due, now) {
                self.later.insert((at, target_id));
            } else if entry.room(&self.settings, now) > 0 {
                let index = class.index();
                let before = entry.waits_in[index].replace(level);
                if before != Some(level) {
                    if let Some(before) = before {
                        self.lanes[before][index].waiting -= 1;
                    }
                    self.lanes[level][index].line.push_back(target_id);
                    self.lanes[level][index].waiting += 1;
                }
            } else if !entry.lendable && entry.may_borrow(&self.settings, now) {
                entry.lendable = true;
                self.lendable.push_back(target_id);
            }
        }
    }
}

impl Entry {
    /// The level that counts: what people fixed, else the worse of what this worker and the shared
    /// snapshot found, unless the target has just shown that it is well.
    fn level(&self) -> u8 {
        let snapshot = if self.health.overrules_snapshot() {
            0
        } else {
            self.directive.penalty.min(LEVEL_MAX)
        };
        self.directive
            .penalty_pin
            .unwrap_or_else(|| self.health.level().max(snapshot))
    }

    fn standing(&self) -> Standing {
        if self.level() > 0 {
            Standing::Penalised
        } else if self.health.proven() {
            Standing::Proven
        } else {
            Standing::Unproven
        }
    }

    fn held_until(&self) -> Option<Duration> {
        self.health.held_until().max(self.directive.held_until)
    }

    /// True if a job of this class may be asked for now.
    fn is_open(&self, class: Class, now: Duration) -> bool {
        !self.directive.paused
            && self
                .due(class)
                .is_some_and(|due| self.open_at(due, now).is_none())
    }

    /// When the first job of a class is due; `None` if it has none.
    fn due(&self, class: Class) -> Option<Duration> {
        class
            .tiers()
            .iter()
            .filter_map(|tier| self.lines[tier_index(*tier)].due)
            .min()
    }

    /// When the target may be asked for a job that is due then; `None` if at once.
    fn open_at(&self, due: Duration, now: Duration) -> Option<Duration> {
        let held = self.held_until().filter(|until| *until > now);
        let refilled = self.directive.rate_per_second.and_then(|rate| {
            let missing = 1.0 - self.tokens_now(rate, now);
            (missing > 0.0).then(|| now + Duration::from_secs_f64((missing / rate).min(3600.0)))
        });
        Some(due).filter(|due| *due > now).max(held).max(refilled)
    }

    /// Tokens of the rate limit, at most one second's worth.
    fn tokens_now(&self, rate: f64, now: Duration) -> f64 {
        let earned = now.saturating_sub(self.tokens_at).as_secs_f64() * rate;
        (self.tokens + earned).min(rate.max(1.0))
    }

    /// Slots that it may take on its own account.
    fn room(&self, settings: &PolicySettings, now: Duration) -> usize {
        let mut cap = self
            .directive
            .max_in_flight
            .unwrap_or(settings.target_in_flight_max);
        if self.level() > 0 {
            cap = cap.min(settings.penalised_in_flight_max);
        }
        // Held, and its time has come: one probe.
        if self.health.probing() {
            cap = cap.min(1);
        }
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
    fn may_borrow(&self, settings: &PolicySettings, now: Duration) -> bool {
        self.level() == 0
            && self.directive.max_in_flight.is_none()
            && self.directive.rate_per_second.is_none()
            && self.health.quick(now, settings)
    }

    fn is_idle(&self) -> bool {
        self.health.forgettable()
            && self.directive == Directive::default()
            && self.lines.iter().all(|line| line.due.is_none())
    }
}

const fn tier_index(tier: Tier) -> usize {
    match tier {
        Tier::Primary => 0,
        Tier::DegradedFirst => 1,
        Tier::DegradedRetry => 2,
    }
}

/// One part in `parts` of the slots, rounded up.
const fn share(slots: usize, parts: usize) -> usize {
    slots.div_ceil(parts)
}
