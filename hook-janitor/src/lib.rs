//! The janitor: reaps expired leases, purges finished jobs after their retention, works replays off,
//! and measures.
//!
//! It is a process of its own, so that cleaning goes on while workers are in trouble. Any number
//! of janitors may run: all reap and replay, one leads and does the rest, and rows decide who that is.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use hook_common::{
    lifecycle::Loops,
    periodic::Interval,
    queue::{self, Queue},
    replays::{self, Replays},
    start,
};
use tracing::warn;

use crate::{
    leader::Leadership, purge::Purge, reap::Reap, stats::Stats, tally::Tally, targets::Targets,
};

mod config;
pub mod leader;
pub mod purge;
pub mod reap;
pub mod stats;
pub mod tally;
pub mod targets;

mod totals;

pub use config::Config;

/// How long one run of a loop may go on with further batches.
const BUDGET: Duration = Duration::from_secs(20);

/// Leases are looked at, the lead is renewed and the purge goes on at least this often.
const OFTEN: Duration = Duration::from_secs(1);

/// Dead workers are looked for at this interval: their jobs wait for nothing else.
const ORPHANS_EVERY: Duration = Duration::from_millis(250);

/// Starts the loops of a janitor.
///
/// # Errors
/// When Postgres could not be asked who leads.
pub async fn run(config: Config, mut context: start::Context) -> anyhow::Result<Loops> {
    let queue = Queue::new(context.db.clone());
    let name = format!("{}-{:08x}", std::process::id(), rand::random::<u32>());
    let leadership = Arc::new(Leadership::new(queue.clone(), name));
    context
        .insist(|| {
            let leadership = Arc::clone(&leadership);
            async move { leadership.run_once().await }
        })
        .await?;

    let often = OFTEN.min(config.interval);
    let limit = step_limit(&context);
    spawn_leadership(&mut context, &leadership);

    spawn_for_all(&mut context, &queue, &config, often);

    let purge = Purge::new(queue.clone(), Arc::clone(&leadership), config.retention);
    let every = often.min(purge.bucket_age());
    let purge = Arc::new(purge);
    context.repeat(Interval::new("purge", every, limit), move || {
        let purge = Arc::clone(&purge);
        async move { purge.run_once().await.map(drop) }
    });

    let targets = Arc::new(Targets::new(
        queue.clone(),
        Arc::clone(&leadership),
        config.penalty_refresh * queue::STALE_REFRESHES,
    ));
    let interval = Interval::new("targets", config.interval, limit);
    context.repeat(interval, move || {
        let targets = Arc::clone(&targets);
        async move { targets.run_once().await.map(drop) }
    });

    let tally = Arc::new(Tally::new(
        queue.clone(),
        Arc::clone(&leadership),
        config.history_retention,
    ));
    let interval = Interval::new("tally", config.interval, limit);
    context.repeat(interval, move || {
        let tally = Arc::clone(&tally);
        async move { tally.run_once().await.map(drop) }
    });

    let stats = Arc::new(Stats::new(
        queue,
        leadership,
        config.metrics_targets_max,
        config.penalty_refresh,
    ));
    let interval = Interval::new("stats", config.interval, limit);
    context.repeat(interval, move || {
        let stats = Arc::clone(&stats);
        async move { stats.run_once().await.map(drop) }
    });
    Ok(context.loops)
}

/// Starts the loops that every janitor has, whoever leads.
fn spawn_for_all(context: &mut start::Context, queue: &Queue, config: &Config, often: Duration) {
    let limit = step_limit(context);
    let reap = Arc::new(Reap::new(queue.clone(), config.max_attempts));
    let orphans = Arc::clone(&reap);
    context.repeat(Interval::new("orphans", ORPHANS_EVERY, limit), move || {
        let orphans = Arc::clone(&orphans);
        async move { orphans.orphans_once().await.map(drop) }
    });
    context.repeat(Interval::new("reap", often, limit), move || {
        let reap = Arc::clone(&reap);
        async move { reap.run_once().await.map(drop) }
    });

    let replays = Replays::new(queue.clone());
    let every = Interval::new("replays", replays::EVERY, limit);
    context.repeat(every, move || {
        let replays = replays.clone();
        async move { replays.run_once().await.map(drop) }
    });
}

/// A step ends its batches when its budget is used up; the last statement may then still run.
fn step_limit(context: &start::Context) -> Duration {
    BUDGET + context.common.db_statement_timeout * 2
}

/// Starts the loop that keeps the lead; when it ends, others may take over at once, and the
/// purge of this janitor stops at its next step.
fn spawn_leadership(context: &mut start::Context, leadership: &Arc<Leadership>) {
    let limit = context.common.db_statement_timeout;
    let interval = Interval::new("leader", OFTEN, limit);
    let leader = Arc::clone(leadership);
    let leading = context.repeated(interval, move || {
        let leader = Arc::clone(&leader);
        async move { leader.run_once().await.map(drop) }
    });
    let leadership = Arc::clone(leadership);
    context.loops.spawn_fallible("leader", async move {
        leading.await?;
        if let Err(error) = leadership.resign().await.context("leaving") {
            warn!(
                error = format!("{error:#}"),
                "the lead could not be given up"
            );
        }
        Ok(())
    });
}
