//! Signals stop a process in two steps. Alone in its binary: they reach the whole process.

use std::time::Duration;

use hook_common::lifecycle::{Signals, Stop};
use rustix::process::{Signal, getpid, kill_process};
use tokio::time::timeout;

#[tokio::test]
async fn the_first_signal_drains_and_the_second_aborts() {
    let stop = Stop::manual(Duration::from_secs(600));
    let signals = Signals::install().unwrap();
    let limit = Duration::from_secs(5);
    let scene = async {
        kill_process(getpid(), Signal::TERM).unwrap();
        timeout(limit, stop.draining()).await.unwrap();
        assert!(!stop.is_aborting());
        kill_process(getpid(), Signal::INT).unwrap();
        timeout(limit, stop.aborting()).await.unwrap();
    };
    tokio::select! {
        () = signals.run(stop.clone()) => unreachable!("signals are awaited for ever"),
        () = scene => {}
    }
}
