//! The choice of heads for one dequeue: lanes in the order of their levels, round robin inside.

use std::time::Duration;

use hook_common::{job::Tier, queue::Head, target::TargetId};

use super::{
    FLOOR_TURNS, Heads, LEVELS, Pick, RETRY_SHARE, TARGET_TAKE_MAX, WORST_FIRST_EVERY,
    entry::{Class, Entry, Standing, share, tier_index, without_last_quarter},
};

/// A pick that is being made.
struct Picking {
    picks: Vec<Pick>,
    // Jobs that may still be asked for.
    left: usize,
    // Jobs asked for, here and by the dequeue under way, by the standing of their target.
    promised: [usize; 3],
    now: Duration,
}

impl Picking {
    /// Jobs of this target that were asked for.
    fn asked_of(&self, target_id: TargetId) -> usize {
        let of_target = self
            .picks
            .iter()
            .filter(|pick| pick.head.target_id == target_id);
        of_target.map(Pick::take).sum()
    }

    /// True if this line has due jobs. A head may not be asked twice in one dequeue; the floor may
    /// have asked already.
    fn may_ask(&self, entry: &Entry, target_id: TargetId, tier: Tier) -> bool {
        let asked = |pick: &Pick| pick.head.target_id == target_id && pick.head.tier == tier;
        let due = entry.lines[tier_index(tier)].due;
        due.is_some_and(|due| due <= self.now) && !self.picks.iter().any(asked)
    }

    /// Runs `fill` with at most `room` jobs to ask for.
    fn within(&mut self, room: usize, fill: impl FnOnce(&mut Self)) -> usize {
        let granted = self.left.min(room);
        let beyond = self.left - granted;
        self.left = granted;
        fill(self);
        let used = granted - self.left;
        self.left += beyond;
        used
    }
}

impl Heads {
    /// Chooses the heads of the next dequeue, for at most `limit` jobs; never more than the free
    /// slots, each head at most once, and no target that another dequeue is asking for. Every pick
    /// must be given back with [`Heads::dequeued`] or [`Heads::not_dequeued`].
    pub(crate) fn pick(&mut self, limit: usize, now: Duration) -> Vec<Pick> {
        let asked: usize = self.asked.iter().sum();
        self.promote_due(now);
        self.unstall(limit, now);
        let free = self.settings.slots.saturating_sub(self.in_flight() + asked);
        let mut picking = Picking {
            picks: Vec::new(),
            left: limit.min(free),
            promised: self.asked,
            now,
        };

        let penalised = self.in_flight[Standing::Penalised as usize];
        let floor = self
            .floor()
            .saturating_sub(penalised + self.asked[Standing::Penalised as usize]);
        picking.within(floor, |picking| self.pick_penalised(picking));
        self.pick_retry_share(&mut picking);
        for class in Class::ALL {
            self.pick_lane(0, class, &mut picking);
        }
        self.pick_lendable(&mut picking);
        let parts = if self.healthy_wait() { 5 } else { 2 };
        let ceiling = share(self.settings.slots, parts)
            .saturating_sub(penalised + picking.promised[Standing::Penalised as usize])
            .min(self.room_beside_proven(&picking));
        picking.within(ceiling, |picking| self.pick_penalised(picking));
        self.note_asked(&picking.picks);
        picking.picks
    }

    /// Slots that penalised targets get before anybody else: a sixteenth. Where that is less than
    /// half a slot, it is one slot in some of the picks.
    fn floor(&mut self) -> usize {
        let slots = self.settings.slots;
        if slots >= FLOOR_TURNS / 2 || !self.healthy_wait() {
            return share(slots, FLOOR_TURNS);
        }
        self.floor_turn = (self.floor_turn + slots) % FLOOR_TURNS;
        usize::from(self.floor_turn < slots)
    }

    /// Notes that a dequeue asks for these.
    fn note_asked(&mut self, picks: &[Pick]) {
        for pick in picks {
            if let Some(entry) = self.targets.get_mut(&pick.head.target_id) {
                entry.asked += 1;
            }
            self.asked[pick.standing as usize] += pick.take();
        }
    }

    /// Puts targets back that had to wait for the allowance of the unproven.
    fn unstall(&mut self, limit: usize, now: Duration) {
        let room =
            without_last_quarter(self.settings.slots).saturating_sub(self.others_hold([0; 3]));
        for _ in 0..room.min(limit) {
            let Some(target_id) = self.stalled.pop_front() else {
                return;
            };
            if let Some(entry) = self.targets.get_mut(&target_id) {
                entry.stalled = false;
                self.refile(target_id, now);
            }
        }
    }

    fn healthy_wait(&self) -> bool {
        self.lanes[0].iter().any(|lane| lane.waiting > 0)
    }

    /// Gives retries of healthy targets their tenth before first tries are served.
    fn pick_retry_share(&mut self, picking: &mut Picking) {
        if self.lanes[0][Class::Retry.index()].waiting == 0 {
            self.retry_credit = 0.0;
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "a batch is far below 2^52")]
        let earned = picking.left as f64 * RETRY_SHARE;
        self.retry_credit += earned;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "small, ≥ 0"
        )]
        let credit = self.retry_credit as usize;
        let used = picking.within(credit, |picking| self.pick_lane(0, Class::Retry, picking));
        #[expect(clippy::cast_precision_loss, reason = "a batch is far below 2^52")]
        let spent = used as f64;
        self.retry_credit -= spent;
    }

    /// Serves the penalised lanes in their order, but for one pick in [`WORST_FIRST_EVERY`]: else
    /// those of the lowest level could take the whole allowance for ever.
    fn pick_penalised(&mut self, picking: &mut Picking) {
        let mut lanes: Vec<(usize, Class)> = (1..LEVELS)
            .flat_map(|level| Class::ALL.map(|class| (level, class)))
            .filter(|(level, class)| self.lanes[*level][class.index()].waiting > 0)
            .collect();
        if lanes.is_empty() || picking.left == 0 {
            return;
        }
        self.penalised_turn = (self.penalised_turn + 1) % WORST_FIRST_EVERY;
        if self.penalised_turn == 0 {
            lanes.reverse();
        }
        for (level, class) in lanes {
            self.pick_lane(level, class, picking);
        }
    }

    /// Serves one lane: an even share for each target, and what is left over to those with room.
    fn pick_lane(&mut self, level: usize, class: Class, picking: &mut Picking) {
        let first = picking.picks.len();
        let mut waiting = self.lanes[level][class.index()].waiting;
        while waiting > 0 && picking.left > 0 {
            let lane = &mut self.lanes[level][class.index()];
            let Some(target_id) = lane.line.pop_front() else {
                break;
            };
            let Some(entry) = self.targets.get_mut(&target_id) else {
                continue;
            };
            // It moved to another lane since; this place in line is void.
            if entry.waits_in[class.index()] != Some(level) {
                continue;
            }
            entry.waits_in[class.index()] = None;
            lane.waiting -= 1;
            let fair = picking.left.div_ceil(waiting);
            waiting -= 1;
            // It is put in line again when the dequeue that asks for it is over.
            if entry.asked > 0 {
                continue;
            }
            if usize::from(entry.level()) == level && entry.is_open(class, picking.now) {
                self.pick_target(target_id, class, fair, picking);
            } else {
                self.refile(target_id, picking.now);
            }
        }
        self.top_up(first, picking);
    }

    /// Asks the picks from `first` on for more, within their room: jobs that may be there come
    /// before those of worse lanes.
    fn top_up(&self, first: usize, picking: &mut Picking) {
        for index in first..picking.picks.len() {
            if picking.left == 0 {
                return;
            }
            let target_id = picking.picks[index].head.target_id;
            let Some(entry) = self.targets.get(&target_id) else {
                continue;
            };
            let more = self.room_left(target_id, picking).min(picking.left);
            let take = &mut picking.picks[index].head.take;
            *take = take.saturating_add(i32::try_from(more).unwrap_or(i32::MAX));
            picking.left -= more;
            picking.promised[entry.standing(picking.now) as usize] += more;
        }
    }

    /// Slots that the target may still be promised in this pick.
    fn room_left(&self, target_id: TargetId, picking: &Picking) -> usize {
        let Some(entry) = self.targets.get(&target_id) else {
            return 0;
        };
        let asked = picking.asked_of(target_id);
        let room = entry
            .room(&self.settings, picking.now)
            .min(TARGET_TAKE_MAX)
            .saturating_sub(asked);
        match entry.standing(picking.now) {
            Standing::Unproven => room.min(self.room_beside_proven(picking)),
            // Many targets seem to hang. Any other may be the next one: it gets one slot at a time,
            // which is enough to answer.
            Standing::Proven if self.is_tight(picking) => {
                room.min(1_usize.saturating_sub(entry.health.in_flight() + asked))
            }
            Standing::Proven | Standing::Penalised => room,
        }
    }

    /// True if the last quarter of the slots is being used, and half of all by targets that are not
    /// proven.
    fn is_tight(&self, picking: &Picking) -> bool {
        let slots = self.settings.slots;
        let promised: usize = picking.promised.iter().sum();
        self.in_flight() + promised >= without_last_quarter(slots)
            && self.others_hold(picking.promised) >= share(slots, 2)
    }

    /// Slots of targets that are not proven, with what they were promised.
    fn others_hold(&self, promised: [usize; 3]) -> usize {
        let others = [Standing::Unproven, Standing::Penalised];
        let held =
            others.map(|standing| self.in_flight[standing as usize] + promised[standing as usize]);
        held.iter().sum()
    }

    /// Slots that targets which are not proven may still take: never the last quarter.
    fn room_beside_proven(&self, picking: &Picking) -> usize {
        without_last_quarter(self.settings.slots).saturating_sub(self.others_hold(picking.promised))
    }

    /// Lends idle slots, but for the last quarter, to targets that have reached their cap.
    fn pick_lendable(&mut self, picking: &mut Picking) {
        if self.healthy_wait() {
            return;
        }
        let promised: usize = picking.promised.iter().sum();
        let room =
            without_last_quarter(self.settings.slots).saturating_sub(self.in_flight() + promised);
        picking.within(room, |picking| {
            let waiting = self.lendable.len();
            for served in 0..waiting {
                if picking.left == 0 {
                    return;
                }
                let Some(target_id) = self.lendable.pop_front() else {
                    return;
                };
                let Some(entry) = self.targets.get_mut(&target_id) else {
                    continue;
                };
                entry.lendable = false;
                if entry.asked > 0 || !entry.may_borrow(&self.settings, picking.now) {
                    continue;
                }
                let open = Class::ALL.map(|class| entry.is_open(class, picking.now));
                let health = &entry.health;
                let earned = health.window().saturating_sub(health.in_flight());
                let earned = earned.min(TARGET_TAKE_MAX);
                let fair = picking.left.div_ceil(waiting - served);
                for class in Class::ALL {
                    let unasked = earned.saturating_sub(picking.asked_of(target_id));
                    if open[class.index()] && unasked > 0 {
                        self.ask(target_id, class, fair.min(unasked), picking);
                    }
                }
            }
        });
    }

    /// Asks for up to `fair` jobs of a target, within its room.
    fn pick_target(
        &mut self,
        target_id: TargetId,
        class: Class,
        fair: usize,
        picking: &mut Picking,
    ) {
        let take = fair.min(self.room_left(target_id, picking));
        let Some(entry) = self.targets.get_mut(&target_id) else {
            return;
        };
        if take > 0 {
            self.ask(target_id, class, take, picking);
        } else if entry.room(&self.settings, picking.now) == 0 {
            // It reached its cap since it was put in line; it may borrow.
            self.refile(target_id, picking.now);
        } else if entry.standing(picking.now) == Standing::Unproven && !entry.stalled {
            entry.stalled = true;
            self.stalled.push_back(target_id);
        }
    }

    /// Adds the due heads of a class to the pick, `take` jobs in all.
    fn ask(&mut self, target_id: TargetId, class: Class, take: usize, picking: &mut Picking) {
        let Some(entry) = self.targets.get_mut(&target_id) else {
            return;
        };
        let standing = entry.standing(picking.now);
        let tiers = class.tiers();
        let mut lines = tiers
            .iter()
            .filter(|tier| picking.may_ask(entry, target_id, **tier))
            .count();
        let reversed = lines > 1 && entry.other_first;
        entry.other_first ^= lines > 1;
        let mut left = take.min(picking.left);
        for place in 0..tiers.len() {
            let place = if reversed {
                tiers.len() - 1 - place
            } else {
                place
            };
            let tier = tiers[place];
            if !picking.may_ask(entry, target_id, tier) {
                continue;
            }
            let take = left.div_ceil(lines);
            if take == 0 {
                return;
            }
            lines -= 1;
            picking.picks.push(Pick {
                head: Head {
                    target_id,
                    tier,
                    take: i32::try_from(take).unwrap_or(i32::MAX),
                    low: entry.lines[tier_index(tier)].low,
                },
                wakes: entry.wakes,
                standing,
            });
            left -= take;
            picking.left -= take;
            picking.promised[standing as usize] += take;
        }
    }
}
