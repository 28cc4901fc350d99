//! Bounded waits on a state.
//!
//! A test waits for a level ("three requests have arrived"), never for an edge and never for a
//! fixed time, so that it is as quick as the machine allows and fails with the last state it saw.
//! The only sleep of the kit is in this file.

use std::fmt::Debug;
use std::future::Future;
use std::panic::Location;
use std::time::Duration;

use tokio::time::{Instant, Sleep, timeout_at};

/// Time between two looks at a condition.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Polls `condition` until it gives `Ok` and returns that value.
///
/// `Err` carries the state seen, which the panic shows when `limit` has passed. A condition that
/// hangs counts as one that does not hold.
///
/// # Panics
/// When the condition did not hold within `limit`.
#[track_caller]
pub fn wait_until<T, S, C>(limit: Duration, mut condition: C) -> impl Future<Output = T>
where
    S: Debug,
    C: AsyncFnMut() -> Result<T, S>,
{
    let caller = Location::caller();
    async move {
        let deadline = Instant::now() + limit;
        let mut last = None;
        loop {
            match timeout_at(deadline, condition()).await {
                Ok(Ok(value)) => return value,
                Ok(Err(state)) => last = Some(state),
                Err(_) => fail(
                    caller,
                    limit,
                    "the condition itself hung; before that",
                    &last,
                ),
            }
            if Instant::now() >= deadline {
                fail(caller, limit, "last state", &last);
            }
            pause(LOOK_INTERVAL).await;
        }
    }
}

/// Observes a value until `holds` accepts it and returns it.
///
/// # Panics
/// When no accepted value was seen within `limit`; the message shows the last value.
#[track_caller]
pub fn wait_for<T, O, H>(limit: Duration, mut observe: O, holds: H) -> impl Future<Output = T>
where
    T: Debug,
    O: AsyncFnMut() -> T,
    H: Fn(&T) -> bool,
{
    wait_until(limit, async move || {
        let value = observe().await;
        if holds(&value) { Ok(value) } else { Err(value) }
    })
}

/// Observes a value for the whole of `duration` and returns the last one.
///
/// This is how a test says "never": it fails at the first value that `holds` refuses.
///
/// # Panics
/// When a value was refused.
#[track_caller]
pub fn stays<T, O, H>(duration: Duration, mut observe: O, holds: H) -> impl Future<Output = T>
where
    T: Debug,
    O: AsyncFnMut() -> T,
    H: Fn(&T) -> bool,
{
    let caller = Location::caller();
    async move {
        let start = Instant::now();
        loop {
            let value = observe().await;
            let age = start.elapsed();
            assert!(
                holds(&value),
                "{caller}: the state left its bounds after {age:?}: {value:?}"
            );
            if age >= duration {
                return value;
            }
            pause(LOOK_INTERVAL.min(duration - age)).await;
        }
    }
}

/// Ends after `duration`.
///
/// Scripts of the sink need it to be slow on purpose. A test that waits for something uses
/// [`wait_until`] instead.
#[expect(
    clippy::disallowed_methods,
    reason = "the one sleep of the test kit: scripted delays and the interval between two looks"
)]
pub fn pause(duration: Duration) -> Sleep {
    tokio::time::sleep(duration)
}

fn fail<S: Debug>(caller: &Location<'_>, limit: Duration, label: &str, last: &Option<S>) -> ! {
    match last {
        Some(state) => panic!("{caller}: not reached within {limit:?}; {label}: {state:?}"),
        None => panic!("{caller}: not reached within {limit:?}; {label}: nothing seen"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_returns_the_value_that_held() {
        let mut looks = 0;
        let value = wait_until(Duration::from_secs(5), async || {
            looks += 1;
            if looks == 3 { Ok(looks) } else { Err(looks) }
        })
        .await;
        assert_eq!(value, 3);
    }

    #[tokio::test]
    #[should_panic(expected = "last state: 7")]
    async fn a_wait_that_fails_shows_the_last_state() {
        wait_for(Duration::from_millis(30), async || 7, |n| *n == 8).await;
    }

    #[tokio::test]
    #[should_panic(expected = "wait.rs")]
    async fn a_wait_that_fails_names_the_line_of_the_test() {
        wait_until(Duration::ZERO, async || Err::<(), _>("no")).await;
    }

    #[tokio::test]
    #[should_panic(expected = "the condition itself hung")]
    async fn a_condition_that_hangs_fails_the_wait() {
        wait_until(Duration::from_millis(20), async || {
            std::future::pending::<Result<(), ()>>().await
        })
        .await;
    }

    #[tokio::test]
    #[should_panic(expected = "left its bounds")]
    async fn a_state_that_leaves_its_bounds_is_caught() {
        let mut looks = 0;
        stays(
            Duration::from_secs(5),
            async || {
                looks += 1;
                looks
            },
            |n| *n < 3,
        )
        .await;
    }
}
