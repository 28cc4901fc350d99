//! The floor: what the same jobs cost with nothing around them.
//!
//! For each job, on the same cores and at the same time: one HTTP post to an endpoint that only
//! takes the body and answers (the enqueue, through the same client and the framework that serves
//! `hook-api`), one HTTP post to the receiver (the delivery, through the client that makes the
//! load), and batched SQL on a durable Postgres: insert 100 jobs, claim those 100 by deleting
//! their rows, insert 100 rows that say they are done. The three hang together, so that none runs
//! ahead of the others: what was posted is what is stored, and what is claimed is what is sent.
//!
//! The floor promises nothing: an enqueue is answered before it is stored, a claim takes exactly
//! what was just inserted, nothing is retried, ordered, fenced, checked or logged. A real queue
//! cannot reach it; it says how much of a queue's cost is the work itself.

use std::net::SocketAddr;

use crate::{child::Child, rig::Rig, sql};

pub(crate) mod server;

/// The running floor.
pub(crate) struct Floor {
    pub(crate) child: Child,
    /// Where it takes jobs, as the API does.
    pub(crate) address: SocketAddr,
}

impl Floor {
    pub(crate) async fn start(rig: &Rig, receiver: SocketAddr) -> anyhow::Result<Self> {
        sql::make_floor(&rig.admin).await?;
        let (child, address) = rig.floor(receiver).await?;
        Ok(Self { child, address })
    }
}
