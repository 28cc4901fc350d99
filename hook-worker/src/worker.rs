//! What the loops of a worker share.

use std::{
    sync::{Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use hook_common::{
    gate::Gate,
    periodic::Heartbeats,
    queue::{LiveWorker, Queue, Serves},
};
use tokio::{sync::Notify, time::Instant};

use crate::{config::Config, heads::Heads};

/// One for each worker.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) queue: Queue,
    /// What the other workers know this one by.
    pub(crate) me: LiveWorker,
    pub(crate) heads: Mutex<Heads>,
    /// Whether the last dequeue failed: a sweep that works then says nothing about the next one.
    pub(crate) dequeue_fails: AtomicBool,
    /// Told when a head may have become servable.
    pub(crate) changed: Notify,
    pub(crate) gate: Gate,
    pub(crate) heartbeats: Heartbeats,
    /// After this, a statement is given up.
    pub(crate) statement_deadline: Duration,
    epoch: Instant,
}

impl Shared {
    pub(crate) fn new(
        config: Config,
        queue: Queue,
        heartbeats: Heartbeats,
        statement_timeout: Duration,
    ) -> Self {
        let tiers = config.tiers();
        Self {
            heads: Mutex::new(Heads::new(config.policy.clone(), tiers)),
            dequeue_fails: AtomicBool::new(false),
            changed: Notify::new(),
            gate: Gate::new("delivery", config.policy.slots),
            heartbeats,
            // Postgres gives up first, and says so.
            statement_deadline: statement_timeout + Duration::from_secs(1),
            epoch: Instant::now(),
            me: LiveWorker {
                worker_id: rand::random(),
                serves: Serves::of(&config.queues),
            },
            config,
            queue,
        }
    }

    /// Time since the worker started, the time scale of the policy.
    pub(crate) fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    pub(crate) fn heads(&self) -> MutexGuard<'_, Heads> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
