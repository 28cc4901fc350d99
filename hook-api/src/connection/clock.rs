//! What a client connection is busy with, and since when.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

/// What a connection is busy with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    /// Nothing: not one byte has arrived yet.
    Fresh,
    /// Nothing, or the last answer is still on its way out.
    Idle,
    /// A request head has begun to arrive.
    Head,
    /// A request is being worked on; its own deadlines hold.
    Serving,
}

/// The phase of one connection and the time of its last change; written by the request path,
/// read by the connection's timer and by whoever looks for an idle connection.
#[derive(Debug)]
pub(crate) struct Clock {
    begun: Instant,
    /// Milliseconds since `begun`, times four, plus the phase.
    stamp: AtomicU64,
    evicted: Notify,
}

impl Clock {
    /// Fresh from now on.
    pub(crate) fn start() -> Self {
        Self {
            begun: Instant::now(),
            stamp: AtomicU64::new(0),
            evicted: Notify::new(),
        }
    }

    /// Enters a phase now.
    pub(crate) fn enter(&self, phase: Phase) {
        let bits = match phase {
            Phase::Fresh => 0,
            Phase::Idle => 1,
            Phase::Head => 2,
            Phase::Serving => 3,
        };
        self.stamp
            .store(self.now_ms() << 2 | bits, Ordering::Relaxed);
    }

    /// Says that bytes have arrived: of a head, unless a request is being worked on.
    pub(crate) fn bytes_arrived(&self) {
        if matches!(self.phase(), Phase::Fresh | Phase::Idle) {
            self.enter(Phase::Head);
        }
    }

    /// The phase of now.
    pub(crate) fn phase(&self) -> Phase {
        self.read().0
    }

    /// How long this connection has been idle; `None` when it is not.
    pub(crate) fn idle_for(&self) -> Option<Duration> {
        let (phase, since) = self.read();
        matches!(phase, Phase::Fresh | Phase::Idle).then_some(since)
    }

    /// When to look again whether the connection is overdue.
    pub(crate) fn time_left(&self, limit: Duration) -> Duration {
        let (phase, since) = self.read();
        match phase {
            // The next head has not begun, so no deadline is nearer than this.
            Phase::Serving => limit,
            Phase::Fresh | Phase::Idle | Phase::Head => limit.saturating_sub(since),
        }
    }

    /// The phase that has lasted for too long, if it has.
    pub(crate) fn overdue(&self, limit: Duration) -> Option<Phase> {
        let (phase, since) = self.read();
        match phase {
            Phase::Serving => None,
            Phase::Fresh | Phase::Idle | Phase::Head => (since >= limit).then_some(phase),
        }
    }

    /// Asks the connection to make room, if it is still idle when it hears of it.
    pub(crate) fn evict(&self) {
        self.evicted.notify_one();
    }

    /// Waits until somebody asks for room.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    fn read(&self) -> (Phase, Duration) {
        let stamp = self.stamp.load(Ordering::Relaxed);
        let phase = match stamp & 3 {
            0 => Phase::Fresh,
            1 => Phase::Idle,
            2 => Phase::Head,
            _ => Phase::Serving,
        };
        let since = self.now_ms().saturating_sub(stamp >> 2);
        (phase, Duration::from_millis(since))
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX >> 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    async fn pass(duration: Duration) {
        tokio::time::advance(duration).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_is_timed_from_its_first_byte() {
        let clock = Clock::start();
        pass(Duration::from_secs(6)).await;
        assert_eq!(clock.idle_for(), Some(Duration::from_secs(6)));
        clock.bytes_arrived();
        pass(Duration::from_secs(6)).await;
        clock.bytes_arrived();
        assert_eq!(clock.overdue(LIMIT), None);
        assert_eq!(clock.time_left(LIMIT), Duration::from_secs(4));
        pass(Duration::from_secs(4)).await;
        assert_eq!(clock.overdue(LIMIT), Some(Phase::Head));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_in_hand_is_never_overdue() {
        let clock = Clock::start();
        clock.enter(Phase::Serving);
        clock.bytes_arrived();
        pass(Duration::from_secs(60)).await;
        assert_eq!(
            (clock.overdue(LIMIT), clock.phase()),
            (None, Phase::Serving)
        );
        clock.enter(Phase::Idle);
        assert_eq!(clock.time_left(LIMIT), LIMIT);
        pass(LIMIT).await;
        assert_eq!(clock.overdue(LIMIT), Some(Phase::Idle));
    }
}
