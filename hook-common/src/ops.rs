//! The ops listener: `/livez`, `/readyz` and `/metrics`, never behind traffic.
//!
//! It has an OS thread, a runtime and a listener of its own, is the first thing up and the last
//! thing down, and answers while every other part of the process is saturated. It asks nobody:
//! all it shows was left for it in memory ([`Readiness`], [`Heartbeats`], the metrics recorder).
//! Its connections are few and short: one request each, a deadline for all of it, and when there
//! are too many, the oldest makes room. Deliberately absent: anything but these three routes.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    thread,
};

use tokio::sync::oneshot;
use tracing::info;

use crate::{metrics, periodic::Heartbeats};

mod answer;
mod readiness;
mod serve;

#[cfg(test)]
mod tests;

pub use readiness::Readiness;

/// What the ops listener of one service shows.
#[derive(Clone, Debug)]
pub struct Surface {
    /// The program, as a label and in answers.
    pub binary: &'static str,
    /// Behind `/readyz`.
    pub readiness: Readiness,
    /// Behind `/livez`.
    pub heartbeats: Heartbeats,
    /// Behind `/metrics`.
    pub metrics: metrics::Handle,
}

/// A running ops listener; it ends when this is closed or dropped.
#[derive(Debug)]
pub struct Ops {
    address: SocketAddr,
    close: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// Why the ops listener could not start.
#[derive(Debug, thiserror::Error)]
pub enum OpsFault {
    /// The address cannot be listened on; most often another process has it.
    #[error("listening on {address} for the ops listener (HOOK_OPS_LISTEN)")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The system gave no thread or runtime.
    #[error("starting the thread of the ops listener")]
    Thread(#[source] io::Error),
}

impl Ops {
    /// Listens on `address` (port 0: any free one) and answers from now on.
    ///
    /// # Errors
    /// When the address is taken or the system refuses a thread.
    pub fn start(address: SocketAddr, surface: Surface) -> Result<Self, OpsFault> {
        let listener = TcpListener::bind(address)
            .and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok(listener)
            })
            .map_err(|source| OpsFault::Listen { address, source })?;
        let address = listener.local_addr().map_err(OpsFault::Thread)?;
        let (close, closed) = oneshot::channel();
        let binary = surface.binary;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(OpsFault::Thread)?;
        // Made here and not in the thread, so that it is there once this has returned.
        let spare = serve::Spare::new();
        let thread = thread::Builder::new()
            .name("ops".to_owned())
            .spawn(move || runtime.block_on(serve::serve(listener, surface, spare, closed)))
            .map_err(OpsFault::Thread)?;
        info!(listener = "ops", %address, binary, "listening");
        Ok(Self {
            address,
            close: Some(close),
            thread: Some(thread),
        })
    }

    /// The address that is listened on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops listening and waits for the thread; blocks for at most the time of one answer.
    pub fn close(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.close.take());
        if let Some(thread) = self.thread.take() {
            // A panic of that thread has been logged by the panic hook.
            drop(thread.join());
        }
    }
}

impl Drop for Ops {
    fn drop(&mut self) {
        self.end();
    }
}
