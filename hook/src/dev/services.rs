//! The three services in one process, started as their binaries start them.

use std::{future::Future, time::Duration};

use anyhow::anyhow;
use hook_common::{
    config::{BadSettings, Binary, command_line::Vars},
    lifecycle::Stop,
    ops::Readiness,
    start,
};
use tokio::{
    net::TcpListener,
    sync::mpsc,
    task::{JoinError, JoinSet},
};

use crate::exit::{Failure, Kind};

const SERVICES: usize = 3;

/// Between two looks at whether everything is ready.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The running services.
pub(super) struct Services {
    tasks: JoinSet<anyhow::Result<()>>,
    started: mpsc::Receiver<Readiness>,
    /// The end of a service that did not get ready.
    ended: Option<Result<anyhow::Result<()>, JoinError>>,
}

impl Services {
    /// Starts all of them; `vars` gives the settings of each. They end when `stop` drains, and
    /// when one of them fails, all do.
    pub(super) fn start(
        vars: impl Fn(Binary) -> Vars,
        listener: TcpListener,
        stop: &Stop,
    ) -> Result<Self, Failure> {
        let api = start::settings(
            Binary::Api,
            &vars(Binary::Api),
            hook_api::config::Config::read,
        );
        let worker = start::settings(
            Binary::Worker,
            &vars(Binary::Worker),
            hook_worker::Config::read,
        );
        let janitor = start::settings(
            Binary::Janitor,
            &vars(Binary::Janitor),
            hook_janitor::Config::read,
        );
        let bad = [
            api.as_ref().err().cloned(),
            worker.as_ref().err().cloned(),
            janitor.as_ref().err().cloned(),
        ];
        if let Some(bad) = BadSettings::together(bad.into_iter().flatten()) {
            return Err(bad.into());
        }
        let (api, worker, janitor) = (api?, worker?, janitor?);
        let (sender, started) = mpsc::channel(SERVICES);
        let mut tasks = JoinSet::new();
        let tell = sender.clone();
        let service = start::serve(api.0, api.1, stop.clone(), |config, context| async move {
            say_started(&tell, &context).await;
            hook_api::service::run_on(listener, config, context)
        });
        spawn(&mut tasks, service);
        let tell = sender.clone();
        let service = start::serve(
            worker.0,
            worker.1,
            stop.clone(),
            |config, context| async move {
                say_started(&tell, &context).await;
                hook_worker::run(config, context).await
            },
        );
        spawn(&mut tasks, service);
        let service = start::serve(
            janitor.0,
            janitor.1,
            stop.clone(),
            |config, context| async move {
                say_started(&sender, &context).await;
                hook_janitor::run(config, context).await
            },
        );
        spawn(&mut tasks, service);
        Ok(Self {
            tasks,
            started,
            ended: None,
        })
    }

    /// Waits until all are ready; false if that will not be.
    pub(super) async fn ready(&mut self, stop: &Stop) -> bool {
        let mut known: Vec<Readiness> = Vec::new();
        while !stop.is_draining() {
            tokio::select! {
                started = self.started.recv() => known.extend(started),
                ended = self.tasks.join_next() => {
                    self.ended = ended;
                    return false;
                }
                () = stop.pause(LOOK_EVERY) => {}
            }
            if known.len() == SERVICES && known.iter().all(Readiness::is_ready) {
                return true;
            }
        }
        false
    }

    /// Waits for the end of all.
    pub(super) async fn join(mut self, stop: &Stop) -> Result<(), Failure> {
        let mut first = Ok(());
        loop {
            let next = match self.ended.take() {
                Some(ended) => Some(ended),
                None => self.tasks.join_next().await,
            };
            let Some(end) = next else { return first };
            let fault = match end {
                Ok(Ok(())) if stop.is_draining() => continue,
                Ok(Ok(())) => anyhow!("a service ended by itself"),
                Ok(Err(error)) => error,
                Err(error) => anyhow::Error::new(error).context("a service panicked"),
            };
            stop.drain();
            first = first.and(Err(Failure::new(Kind::Fault, fault)));
        }
    }
}

fn spawn(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    service: impl Future<Output = anyhow::Result<()>> + Send + 'static,
) {
    tasks.spawn(service);
}

async fn say_started(tell: &mpsc::Sender<Readiness>, context: &start::Context) {
    // Nobody listens any more once the start was given up.
    drop(tell.send(context.readiness.clone()).await);
}
