//! Puts the parts together: listener, loops, and what they share.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use hook_common::{
    envelope,
    gate::Gate,
    lifecycle::Loops,
    logging::Repeats,
    periodic::Interval,
    queue::{self, Queue},
    replays::{self, Replays},
    start::Context,
};
use tokio::net::TcpListener;
use tracing::info;

use crate::{
    admission::{Admission, BodyLimits},
    app::App,
    auth::Tokens,
    config::Config,
    depth::Depth,
    front::Front,
    group_commit::{CommitterParts, Enqueuer, STATEMENTS_MAX},
    known_secrets::KnownSecrets,
    listener,
    penalties::{self, Penalties, Refresh},
    routes,
    wake::Waker,
};

/// The condition of readiness that the first snapshot of penalties proves.
const PENALTIES: &str = "penalties";
/// A refresh of the penalties, or a count of the queue, that takes longer has failed.
const REFRESH_LIMIT: Duration = Duration::from_secs(5);
/// How often the waiting jobs are counted, and ages are exported.
const MEASURE_EVERY: Duration = Duration::from_secs(1);

/// Listens on the configured address, and starts the loops of the API.
///
/// # Errors
/// When the address cannot be listened on.
pub async fn run(config: Config, context: Context) -> anyhow::Result<Loops> {
    let listener = TcpListener::bind(config.listen)
        .await
        .with_context(|| format!("listening on {} (HOOK_API_LISTEN)", config.listen))?;
    run_on(listener, config, context)
}

/// Starts the loops of the API on a listener that somebody else has made.
///
/// # Errors
/// When the listener does not know its own address.
pub fn run_on(
    listener: TcpListener,
    config: Config,
    mut context: Context,
) -> anyhow::Result<Loops> {
    let address = listener
        .local_addr()
        .context("asking for the own address")?;
    let app = start_app(&config, &mut context);
    let tokens = Tokens::new(&config.tokens, &config.enqueue_tokens);
    let front = Front::new(routes::router(Arc::new(app)), tokens);
    let limits = listener::Limits {
        connections_max: config.connections_max,
        head_timeout: config.head_timeout,
    };
    let Context {
        stop,
        heartbeats,
        mut loops,
        ..
    } = context;
    loops.spawn(
        "listener",
        listener::run(listener, front, limits, heartbeats, stop),
    );
    info!(listener = "public", %address, "listening");
    Ok(loops)
}

/// Starts every loop but the listener's, and gives what the handlers share.
fn start_app(config: &Config, context: &mut Context) -> App {
    let db = context.db.clone();
    let queue = Queue::new(db.clone());
    let (waker, wake_loop) = Waker::new(queue.clone(), db.clone());
    let (enqueuer, committer) = Enqueuer::new(CommitterParts {
        queue: queue.clone(),
        db: db.clone(),
        waker: waker.clone(),
        key_ttl: config.idempotency_ttl,
        waiting_max: config.in_flight_max,
        pool_max: context.common.db_pool_max,
    });
    let penalty_stale_after = config.penalty_refresh * queue::STALE_REFRESHES;
    let snapshot_limits = penalties::Limits {
        targets_max: config.penalty_targets_max,
        stale_after: penalty_stale_after,
    };
    let (penalties, refresh) = Penalties::new(queue.clone(), snapshot_limits);
    let depth = Depth::new(config.queue_depth_max, queue.clone());
    let depth = Arc::new(depth);

    let loops = &mut context.loops;
    loops.spawn("wake", wake_loop.run(context.stop.clone()));
    loops.spawn("group_commit", committer.run(context.heartbeats.clone()));
    refresh_penalties(context, refresh, config.penalty_refresh);
    measure(context, Arc::clone(&depth), penalties.clone());
    work_replays_off(context, Replays::new(queue.clone()));

    let body_limits = BodyLimits {
        bytes_max: config.body_max,
        timeout: config.body_timeout,
    };
    let (readiness, stop) = (context.readiness.clone(), context.stop.clone());
    let statements_max = statements_max(context.common.db_pool_max);
    App {
        admission: Admission::new(config.in_flight_max, body_limits, readiness, stop),
        enqueuer,
        waker,
        queue,
        db,
        failures: Repeats::default(),
        statements: Gate::new("api_statements", statements_max),
        penalties,
        depth,
        known_secrets: KnownSecrets::default(),
        envelope: envelope::Limits {
            job_body_max: config.job_body_max,
            allow_nets: config.allow_nets.clone(),
            https_only: config.https_only,
        },
        sealer: config.sealer.clone(),
        max_attempts: config.max_attempts,
        penalty_stale_after,
    }
}

/// Statements that handlers run at one time: group commits, wake-ups and measurements are left
/// connections of their own where there are enough.
fn statements_max(pool_max: usize) -> usize {
    pool_max.saturating_sub(STATEMENTS_MAX + 2).max(1)
}

fn refresh_penalties(context: &mut Context, refresh: Refresh, every: Duration) {
    let readiness = context.readiness.clone();
    readiness.require(PENALTIES);
    let interval = Interval::new("penalties", every, REFRESH_LIMIT);
    context.repeat(interval, move || {
        let (refresh, readiness) = (refresh.clone(), readiness.clone());
        async move {
            refresh.refresh_once().await?;
            readiness.prove(PENALTIES);
            anyhow::Ok(())
        }
    });
}

fn measure(context: &mut Context, depth: Arc<Depth>, penalties: Penalties) {
    let interval = Interval::new("measure", MEASURE_EVERY, REFRESH_LIMIT);
    context.repeat(interval, move || {
        penalties.export_age();
        let depth = Arc::clone(&depth);
        async move { depth.count_once().await }
    });
}

fn work_replays_off(context: &mut Context, replays: Replays) {
    let limit = replays::BUDGET + context.common.db_statement_timeout * 2;
    let interval = Interval::new("replays", replays::EVERY, limit);
    context.repeat(interval, move || {
        let replays = replays.clone();
        async move { replays.run_once().await.map(drop) }
    });
}
