//! What the heads hear of targets from people and other workers, and what they have to tell.

use std::{collections::HashMap, time::Duration};

use hook_common::{queue::CircuitNews, target::TargetId};

use super::{
    Heads,
    entry::{Class, Entry},
};
use crate::policy::Directive;

/// What this worker found about a target.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Found {
    pub(crate) level: u8,
    pub(crate) failures_in_row: u32,
    pub(crate) asked_until: Option<Duration>,
}

impl Found {
    /// What others must hear of at once when it changes; the rest is told along with it.
    pub(crate) fn what_matters(&self) -> (u8, Option<Duration>) {
        (self.level, self.asked_until)
    }

    fn of(entry: &Entry, now: Duration) -> Self {
        Self {
            level: entry.found_level(),
            failures_in_row: entry.health.failures_in_row(),
            asked_until: entry.health.asked_until().filter(|until| *until > now),
        }
    }
}

impl Heads {
    /// Takes over what people and other workers say about a target.
    pub(crate) fn direct(&mut self, target_id: TargetId, directive: Directive, now: Duration) {
        if directive == Directive::default() && !self.targets.contains_key(&target_id) {
            return;
        }
        let entry = self.targets.entry(target_id).or_default();
        // A limit begins without what it might have saved up.
        if directive.rate_per_second.is_some() && entry.directive.rate_per_second.is_none() {
            entry.tokens = 0.0;
            entry.tokens_at = now;
        }
        entry.health.hear(&directive, &entry.directive);
        entry.directive = directive;
        self.refile(target_id, now);
    }

    /// Targets whose jobs wait for a probe that is due, up to `limit`.
    pub(crate) fn probes_due(&self, limit: usize, now: Duration) -> Vec<TargetId> {
        let wants = |entry: &Entry| {
            let due = |class| entry.due(class).is_some_and(|due| due <= now);
            entry.health.circuit().probe_is_due(now)
                && entry.health.in_flight() == 0
                && !entry.directive.paused
                && Class::ALL.into_iter().any(due)
        };
        let wanting = self.targets.iter().filter(|(_, entry)| wants(entry));
        wanting
            .map(|(target_id, _)| *target_id)
            .take(limit)
            .collect()
    }

    /// Lets one attempt of a held target look whether it is back.
    pub(crate) fn grant_probe(&mut self, target_id: TargetId, now: Duration) {
        if let Some(entry) = self.targets.get_mut(&target_id) {
            entry.health.circuit_mut().grant_probe(now);
            self.refile(target_id, now);
        }
    }

    /// Takes what other workers must hear about circuits; what could not be told comes back
    /// through [`Heads::untold`].
    pub(crate) fn take_news(&mut self, now: Duration) -> HashMap<TargetId, CircuitNews> {
        let news = self.targets.iter_mut().filter_map(|(target_id, entry)| {
            let news = entry.health.circuit_mut().take_news(now)?;
            Some((*target_id, news))
        });
        news.collect()
    }

    /// Puts back what could not be told.
    pub(crate) fn untold(&mut self, news: &HashMap<TargetId, CircuitNews>) {
        for (target_id, news) in news {
            if let Some(entry) = self.targets.get_mut(target_id) {
                entry.health.circuit_mut().untold(*news);
            }
        }
    }

    /// What this worker itself found about a target, if that is anything.
    pub(crate) fn finding(&self, target_id: TargetId, now: Duration) -> Found {
        self.targets
            .get(&target_id)
            .map_or_else(Found::default, |entry| Found::of(entry, now))
    }

    /// Every target that this worker itself found to be penalised or that asked for a pause.
    pub(crate) fn findings(&self, now: Duration) -> impl Iterator<Item = (TargetId, Found)> {
        let found = self
            .targets
            .iter()
            .map(move |(target_id, entry)| (*target_id, Found::of(entry, now)));
        found.filter(|(_, found)| found.level > 0 || found.asked_until.is_some())
    }
}
