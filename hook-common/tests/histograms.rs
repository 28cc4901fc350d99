//! Durations that nobody scrapes do not pile up. The recorder is one per process, so this test has
//! a process of its own.

use std::{fs, net::SocketAddr, time::Duration};

use hook_common::{
    lifecycle::Stop,
    metrics::{self, worker::ATTEMPT_DURATION_SECONDS},
    ops::{Ops, Readiness, Surface},
    periodic::Heartbeats,
};
use tokio::time::Instant;

const SAMPLES: u32 = 3_000_000;

/// Each is some twenty times what a busy worker records in as long.
const PIECES: u32 = 100;

/// What a sample that is kept costs at least.
const BYTES_OF_SAMPLE: u64 = 8;

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux tells it");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .expect("the resident size is among it");
    let kib: u64 = line
        .trim()
        .trim_end_matches("kB")
        .trim()
        .parse()
        .expect("a number");
    kib * 1024
}

/// OBS-03: as many samples as would fill twice the limit if they were kept.
#[tokio::test]
async fn obs_03_memory_does_not_grow_while_nobody_scrapes() {
    let recorded = metrics::install();
    let surface = Surface {
        binary: "test",
        readiness: Readiness::new(Stop::manual(Duration::ZERO)),
        heartbeats: Heartbeats::new(),
        metrics: recorded.clone(),
    };
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let ops = Ops::start(listen, surface).unwrap();
    let histogram = ATTEMPT_DURATION_SECONDS.histogram(&["delivered"]);
    let limit = 10 * 1024 * 1024;
    assert!(
        u64::from(SAMPLES) * BYTES_OF_SAMPLE > 2 * limit,
        "the test could not fail"
    );
    let before = resident_bytes();
    for piece in 0..PIECES {
        for n in 0..SAMPLES / PIECES {
            histogram.record(f64::from(n % 1000) / 1000.0);
        }
        hook_testkit::wait::pause(Duration::from_millis(50)).await;
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < limit, "{grown} bytes after piece {piece}");
    }
    let begun = Instant::now();
    let text = recorded.render();
    assert!(begun.elapsed() < Duration::from_millis(500));
    let count =
        format!("hook_worker_attempt_duration_seconds_count{{outcome=\"delivered\"}} {SAMPLES}");
    assert!(text.contains(&count), "{count}");
    ops.close();
}
