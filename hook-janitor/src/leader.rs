//! Which of several janitors purges and measures.
//!
//! The lead is a row with a time in Postgres; this holds what is known of it in the process. A
//! janitor acts as the leader only while it can be sure: it counts its lease from before the
//! question, and a little short.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use hook_common::{
    metrics::{janitor::LEADER, replaced},
    queue::Queue,
};
use tokio::time::Instant;
use tracing::info;

use crate::stats;

/// How long a leader that vanished keeps the others from taking over.
const LEASE: Duration = Duration::from_secs(5);

/// Time before the end of the lease in which the lead is no longer acted on: a statement that is
/// begun now should end before somebody else begins.
const MARGIN: Duration = Duration::from_secs(1);

/// This janitor's claim to lead.
#[derive(Debug)]
pub struct Leadership {
    queue: Queue,
    name: String,
    leads_until: Mutex<Option<Instant>>,
}

/// What asking for the lead came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Report {
    /// This janitor leads.
    Leads,
    /// Another one does.
    Follows,
}

impl Leadership {
    /// Claims nothing yet. `name` must be this janitor's alone.
    #[must_use]
    pub fn new(queue: Queue, name: String) -> Self {
        LEADER.gauge(&[]).set(0.0);
        Self {
            queue,
            name,
            leads_until: Mutex::new(None),
        }
    }

    /// Whether this janitor may act as the leader now.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.lock().is_some_and(|until| Instant::now() < until)
    }

    /// Takes, keeps or is refused the lead.
    ///
    /// # Errors
    /// When Postgres could not be asked; what was known stays in force until its time is over.
    pub async fn run_once(&self) -> anyhow::Result<Report> {
        // The lead may have run out while Postgres was away, or while the last question took long.
        self.show();
        let asked = Instant::now();
        let leads = self.queue.lead(&self.name, LEASE).await;
        let leads = leads.context("asking for the lead of the janitors")?;
        let until = leads.then_some(asked + (LEASE - MARGIN));
        let led = std::mem::replace(&mut *self.lock(), until);
        if led.is_some() != leads {
            info!(leader = leads, "the lead of the janitors changed hands");
        }
        if !leads {
            replaced::withdraw(stats::SET);
        }
        self.show();
        Ok(if leads {
            Report::Leads
        } else {
            Report::Follows
        })
    }

    /// Gives the lead up, so that another takes over at once.
    ///
    /// # Errors
    /// When Postgres could not be asked; then the lead ends by itself, within seconds.
    pub async fn resign(&self) -> anyhow::Result<()> {
        LEADER.gauge(&[]).set(0.0);
        replaced::withdraw(stats::SET);
        if self.lock().take().is_none() {
            return Ok(());
        }
        let resigned = self.queue.resign(&self.name).await;
        resigned.context("giving up the lead of the janitors")
    }

    fn show(&self) {
        LEADER.gauge(&[]).set(if self.leads() { 1.0 } else { 0.0 });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.leads_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
