//! Rehearsal: runs what a service cannot do without on nothing, to learn whether it would work.
//!
//! A column that was dropped or a right that was revoked fails a statement however little it is
//! given, and a statement that is given nothing changes nothing. So a service knows without any
//! traffic that its work would be in vain: it is not ready then, and a worker sends nothing.

use std::time::Duration;

use crate::{
    config::Binary,
    job::Tier,
    queue::{LeaseTerm, Queue, ReapLeases},
};

impl Queue {
    /// Runs the statements of a service on nothing; whether they work is known from then on, see
    /// [`Queue::statements_work`].
    ///
    /// # Errors
    /// Of the first statement that failed.
    ///
    /// # Cancel safety
    /// Safe: nothing is changed in any case.
    pub async fn rehearse(&self, service: Binary) -> sqlx::Result<()> {
        let rehearsed = match service {
            Binary::Api => self.rehearse_api().await,
            Binary::Worker => self.rehearse_worker().await,
            Binary::Janitor => self.rehearse_janitor().await,
            Binary::Hook => Ok(()),
        };
        self.db.rehearsed(&rehearsed);
        rehearsed
    }

    /// Whether the last rehearsal has found every statement in order.
    #[must_use]
    pub fn statements_work(&self) -> bool {
        self.db.statements_work()
    }

    async fn rehearse_api(&self) -> sqlx::Result<()> {
        self.enqueue(&[], Duration::ZERO).await?;
        self.key_uses(&[]).await?;
        Ok(())
    }

    async fn rehearse_worker(&self) -> sqlx::Result<()> {
        let term = LeaseTerm {
            lease: Duration::ZERO,
            margin: Duration::ZERO,
            worker: String::new(),
        };
        self.sweep(None, Tier::Primary..=Tier::DegradedRetry, 0)
            .await?;
        self.dequeue(&[], 0, &term).await?;
        self.finish(&mut []).await?;
        Ok(())
    }

    async fn rehearse_janitor(&self) -> sqlx::Result<()> {
        self.reap_leases(0, &ReapLeases::default()).await?;
        self.reap_expired(0).await?;
        Ok(())
    }
}
