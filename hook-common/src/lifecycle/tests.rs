use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const GRACE: Duration = Duration::from_secs(25);

#[tokio::test(start_paused = true)]
async fn the_first_request_drains_and_the_deadline_aborts() {
    let stop = Stop::manual(GRACE);
    assert!(!stop.is_draining() && !stop.is_aborting() && stop.deadline().is_none());
    let begun = Instant::now();
    stop.drain();
    assert!(stop.is_draining() && !stop.is_aborting());
    stop.draining().await;
    stop.aborting().await;
    assert!(stop.is_aborting());
    assert_eq!(begun.elapsed().as_secs(), 25);
}

#[tokio::test(start_paused = true)]
async fn draining_again_does_not_move_the_deadline() {
    let stop = Stop::manual(GRACE);
    stop.drain();
    let deadline = stop.deadline();
    stop.pause_until_abort(Duration::from_secs(10)).await;
    stop.drain();
    assert_eq!(stop.deadline(), deadline);
}

#[tokio::test(start_paused = true)]
async fn an_abort_does_not_wait_for_the_deadline() {
    let stop = Stop::manual(GRACE);
    let begun = Instant::now();
    stop.drain();
    stop.abort();
    stop.aborting().await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    stop.drain();
    assert!(stop.is_aborting(), "there is no way back");
}

#[tokio::test(start_paused = true)]
async fn pauses_end_early() {
    let stop = Stop::manual(GRACE);
    let begun = Instant::now();
    stop.pause(Duration::from_millis(250)).await;
    assert_eq!(begun.elapsed().as_millis(), 250);
    let other = stop.clone();
    let ((), ()) = tokio::join!(stop.pause(Duration::from_secs(3600)), async {
        other.pause(Duration::from_secs(1)).await;
        other.drain();
    });
    assert_eq!(begun.elapsed().as_millis(), 1250);
    stop.pause(Duration::from_secs(3600)).await;
    assert_eq!(begun.elapsed().as_millis(), 1250);
    stop.pause_until_abort(Duration::from_secs(3600)).await;
    assert_eq!(begun.elapsed().as_secs(), 26);
}

#[tokio::test]
async fn a_drain_wins_over_a_ready_future() {
    let stop = Stop::manual(GRACE);
    assert_eq!(stop.unless_draining(async { 7 }).await, Some(7));
    stop.drain();
    assert_eq!(stop.unless_draining(async { 7 }).await, None);
    assert_eq!(stop.unless_aborting(async { 7 }).await, Some(7));
    stop.abort();
    assert_eq!(stop.unless_aborting(async { 7 }).await, None);
}

#[tokio::test(start_paused = true)]
async fn join_all_waits_for_the_grace_and_cuts_the_rest() {
    let stop = Stop::manual(GRACE);
    let ended = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for seconds in [1, 20, 100] {
        let (stop, ended) = (Stop::manual(GRACE), Arc::clone(&ended));
        tasks.spawn(async move {
            stop.pause(Duration::from_secs(seconds)).await;
            ended.fetch_add(1, Ordering::SeqCst);
        });
    }
    tasks.spawn(async { panic!("on purpose") });
    stop.drain();
    let joined = stop.join_all(tasks).await;
    assert_eq!(
        joined,
        Joined {
            finished: 2,
            panicked: 1,
            aborted: 1
        }
    );
    assert_eq!(ended.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_ends_early_takes_the_others_down() {
    let stop = Stop::manual(GRACE);
    let mut loops = Loops::new();
    let other = stop.clone();
    loops.spawn("steady", async move { other.draining().await });
    loops.spawn("short", async {});
    let fault = loops.join(&stop).await.unwrap_err();
    assert!(matches!(fault, LoopFault::EndedEarly { name: "short" }));
    assert!(stop.is_draining());
}

#[tokio::test(start_paused = true)]
async fn panics_and_errors_of_loops_are_named() {
    let stop = Stop::manual(GRACE);
    let mut loops = Loops::new();
    loops.spawn("shaky", async { panic!("on purpose") });
    let fault = loops.join(&stop).await.unwrap_err();
    assert!(matches!(fault, LoopFault::Panicked { name: "shaky" }));

    let stop = Stop::manual(GRACE);
    let mut loops = Loops::new();
    loops.spawn_fallible("strict", async {
        Err(anyhow::anyhow!("inner").context("outer"))
    });
    let fault = anyhow::Error::from(loops.join(&stop).await.unwrap_err());
    assert_eq!(format!("{fault:#}"), "the loop strict failed: outer: inner");
}

#[tokio::test(start_paused = true)]
async fn loops_that_ignore_the_abort_are_cut() {
    let stop = Stop::manual(GRACE);
    let mut loops = Loops::new();
    loops.spawn("deaf", std::future::pending());
    stop.drain();
    let begun = Instant::now();
    loops.join(&stop).await.unwrap();
    assert!(begun.elapsed() < GRACE + Duration::from_secs(3));
}
