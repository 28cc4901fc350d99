//! Heads: which targets have work, and the order in which a dequeue asks for it.
//!
//! Pure: no clock, no I/O. The worker keeps one `Heads` under a short lock; wake-ups, sweeps and
//! ended attempts change it, and each dequeue asks it to [`Heads::pick`].
//!
//! Targets with due work and room under their cap wait in lanes, one pair (first tries, retries)
//! per level. A pick serves the lanes in the order of their levels and goes round robin inside a
//! lane. What it keeps:
//!
//! - no target holds more slots than its cap and its window, except lent ones: idle slots, never
//!   the last quarter, lent to a target whose attempts end quickly while nobody else can use them;
//! - targets that are not proven, or whose running attempts seem to hang, or that are penalised,
//!   share at most three quarters of the slots, so that proven ones find a free slot; and when half
//!   of the slots are theirs, any other target gets one slot at a time in the last quarter;
//! - penalised targets get at most a fifth of the slots while healthy jobs wait, at most half
//!   otherwise, and always a sixteenth, so that they hold a twentieth also between two picks; one
//!   pick in eight begins with the worst of them;
//! - retries get a tenth while first tries wait;
//! - a dequeue brings few jobs of one target, and while one for many jobs is under way another may be
//!   made for other targets, so that a busy target does not have the next job of a quiet one wait.
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

use self::entry::{Class, Entry, Standing, share, tier_index};
pub(crate) use self::sharing::Found;
use crate::policy::{PolicySettings, Running};

mod entry;
mod pick;
mod sharing;
#[cfg(test)]
mod tests;

/// Highest level there is; people may pin it.
const LEVELS: usize = 10;

/// How far behind the last job taken a probe starts, so that jobs whose transaction committed
/// late are still seen; older ones are found by the sweep. Every probe walks what was taken within
/// the margin, so at full rate each second of it costs as much as finding the jobs.
const LOW_MARGIN: TimeDelta = TimeDelta::seconds(1);

/// Share of a batch that retries get while first tries wait.
const RETRY_SHARE: f64 = 0.1;

/// One in so many picks begins with the worst of the penalised targets.
const WORST_FIRST_EVERY: usize = 8;

/// Penalised targets get one slot in so many before anybody else.
const FLOOR_TURNS: usize = 16;

/// Jobs of one target in one dequeue. More would make the statement longer, and every job behind it
/// wait for that, without more deliveries: a target that has more is asked again at once.
const TARGET_TAKE_MAX: usize = 16;

/// A dequeue for so many jobs may have another one beside it. Smaller ones are over sooner than it
/// pays to split a batch.
const LARGE_DEQUEUE: usize = 16;

/// Targets remembered although they have nothing to do.
const IDLE_TARGETS_MAX: usize = 50_000;

/// A head to ask for, and how many wake-ups its target had seen by then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick {
    pub(crate) head: Head,
    wakes: u64,
    // What its jobs are promised from.
    standing: Standing,
}

impl Pick {
    /// Jobs asked for.
    pub(crate) fn take(&self) -> usize {
        usize::try_from(self.head.take).expect("a take is never negative")
    }
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
    // Attempts by the standing of their targets.
    in_flight: [usize; 3],
    // Jobs that dequeues under way may bring, likewise.
    asked: [usize; 3],
    retry_credit: f64,
    penalised_turn: usize,
    floor_turn: usize,
}

/// Targets of one level and class that wait to be served.
#[derive(Debug, Default)]
struct Lane {
    // A target that moved to another lane leaves a void place behind.
    line: VecDeque<TargetId>,
    // Places that are not void.
    waiting: usize,
}

/// An attempt that holds a slot.
#[derive(Debug)]
pub(crate) struct Slot {
    target_id: TargetId,
    running: Running,
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
            asked: [0; 3],
            retry_credit: 0.0,
            penalised_turn: 0,
            floor_turn: 0,
        }
    }

    /// How many targets and slots are in which state.
    pub(crate) fn counts(&self, now: Duration) -> Counts {
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
                .filter(|entry| entry.is_held(now))
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
        self.answered(pick);
        self.refile(pick.head.target_id, now);
    }

    /// Takes over what a dequeue brought for a pick.
    pub(crate) fn dequeued(&mut self, pick: &Pick, taken: Taken, now: Duration) {
        self.answered(pick);
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

    /// True while dequeues for many jobs are under way.
    pub(crate) fn asks_for_many(&self) -> bool {
        self.asked.iter().sum::<usize>() >= LARGE_DEQUEUE
    }

    /// Notes that the dequeue with this pick is over.
    fn answered(&mut self, pick: &Pick) {
        self.asked[pick.standing as usize] -= pick.take();
        if let Some(entry) = self.targets.get_mut(&pick.head.target_id) {
            entry.asked = entry.asked.saturating_sub(1);
        }
    }

    /// Notes that an attempt starts, and takes a slot for it.
    pub(crate) fn start(&mut self, target_id: TargetId, now: Duration) -> Slot {
        let entry = self.targets.entry(target_id).or_default();
        let running = entry.health.start(now);
        self.in_flight[entry.stands_as as usize] += 1;
        self.restand(target_id, now);
        self.busy.insert(target_id);
        Slot { target_id, running }
    }

    /// Notes what an attempt came to, and frees its slot; true if it was the probe of a held target.
    /// `None` tells nothing about the target.
    pub(crate) fn end(&mut self, slot: Slot, outcome: Option<Outcome>, now: Duration) -> bool {
        let mut was_probe = false;
        if let Some(entry) = self.targets.get_mut(&slot.target_id) {
            was_probe = entry.health.is_probe(slot.running);
            self.in_flight[entry.stands_as as usize] -= 1;
            match outcome {
                Some(outcome) => entry.health.end(slot.running, outcome, now, &self.settings),
                None => entry.health.abandon(slot.running),
            }
            if entry.health.in_flight() == 0 {
                self.busy.remove(&slot.target_id);
            }
        }
        self.refile(slot.target_id, now);
        was_probe
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
            } else {
                self.restand(target_id, now);
            }
        }
    }

    /// Lowers the level of penalised targets that have nothing to do, and forgets idle targets
    /// when there are too many.
    pub(crate) fn relax(&mut self, now: Duration) {
        for entry in self.targets.values_mut() {
            entry.health.end_pause(now);
            if entry.health.level() > 0 {
                entry.health.relax(now);
            }
        }
        if self.targets.len() > IDLE_TARGETS_MAX {
            self.targets.retain(|_, entry| !entry.is_idle());
        }
    }

    /// Slots in use.
    fn in_flight(&self) -> usize {
        self.in_flight.iter().sum()
    }

    /// Counts the attempts of a target where it stands now.
    fn restand(&mut self, target_id: TargetId, now: Duration) {
        if let Some(entry) = self.targets.get_mut(&target_id) {
            let attempts = entry.health.in_flight();
            self.in_flight[entry.stands_as as usize] -= attempts;
            entry.stands_as = entry.standing(now);
            self.in_flight[entry.stands_as as usize] += attempts;
        }
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
        self.restand(target_id, now);
        let Some(entry) = self.targets.get_mut(&target_id) else {
            return;
        };
        // What a dequeue is asking for is put in line again when that is over.
        if entry.is_shut(now) || entry.asked > 0 {
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
