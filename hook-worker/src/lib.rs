//! The worker: leases jobs, delivers them and records what came of each attempt.
//!
//! `worker` feeds the slots in the order that `heads` and `policy` decide, `attempt` makes one
//! attempt through `delivery` and `client`, `finisher` writes the results, `wakeups` and
//! `penalties` keep the heads informed.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use hook_common::{
    lifecycle::Loops,
    periodic::{First, Interval},
    queue::Queue,
    start,
};
use tokio::sync::{Mutex, oneshot};
use tracing::warn;

use crate::{
    address_guard::AddressGuard, attempt::Attempts, client::Client, finisher::Finisher,
    penalties::Penalties, signer::Signer, tls::Verification, wakeups::Sweeper, worker::Shared,
};

pub mod address_guard;
mod attempt;
pub mod classify;
pub mod client;
mod config;
pub mod delivery;
pub mod egress_proxy;
mod feed;
mod finisher;
mod heads;
mod outgoing;
mod penalties;
mod policy;
mod resolver;
mod signer;
pub mod signing;
pub mod tls;
mod wakeups;
mod worker;

pub use config::Config;

/// Proven once the first snapshot of penalties is loaded, so that a worker that starts cold does
/// not flood a target that others know to be sick.
const PENALTIES: &str = "penalties";

/// How often what people and other workers say is read: they expect to be obeyed at once.
const SHARE_EVERY: Duration = Duration::from_secs(1);

/// How often the running attempts are looked at.
const OBSERVE_EVERY: Duration = Duration::from_millis(100);

/// How often gauges are set and idle connections looked through.
const UPKEEP_EVERY: Duration = Duration::from_secs(1);

/// Starts the worker's loops.
///
/// # Errors
/// When the delivery client cannot be set up, or the first snapshot of penalties cannot be read.
pub async fn run(config: Config, mut context: start::Context) -> anyhow::Result<Loops> {
    context.readiness.require(PENALTIES);
    if config.client.verification == Verification::Off {
        warn!("certificates of receivers are not verified: HOOK_EGRESS_INSECURE_TLS is on");
    }
    warn_of_ignored_proxies(&config);
    let database = database_addresses(&context).await;
    let mut client_config = config.client.clone();
    client_config.guard = AddressGuard::new(config.allow_nets.clone(), database);
    let client = Arc::new(Client::new(client_config).context("setting up the delivery client")?);

    let queue = Queue::new(context.db.clone());
    let shared = Arc::new(Shared::new(
        config,
        queue.clone(),
        context.heartbeats.clone(),
        context.common.db_statement_timeout,
    ));
    let penalties = Arc::new(Penalties::new());
    context
        .insist(|| {
            let (shared, penalties) = (Arc::clone(&shared), Arc::clone(&penalties));
            async move {
                let refreshed = penalties.refresh_once(&shared).await;
                refreshed.context("loading the most failing targets")?;
                let shared = penalties.share_once(&shared).await;
                shared.context("loading the penalties")
            }
        })
        .await?;
    context.readiness.prove(PENALTIES);

    let (finishes, finisher) = Finisher::new(Arc::clone(&shared));
    let stop = context.stop.clone();
    let attempts = Attempts {
        shared: Arc::clone(&shared),
        client: Arc::clone(&client),
        signer: Arc::new(Signer::new(queue, shared.config.sealer.clone())),
        finishes,
        stop: stop.clone(),
    };
    let (has_jobs, in_hand) = oneshot::channel();
    let finishing = finisher.run(stop.clone());
    context.loops.spawn("finisher", async move {
        finishing.await;
        drop(has_jobs);
    });
    context
        .loops
        .spawn("delivery", feed::feed(Arc::clone(&shared), attempts, stop));
    spawn_listener(&mut context, &shared, in_hand);
    spawn_sweep(&mut context, &shared);
    spawn_penalties(&mut context, &shared, &penalties);
    spawn_observer(&mut context, &shared, client, penalties);
    Ok(context.loops)
}

fn spawn_listener(
    context: &mut start::Context,
    shared: &Arc<Shared>,
    in_hand: oneshot::Receiver<()>,
) {
    let url = context.common.database_direct_url.clone();
    let url = url.unwrap_or_else(|| context.common.database_url.clone());
    context.loops.spawn(
        "listener",
        wakeups::listen(Arc::clone(shared), url, context.stop.clone(), in_hand),
    );
}

fn spawn_sweep(context: &mut start::Context, shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    let sweeper = Arc::new(Mutex::new(Sweeper::default()));
    let interval = Interval::new(
        "sweep",
        shared.config.poll_interval,
        shared.statement_deadline,
    );
    context.repeat(interval, move || {
        let (shared, sweeper) = (Arc::clone(&shared), Arc::clone(&sweeper));
        async move { sweeper.lock().await.run_once(&shared).await }
    });
}

fn spawn_penalties(context: &mut start::Context, shared: &Arc<Shared>, penalties: &Arc<Penalties>) {
    let refresh = Interval {
        first: First::AfterInterval,
        ..Interval::new(
            "penalties",
            shared.config.penalty_refresh,
            shared.statement_deadline,
        )
    };
    let share = Interval {
        first: First::AfterInterval,
        ..Interval::new(
            "target_share",
            SHARE_EVERY
                .min(shared.config.penalty_refresh)
                .min(shared.config.policy.probe_interval_min),
            shared.statement_deadline,
        )
    };
    let (its_shared, its_penalties) = (Arc::clone(shared), Arc::clone(penalties));
    context.repeat(refresh, move || {
        let (shared, penalties) = (Arc::clone(&its_shared), Arc::clone(&its_penalties));
        async move { penalties.refresh_once(&shared).await }
    });
    let (shared, penalties) = (Arc::clone(shared), Arc::clone(penalties));
    context.repeat(share, move || {
        let (shared, penalties) = (Arc::clone(&shared), Arc::clone(&penalties));
        async move { penalties.share_once(&shared).await }
    });
}

fn spawn_observer(
    context: &mut start::Context,
    shared: &Arc<Shared>,
    client: Arc<Client>,
    penalties: Arc<Penalties>,
) {
    let observe = Interval {
        jitter: 0.0,
        ..Interval::new("observer", OBSERVE_EVERY, Duration::from_secs(1))
    };
    let its_shared = Arc::clone(shared);
    context.repeat(observe, move || {
        let shared = Arc::clone(&its_shared);
        async move {
            penalties::observe_once(&shared, OBSERVE_EVERY);
            anyhow::Ok(())
        }
    });
    let measure = Interval::new("upkeep", UPKEEP_EVERY, Duration::from_secs(1));
    let shared = Arc::clone(shared);
    context.repeat(measure, move || {
        let (shared, client) = (Arc::clone(&shared), Arc::clone(&client));
        let penalties = Arc::clone(&penalties);
        async move {
            penalties.measure(&shared);
            client.sweep();
            anyhow::Ok(())
        }
    });
}

/// Says that proxy variables, which other programs obey, have no effect here.
fn warn_of_ignored_proxies(config: &Config) {
    let ignored: Vec<String> = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| {
            let name = name.to_ascii_lowercase();
            ["http_proxy", "https_proxy", "all_proxy"].contains(&name.as_str())
        })
        .collect();
    if !ignored.is_empty() && config.client.egress_proxy.is_none() {
        warn!(
            variables = ignored.join(","),
            "proxy variables are ignored; set HOOK_EGRESS_PROXY to deliver through a proxy"
        );
    }
}

/// The database's own addresses: no job may reach them, whatever networks are open.
async fn database_addresses(context: &start::Context) -> Vec<std::net::SocketAddr> {
    let pool = context.db.pool();
    let options = pool.connect_options();
    let found = tokio::net::lookup_host((options.get_host(), options.get_port())).await;
    found.map(Iterator::collect).unwrap_or_default()
}
