use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn every_second() -> Interval {
    Interval::new("test", SECOND, SECOND * 5)
}

/// Runs an interval whose step is told how often it ran, until `stop_after` runs.
async fn run_counted<F, Fut>(interval: Interval, stop_after: usize, step: F) -> (usize, Duration)
where
    F: Fn(usize) -> Fut + Sync,
    Fut: Future<Output = Result<(), anyhow::Error>> + Send + 'static,
{
    let stop = Stop::manual(SECOND);
    let runs = Arc::new(AtomicUsize::new(0));
    let begun = Instant::now();
    let ended = interval
        .run(&Heartbeats::new(), &stop, || {
            let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
            if run == stop_after {
                stop.drain();
            }
            step(run)
        })
        .await;
    assert!(ended.is_ok());
    (runs.load(Ordering::SeqCst), begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn steps_run_on_the_interval_with_jitter() {
    let (runs, took) = run_counted(every_second(), 11, |_| async { Ok(()) }).await;
    assert_eq!(runs, 11);
    assert!(took > SECOND * 8 && took < SECOND * 12, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn failures_and_hangs_do_not_end_the_loop() {
    let (runs, took) = run_counted(every_second(), 4, |run| async move {
        match run {
            1 => anyhow::bail!("on purpose"),
            2 => std::future::pending().await,
            _ => Ok(()),
        }
    })
    .await;
    assert_eq!(runs, 4);
    assert!(took > SECOND * 7 && took < SECOND * 9, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_panic_ends_the_loop_with_its_name() {
    let stop = Stop::manual(SECOND);
    let ended = every_second()
        .run(&Heartbeats::new(), &stop, || async {
            if stop_now() {
                panic!("on purpose");
            }
            anyhow::Ok(())
        })
        .await;
    assert_eq!(ended.unwrap_err().to_string(), "a step of test panicked");
}

fn stop_now() -> bool {
    true
}

#[tokio::test(start_paused = true)]
async fn the_first_run_may_wait_for_an_interval() {
    let interval = Interval {
        first: First::AfterInterval,
        ..every_second()
    };
    let (_, took) = run_counted(interval, 1, |_| async { Ok(()) }).await;
    assert!(took >= Duration::from_millis(800), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_loop_is_named_until_it_beats_again() {
    let all = Heartbeats::new();
    let stop = Stop::manual(SECOND);
    let heartbeat = all.register("dequeue", SECOND * 3);
    assert!(all.stuck().is_empty());
    stop.pause(SECOND * 4).await;
    let stuck = all.stuck();
    assert_eq!(
        (stuck[0].name, stuck[0].silent_for.as_secs()),
        ("dequeue", 4)
    );
    heartbeat.beat();
    assert!(all.stuck().is_empty());
    stop.pause(SECOND * 4).await;
    drop(heartbeat);
    assert!(all.stuck().is_empty(), "a loop that ended is not stuck");
}

#[tokio::test(start_paused = true)]
async fn waiting_is_not_being_stuck() {
    let all = Heartbeats::new();
    let stop = Stop::manual(SECOND);
    let heartbeat = all.register("dequeue", SECOND * 3);
    let ((), ()) = tokio::join!(heartbeat.while_waiting(stop.pause(SECOND * 100)), async {
        stop.pause(SECOND * 50).await;
        assert!(all.stuck().is_empty());
    });
}
