//! `RetryPolicy`: how long a job waits after an attempt that may be repeated.
//!
//! A policy is a list of delays, one for each attempt, of which the last repeats. It does no
//! arithmetic on attempt numbers, so that no number, however large, overflows. Whether another
//! attempt follows at all is not decided here: that is the job's `max_attempts` and its expiry.

use std::time::Duration;

use rand::{Rng, RngCore};
use thiserror::Error;

/// Largest share of a delay that is added or taken away at random, in percent.
///
/// Jobs that failed together must not come back together.
const JITTER_PERCENT: f64 = 20.0;
/// Shortest delay: a shorter one would use up all attempts within one outage of a second.
const DELAY_MIN: Duration = Duration::from_millis(1);
/// Longest delay.
const DELAY_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Most delays in a schedule: as many as a job can have attempts.
const DELAYS_MAX: usize = 100;

/// Decides how long a job waits for its next attempt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RetryPolicy {
    schedule: Vec<Duration>,
    retry_after_max: Duration,
}

/// Why a list of delays is no schedule.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum ScheduleError {
    /// There is no delay.
    #[error("needs at least one delay")]
    Empty,
    /// There are more delays than attempts.
    #[error("has more than 100 delays")]
    TooMany,
    /// A delay is so short that all attempts are used up at once, or longer than a year.
    #[error("has a delay below 1ms or above 365d")]
    OutOfRange,
    /// A delay is shorter than the one before it.
    #[error("has a delay that is shorter than the one before it")]
    Decreasing,
}

impl RetryPolicy {
    /// Makes a policy from the delay after the first attempt, after the second, and so on.
    ///
    /// `retry_after_max` bounds what a target can ask for.
    ///
    /// # Errors
    /// Says why the delays are no schedule.
    pub fn new(schedule: Vec<Duration>, retry_after_max: Duration) -> Result<Self, ScheduleError> {
        if schedule.is_empty() {
            return Err(ScheduleError::Empty);
        }
        if schedule.len() > DELAYS_MAX {
            return Err(ScheduleError::TooMany);
        }
        if !schedule
            .iter()
            .all(|delay| (DELAY_MIN..=DELAY_MAX).contains(delay))
        {
            return Err(ScheduleError::OutOfRange);
        }
        if !schedule.is_sorted() {
            return Err(ScheduleError::Decreasing);
        }
        Ok(Self {
            schedule,
            retry_after_max: retry_after_max.min(DELAY_MAX),
        })
    }

    /// How long to wait after attempt number `attempt` (1 is the first).
    ///
    /// Without a hint, the schedule's delay, up to a fifth shorter or longer. With a hint from the
    /// target, the longer of the schedule's delay and the bounded hint, up to a fifth longer and
    /// never shorter: coming back too early is what the target asked not to happen.
    pub fn next(&self, attempt: u32, hint: Option<Duration>, rng: &mut dyn RngCore) -> Duration {
        let scheduled = self.scheduled(attempt);
        let jitter = JITTER_PERCENT / 100.0;
        match hint {
            None => scheduled.mul_f64(rng.random_range(1.0 - jitter..=1.0 + jitter)),
            Some(hint) => scheduled
                .max(self.bounded_hint(hint))
                .mul_f64(rng.random_range(1.0..=1.0 + jitter)),
        }
    }

    /// A target's hint, as far as it is followed: how long the whole target is held back.
    #[must_use]
    pub fn bounded_hint(&self, hint: Duration) -> Duration {
        hint.min(self.retry_after_max)
    }

    /// The delay after attempt number `attempt`, without chance.
    #[must_use]
    pub fn scheduled(&self, attempt: u32) -> Duration {
        let index = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
        let last = self.schedule.len() - 1;
        self.schedule[index.min(last)]
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn policy(seconds: &[u64]) -> RetryPolicy {
        let schedule = seconds.iter().copied().map(Duration::from_secs).collect();
        RetryPolicy::new(schedule, Duration::from_secs(100)).unwrap()
    }

    /// Draws often and checks that the draws fill the range from `least` to `most`.
    fn check_range(attempt: u32, hint: Option<Duration>, least: Duration, most: Duration) {
        let policy = policy(&[10, 20, 40]);
        let mut rng = StdRng::seed_from_u64(7);
        let draws: Vec<_> = (0..2000)
            .map(|_| policy.next(attempt, hint, &mut rng))
            .collect();
        assert!(draws.iter().all(|draw| (least..=most).contains(draw)));
        let near = (most - least) / 100;
        assert!(
            draws.iter().any(|draw| *draw < least + near),
            "the lower end is reached"
        );
        assert!(
            draws.iter().any(|draw| *draw > most - near),
            "the upper end is reached"
        );
    }

    #[test]
    fn the_schedule_is_followed_and_its_last_delay_repeats() {
        let policy = policy(&[10, 20, 40]);
        let delays = [0, 1, 2, 3, 4, 33, 100].map(|attempt| policy.scheduled(attempt));
        assert_eq!(
            delays,
            [10, 10, 20, 40, 40, 40, 40].map(Duration::from_secs)
        );
    }

    #[test]
    fn rw_03_an_attempt_number_beyond_all_bounds_is_fine() {
        check_range(2_147_483_647, None, 32 * S, 48 * S);
        check_range(u32::MAX, None, 32 * S, 48 * S);
    }

    #[test]
    fn jitter_is_a_fifth_both_ways() {
        check_range(1, None, 8 * S, 12 * S);
        check_range(2, None, 16 * S, 24 * S);
    }

    #[test]
    fn with_a_hint_jitter_is_upward_only() {
        check_range(1, Some(30 * S), 30 * S, 36 * S);
        check_range(1, Some(S), 10 * S, 12 * S);
        check_range(1, Some(Duration::ZERO), 10 * S, 12 * S);
    }

    #[test]
    fn rs_48_a_hint_is_bounded() {
        check_range(
            1,
            Some(Duration::from_secs(99_999_999_999)),
            100 * S,
            120 * S,
        );
        check_range(1, Some(Duration::MAX), 100 * S, 120 * S);
    }

    #[test]
    fn q_13_delays_that_would_use_up_all_attempts_are_refused() {
        let check = |delays: &[Duration], expected| {
            assert_eq!(
                RetryPolicy::new(delays.to_vec(), S).err(),
                expected,
                "{delays:?}"
            );
        };
        check(&[], Some(ScheduleError::Empty));
        check(&[S; 101], Some(ScheduleError::TooMany));
        check(&[Duration::ZERO], Some(ScheduleError::OutOfRange));
        check(&[Duration::from_nanos(1)], Some(ScheduleError::OutOfRange));
        check(&[S, Duration::MAX], Some(ScheduleError::OutOfRange));
        check(&[2 * S, S], Some(ScheduleError::Decreasing));
        check(&[S, S, 2 * S], None);
        check(&[Duration::from_millis(1)], None);
    }
}
