//! The receiver of a scenario, as the driver sees it: a process, and a way to ask it what arrived.
//!
//! Each job carries its number in its body (`load::body`), and the receiver notes when that number
//! arrived first. The driver knows when each job was due and of which class it is, and puts the
//! two together; so any latency can be told exactly, and no job is lost or repeated unseen.

use std::{net::SocketAddr, path::Path, time::Duration};

use anyhow::{Context as _, bail};

use crate::{
    child::{Child, Start},
    clock,
    http::Connection,
};

pub(crate) mod server;

/// Digits of a job's number, and the bytes of the body before them.
pub(crate) const NUMBER_DIGITS: usize = 12;
pub(crate) const BEFORE_NUMBER: &str = r#"{"n":""#;

/// How often it is asked by somebody who waits.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How the receiver answers; also the path of a URL that is answered so.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Behaviour {
    /// 200, at once.
    Ok,
    /// 200, after so many milliseconds.
    Delay(u64),
    /// This status, at once.
    Status(u16),
    /// Nothing, for as long as the client waits.
    Hang,
}

impl Behaviour {
    /// The path, without the first slash.
    pub(crate) fn path(self) -> String {
        match self {
            Self::Ok => "ok".to_owned(),
            Self::Delay(ms) => format!("delay/{ms}"),
            Self::Status(code) => format!("status/{code}"),
            Self::Hang => "hang".to_owned(),
        }
    }

    fn parse(path: &str) -> Option<Self> {
        match path.split_once('/') {
            None if path == "ok" => Some(Self::Ok),
            None if path == "hang" => Some(Self::Hang),
            Some(("delay", ms)) => Some(Self::Delay(ms.parse().ok()?)),
            Some(("status", code)) => Some(Self::Status(code.parse().ok()?)),
            None | Some(_) => None,
        }
    }
}

/// What the receiver counted since the last reset.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize, serde::Serialize)]
pub(crate) struct Counts {
    /// Jobs that arrived, each counted once.
    pub(crate) jobs: u64,
    /// Requests beyond the first for a job.
    pub(crate) repeats: u64,
    /// Requests without a number below the limit.
    pub(crate) strangers: u64,
    /// Requests that are not answered yet.
    pub(crate) open: u64,
    /// The most that there ever were at one time.
    pub(crate) open_max: u64,
}

/// The running receiver.
pub(crate) struct Receiver {
    child: Child,
    address: SocketAddr,
    control: Connection,
}

impl Receiver {
    /// Starts a receiver on 127.0.0.1 and the addresses that follow, all on one port.
    pub(crate) async fn start(program: &Path, addresses: u16) -> anyhow::Result<Self> {
        let mut child = Child::start(Start {
            program,
            name: "receiver".to_owned(),
            arguments: vec!["receiver".to_owned(), format!("--addresses={addresses}")],
            settings: Vec::new(),
        })?;
        let address = child.address().await?;
        let control = Connection::open(address).await?;
        Ok(Self {
            child,
            address,
            control,
        })
    }

    pub(crate) fn child(&self) -> &Child {
        &self.child
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL by which address number `index`, from 0, answers so.
    pub(crate) fn url(&self, index: u16, behaviour: Behaviour) -> String {
        let path = behaviour.path();
        self.url_of(index, &path)
    }

    /// The URL by which address number `index` answers as [`Receiver::switch`] says.
    pub(crate) fn live_url(&self, index: u16, name: &str) -> String {
        self.url_of(index, &format!("live/{name}"))
    }

    fn url_of(&self, index: u16, path: &str) -> String {
        let [high, low] = (index + 1).to_be_bytes();
        format!("http://127.0.{high}.{low}:{}/{path}", self.address.port())
    }

    /// Sets how `/live/<name>` is answered from now on; 200 at once until set.
    pub(crate) async fn switch(&mut self, name: &str, behaviour: Behaviour) -> anyhow::Result<()> {
        let path = behaviour.path();
        self.order(&format!("/control/switch/{name}/{path}")).await
    }

    /// Forgets what arrived; from now on jobs have numbers below `jobs`.
    pub(crate) async fn reset(&mut self, jobs: u64) -> anyhow::Result<()> {
        self.order(&format!("/control/reset/{jobs}")).await
    }

    /// What arrived since the last reset.
    pub(crate) async fn counts(&mut self) -> anyhow::Result<Counts> {
        counts(&mut self.control).await
    }

    /// Waits until so many jobs have arrived since the last reset.
    pub(crate) async fn wait_for(&mut self, jobs: u64, limit: Duration) -> anyhow::Result<()> {
        let begun = clock::now();
        loop {
            let counts = self.counts().await?;
            if counts.jobs >= jobs {
                return Ok(());
            }
            if clock::seconds_between(begun, clock::now()) > limit.as_secs_f64() {
                bail!("of {jobs} jobs only {} arrived", counts.jobs);
            }
            clock::pause(LOOK_EVERY).await;
        }
    }

    /// When each job arrived first, by its number, on the shared clock; `None` if it did not.
    pub(crate) async fn arrivals(&mut self) -> anyhow::Result<Vec<Option<u64>>> {
        let answer = self.control.get("/control/arrivals").await?;
        let times = answer.body.chunks_exact(8).map(|bytes| {
            let bytes = bytes.try_into().expect("chunks have eight bytes");
            Some(u64::from_le_bytes(bytes)).filter(|nanos| *nanos > 0)
        });
        Ok(times.collect())
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.child.stop().await
    }

    async fn order(&mut self, path: &str) -> anyhow::Result<()> {
        let answer = self.control.put(path).await?;
        if !answer.status.is_success() {
            bail!("the receiver does not understand {path}");
        }
        Ok(())
    }
}

/// Asks a receiver over a connection of one's own.
pub(crate) async fn counts(control: &mut Connection) -> anyhow::Result<Counts> {
    let answer = control.get("/control/counts").await?;
    serde_json::from_slice(&answer.body).context("reading the receiver's counts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_behaviour_is_read_from_its_own_path_only() {
        for behaviour in [
            Behaviour::Ok,
            Behaviour::Delay(4000),
            Behaviour::Status(503),
            Behaviour::Hang,
        ] {
            assert_eq!(Behaviour::parse(&behaviour.path()), Some(behaviour));
        }
        for path in ["", "ok/1", "delay", "delay/x", "status/-1", "hang/1"] {
            assert_eq!(Behaviour::parse(path), None, "{path:?}");
        }
    }
}
