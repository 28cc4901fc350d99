//! The tasks that drive HTTP/2 connections, all in one set that ends with the client.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use hyper::rt::Executor;
use tokio::task::JoinSet;

/// Owns the tasks; dropping it aborts them.
#[derive(Default)]
pub(crate) struct TaskSet(Arc<Mutex<JoinSet<()>>>);

/// Adds tasks to a [`TaskSet`] that may be gone already; it does not keep it alive.
#[derive(Clone)]
pub(crate) struct Spawner(Weak<Mutex<JoinSet<()>>>);

impl TaskSet {
    /// A handle for whoever has tasks to run.
    pub(crate) fn spawner(&self) -> Spawner {
        Spawner(Arc::downgrade(&self.0))
    }
}

impl Spawner {
    /// Runs `task` until it ends or the set is dropped, whichever comes first.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let Some(set) = self.0.upgrade() else {
            return;
        };
        let mut set = set.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(ended) = set.try_join_next() {
            if let Err(error) = ended
                && error.is_panic()
            {
                tracing::error!("a task of an HTTP/2 connection has panicked");
            }
        }
        set.spawn(task);
    }
}

impl<F> Executor<F> for Spawner
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}
