//! The circuit of a target that is down: its jobs wait, single probes look whether it is back.
//!
//! The workers share one circuit per target in Postgres, so that there is one probe at a time for
//! all of them. What this worker does to it (opens it, fails a probe, succeeds) is news that it
//! tells the others; until they were told, nothing they say overrules it.

use std::time::Duration;

use hook_common::queue::{CircuitNews, NextProbe};

use super::{HeardCircuit, PolicySettings};

/// A claimed probe that found no job within this time is given up, so that it cannot meet the
/// next one.
const PROBE_GRANT: Duration = Duration::from_secs(5);

/// Whether a target is held because it is down.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Circuit {
    open: Option<Open>,
    news: Option<News>,
}

/// What the other workers were not told yet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum News {
    Opened,
    ProbeFailed,
    Released,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    probe_at: Duration,
    interval: Duration,
    /// This worker may make one probe until then.
    granted_until: Option<Duration>,
}

impl Circuit {
    /// True while it is open.
    pub(crate) const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// True if this worker may make a probe now.
    pub(crate) fn may_probe(&self, now: Duration) -> bool {
        self.open
            .and_then(|open| open.granted_until)
            .is_some_and(|until| now < until)
    }

    /// True if the time for a probe has come and none was claimed.
    pub(crate) fn probe_is_due(&self, now: Duration) -> bool {
        self.open.is_some_and(|open| open.probe_at <= now) && !self.may_probe(now)
    }

    /// Takes over the right to one probe.
    pub(crate) fn grant_probe(&mut self, now: Duration) {
        if let Some(open) = &mut self.open {
            open.granted_until = Some(now + PROBE_GRANT);
        }
    }

    /// Notes that the probe is under way: there is only the one.
    pub(super) fn probe_started(&mut self) {
        if let Some(open) = &mut self.open {
            open.granted_until = None;
        }
    }

    /// Opens it.
    pub(super) fn open(&mut self, now: Duration, settings: &PolicySettings) {
        let interval = settings.probe_interval_min;
        self.open = Some(Open {
            probe_at: now + interval,
            interval,
            granted_until: None,
        });
        self.news = Some(News::Opened);
    }

    /// Notes that a probe failed after it `took` so long. The next interval counts from its start,
    /// so that a target that hangs is looked at as often as one that refuses.
    pub(super) fn probe_failed(
        &mut self,
        took: Duration,
        now: Duration,
        settings: &PolicySettings,
    ) {
        if let Some(open) = &mut self.open {
            open.interval = (open.interval * 2).min(settings.probe_interval_max);
            open.probe_at = now + open.interval.saturating_sub(took);
            self.news = Some(News::ProbeFailed);
        }
    }

    /// Notes a success; true if that closes it.
    pub(super) fn succeeded(&mut self) -> bool {
        let closes = self.open.take().is_some();
        if closes {
            self.news = Some(News::Released);
        }
        closes
    }

    /// Takes over how the workers share it; true if that opened or closed it. `before` is what
    /// they shared last.
    pub(super) fn hear(
        &mut self,
        heard: Option<HeardCircuit>,
        before: Option<HeardCircuit>,
    ) -> bool {
        if self.news.is_some() {
            return false;
        }
        match (heard, before) {
            (Some(heard), _) => {
                let granted_until = self.open.and_then(|open| open.granted_until);
                let opened = !self.is_open();
                self.open = Some(Open {
                    probe_at: heard.probe_at,
                    interval: heard.interval,
                    granted_until,
                });
                opened
            }
            // Somebody else had a success.
            (None, Some(_)) => self.open.take().is_some(),
            (None, None) => false,
        }
    }

    /// What the other workers must hear; to be put back with [`Self::untold`] if they did not.
    pub(crate) fn take_news(&mut self, now: Duration) -> Option<CircuitNews> {
        let next = |open: Open| NextProbe {
            interval: open.interval,
            left: open.probe_at.saturating_sub(now),
        };
        match (self.news.take()?, self.open) {
            (News::Opened, Some(open)) => Some(CircuitNews::Opened(next(open))),
            (News::ProbeFailed, Some(open)) => Some(CircuitNews::ProbeFailed(next(open))),
            (News::Released, _) | (News::Opened | News::ProbeFailed, None) => {
                Some(CircuitNews::Released)
            }
        }
    }

    /// Puts back what could not be told, unless there is newer news.
    pub(crate) fn untold(&mut self, news: CircuitNews) {
        let news = match news {
            CircuitNews::Opened(_) => News::Opened,
            CircuitNews::ProbeFailed(_) => News::ProbeFailed,
            CircuitNews::Released => News::Released,
        };
        self.news = Some(match (news, self.news) {
            (news, None) => news,
            // For those who never heard that it opened, a failed probe is the opening.
            (News::Opened, Some(News::ProbeFailed)) => News::Opened,
            (_, Some(newer)) => newer,
        });
    }
}
