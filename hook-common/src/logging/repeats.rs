//! Failures that repeat, said seldom.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// From one line about the same failure to the next.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// Keeps one kind of failure from filling the log: it is said at once, then every ten seconds.
#[derive(Debug, Default)]
pub struct Repeats {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    said: Option<Instant>,
    unsaid: u64,
}

impl Repeats {
    /// Counts a failure; gives the number since the last line, this one included, when it is time
    /// for the next line.
    pub fn due(&self) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.unsaid += 1;
        if state.said.is_some_and(|last| last.elapsed() < SAY_EVERY) {
            return None;
        }
        state.said = Some(Instant::now());
        Some(std::mem::take(&mut state.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_said_at_once_and_then_every_ten_seconds() {
        let repeats = Repeats::default();
        assert_eq!(repeats.due(), Some(1));
        let mut said = Vec::new();
        for second in 1..=20 {
            tokio::time::advance(Duration::from_secs(1)).await;
            said.extend(repeats.due().map(|failures| (second, failures)));
        }
        assert_eq!(said, [(10, 10), (20, 10)]);
    }
}
