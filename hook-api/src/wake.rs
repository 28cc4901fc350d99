//! Tells workers of new jobs, after their commit and apart from it.
//!
//! A notification takes a lock that all of the database's notifying transactions share, so it is
//! sent by a statement of its own, for all jobs of the last milliseconds at once. It may get lost:
//! workers poll as well.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hook_common::{
    db::{Db, Fault},
    job::QueueName,
    lifecycle::{Stop, within},
    queue::{Queue, Wake},
    target::TargetId,
};
use tokio::{sync::mpsc, time::Instant};
use tracing::debug;

use crate::kept::{IDLE_MAX, Kept};

/// Between two notifications of this process lies at least this many times what the last one took,
/// so that they cost little where Postgres is busy and come at once where it is not.
const PAUSE_TIMES: u32 = 4;
/// The bounds of that pause.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(5);
/// More targets than this are not named; workers look by themselves.
const HEADS_MAX: usize = 300;
/// A notification that takes longer is given up.
const LIMIT: Duration = Duration::from_secs(2);

/// Jobs of one target in one queue.
type Head = (QueueName, TargetId);

/// Where targets with new jobs are noted; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Waker {
    pending: Arc<Mutex<HashSet<Head>>>,
    signal: mpsc::Sender<()>,
}

/// The loop that passes them on.
#[derive(Debug)]
pub(crate) struct WakeLoop {
    pending: Arc<Mutex<HashSet<Head>>>,
    signal: mpsc::Receiver<()>,
    queue: Queue,
    db: Db,
    connection: Kept,
}

impl Waker {
    pub(crate) fn new(queue: Queue, db: Db) -> (Self, WakeLoop) {
        let pending = Arc::<Mutex<_>>::default();
        let (send, receive) = mpsc::channel(1);
        let waker = Self {
            pending: Arc::clone(&pending),
            signal: send,
        };
        let wake_loop = WakeLoop {
            pending,
            signal: receive,
            queue,
            connection: Kept::new(db.clone(), 1),
            db,
        };
        (waker, wake_loop)
    }

    /// Notes that these targets have new jobs in these queues.
    pub(crate) fn wake(&self, heads: impl IntoIterator<Item = Head>) {
        {
            let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            for head in heads {
                // One more than can be named says all that there is to say.
                if pending.len() <= HEADS_MAX {
                    pending.insert(head);
                }
            }
            if pending.is_empty() {
                return;
            }
        }
        // A full channel means that the loop is about to look anyway.
        let _full_or_closed = self.signal.try_send(());
    }
}

impl WakeLoop {
    /// Passes on what is noted, until every [`Waker`] is gone.
    pub(crate) async fn run(mut self, stop: Stop) {
        loop {
            let signalled = if self.connection.is_empty() {
                Some(self.signal.recv().await)
            } else {
                within(IDLE_MAX, self.signal.recv()).await
            };
            match signalled {
                Some(Some(())) => {
                    let begun = Instant::now();
                    self.pass_on().await;
                    let pause = begun.elapsed() * PAUSE_TIMES;
                    stop.pause(pause.clamp(PAUSE_MIN, PAUSE_MAX)).await;
                }
                Some(None) => return,
                None => self.connection.release_idle(),
            }
        }
    }

    async fn pass_on(&self) {
        let pending = {
            let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *pending)
        };
        if pending.is_empty() {
            return;
        }
        let wake = if pending.len() > HEADS_MAX {
            Wake::Many
        } else {
            Wake::Heads(pending.into_iter().collect())
        };
        match within(LIMIT, self.send(&wake)).await {
            Some(Ok(())) => {}
            Some(Err(fault)) => {
                debug!(fault = fault.as_str(), "workers could not be notified");
            }
            None => debug!("workers could not be notified in time"),
        }
    }

    async fn send(&self, wake: &Wake) -> Result<(), Fault> {
        let mut connection = self.connection.take().await?;
        let sent = self.queue.notify_on(&mut connection, wake).await;
        sent.map_err(|error| self.db.observe(&error))?;
        self.connection.put(connection);
        Ok(())
    }
}
