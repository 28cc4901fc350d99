//! How the worker learns that targets have work: told by Postgres, and by looking for itself.
//!
//! `LISTEN` brings the ids of targets within a millisecond of a commit, where a connection that
//! can listen is to be had. The sweep finds everything else, told or not, by walking from target
//! to target; it is what makes the queue correct, the notifications only make it quick.

use std::{
    convert::Infallible,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use hook_common::{
    config::Secret,
    job::Tier,
    lifecycle::Stop,
    logging::Repeats,
    metrics::{unix_seconds, worker as metric},
    queue::{self, WakeListener},
    target::TargetId,
};
use tokio::{sync::oneshot, time::Instant};
use tracing::{info, warn};

use crate::worker::Shared;

/// Targets in one sweep statement.
const SWEEP_LIMIT: usize = 256;

/// Share of the poll interval that sweeping may take before the rest of the round waits.
const SWEEP_SHARE: u32 = 20;

const RECONNECT_AFTER: Duration = Duration::from_secs(1);

/// Where the last sweep stopped.
#[derive(Debug, Default)]
pub(crate) struct Sweeper {
    after: Option<(Tier, TargetId)>,
}

impl Sweeper {
    /// Looks at the next targets: a whole round if it is quick, else as far as its share of the
    /// poll interval reaches.
    ///
    /// # Errors
    /// Postgres could not be asked; the heads keep what they know.
    pub(crate) async fn run_once(&mut self, shared: &Shared) -> queue::Result<()> {
        let begun = Instant::now();
        loop {
            let swept = shared
                .queue
                .sweep(self.after, shared.config.tiers(), SWEEP_LIMIT)
                .await?;
            metric::WAKEUPS_TOTAL
                .counter(&["sweep"])
                .increment(swept.len() as u64);
            let now = shared.now();
            {
                let mut heads = shared.heads();
                for head in &swept {
                    heads.swept(head, now);
                }
            }
            if !swept.is_empty() {
                shared.changed.notify_one();
            }
            self.after = swept
                .last()
                .filter(|_| swept.len() == SWEEP_LIMIT)
                .map(|head| (head.tier, head.target_id));
            if self.after.is_none() || begun.elapsed() > shared.config.poll_interval / SWEEP_SHARE {
                break;
            }
        }
        metric::SWEEP_DURATION_SECONDS
            .histogram(&[])
            .record(begun.elapsed());
        // Without anything to dequeue, this is what shows that jobs would be found.
        if !shared.dequeue_fails.load(Ordering::Relaxed) {
            metric::LAST_DEQUEUE_SUCCESS_TIMESTAMP_SECONDS
                .gauge(&[])
                .set(unix_seconds());
        }
        Ok(())
    }
}

/// Listens, and connects again whenever the connection is lost, for as long as the worker has
/// jobs in hand: its session says to others that it lives, also while it drains.
pub(crate) async fn listen(
    shared: Arc<Shared>,
    url: Secret<String>,
    stop: Stop,
    in_hand: oneshot::Receiver<()>,
) {
    let failures = Repeats::default();
    let listening = async {
        loop {
            let heard = listen_once(&shared, url.expose()).await;
            metric::LISTENER_UP.gauge(&[]).set(0.0);
            let Err(error) = heard;
            if let Some(failures) = failures.due() {
                warn!(error = %error, failures, "listening for new work failed; the sweep still finds it");
            }
            metric::LISTENER_RECONNECTS_TOTAL.counter(&[]).increment(1);
            stop.pause_until_abort(RECONNECT_AFTER).await;
        }
    };
    tokio::select! {
        () = listening => {}
        // The other end is dropped, never sent on.
        _ = in_hand => {}
    }
    metric::LISTENER_UP.gauge(&[]).set(0.0);
}

async fn listen_once(shared: &Shared, url: &str) -> queue::Result<Infallible> {
    let mut listener = WakeListener::connect(url, shared.me, &shared.config.name).await?;
    metric::LISTENER_UP.gauge(&[]).set(1.0);
    info!("listening for new work");
    loop {
        let woken = listener.next().await?;
        metric::WAKEUPS_TOTAL
            .counter(&["notification"])
            .increment(woken.len() as u64);
        let now = shared.now();
        {
            let mut heads = shared.heads();
            for (tier, target_id) in woken {
                heads.wake(target_id, tier, now, now);
            }
        }
        shared.changed.notify_one();
    }
}
