//! Healthy targets under a load that goes on while something happens: the processes, and phases in
//! which it is measured what the healthy ones see.

use std::time::Duration;

use crate::{
    clock,
    command::Common,
    load::{self, Form, Jobs, Load, Sent, Until, Window},
    receiver::{Behaviour, Receiver},
    rig::{Rig, Service},
    sql::{
        self,
        fill::{Backlog, Ended},
    },
};

pub(crate) mod healthy;

use healthy::Healthy;

/// Targets that are always well.
pub(crate) const HEALTHY: u16 = 50;

/// The name under which the sick targets' behaviour is switched.
const SICK: &str = "sick";

/// Bytes of a job's body.
const BODY_BYTES: usize = 512;

/// Numbers of jobs in a backlog: beyond those of any load, so that they are nobody's arrivals.
const BACKLOG_NUMBER: i64 = 100_000_000_000;

/// Longest wait for healthy jobs after the last enqueue.
const LATE_MAX: Duration = Duration::from_secs(30);

/// Settings of every scenario; attempts time out after five seconds, as in the case that this
/// product was made for.
const SETTINGS: [(&str, &str); 4] = [
    ("HOOK_ATTEMPT_TIMEOUT", "5s"),
    ("HOOK_CONNECT_TIMEOUT", "2s"),
    ("HOOK_MAX_ATTEMPTS", "100"),
    ("HOOK_SHUTDOWN_GRACE", "8s"),
];

/// How a scenario is set up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Setup {
    /// Targets that can turn sick.
    pub(crate) sick: u16,
    pub(crate) settings: &'static [(&'static str, &'static str)],
}

pub(crate) struct Scene {
    pub(crate) rig: Rig,
    pub(crate) receiver: Receiver,
    pub(crate) api: Service,
    pub(crate) worker: Service,
    janitor: Service,
    sick: u16,
}

/// Who gets the jobs of a phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    /// Of a hundred jobs, those that go to targets that can turn sick.
    pub(crate) sick_percent: u16,
    /// The first of these targets, and how many there are.
    pub(crate) sick_from: u16,
    pub(crate) sick: u16,
}

/// A phase that has ended.
pub(crate) struct Phase {
    pub(crate) healthy: Healthy,
    pub(crate) open_max: f64,
}

impl Mix {
    /// Nobody but the healthy.
    pub(crate) const HEALTHY: Self = Self {
        sick_percent: 0,
        sick_from: 0,
        sick: 0,
    };

    /// Which jobs of a hundred go to sick targets: spread evenly.
    fn is_sick(self, number: u64) -> bool {
        let percent = u64::from(self.sick_percent);
        (number % 100 + 1) * percent / 100 > (number % 100) * percent / 100
    }

    /// For each job of a round, the index of the address that it goes to.
    fn pattern(self) -> Vec<u16> {
        let first = HEALTHY + self.sick_from;
        let mut well = (0..HEALTHY).cycle();
        let mut ill = (first..first + self.sick.max(1)).cycle();
        let round = 100 * u64::from(self.sick.max(1)) * u64::from(HEALTHY);
        (0..round)
            .filter_map(|number| {
                if self.is_sick(number) {
                    ill.next()
                } else {
                    well.next()
                }
            })
            .collect()
    }
}

impl Scene {
    pub(crate) async fn start(common: &Common, setup: Setup) -> anyhow::Result<Self> {
        let rig = Rig::start(common).await?;
        let receiver = rig.receiver(HEALTHY + setup.sick).await?;
        let settings: Vec<_> = SETTINGS.iter().chain(setup.settings).copied().collect();
        Ok(Self {
            api: rig.api(&settings).await?,
            worker: rig.worker("worker", &settings).await?,
            janitor: rig.janitor(&settings).await?,
            rig,
            receiver,
            sick: setup.sick,
        })
    }

    /// Switches all sick targets.
    pub(crate) async fn switch(&mut self, behaviour: Behaviour) -> anyhow::Result<()> {
        self.receiver.switch(SICK, behaviour).await
    }

    /// The URL of a target that can turn sick.
    pub(crate) fn sick_url(&self, index: u16) -> String {
        self.receiver.live_url(HEALTHY + index, SICK)
    }

    /// The name of a target that can turn sick.
    pub(crate) fn sick_host(&self, index: u16) -> String {
        host_of(&self.sick_url(index))
    }

    /// Stores jobs that wait for the targets that can turn sick, spread over all of them.
    pub(crate) async fn fill_sick(&self, jobs: u32) -> anyhow::Result<()> {
        let urls = (0..self.sick).map(|index| self.sick_url(index));
        self.fill(urls.collect(), jobs).await
    }

    /// Stores jobs that wait for the healthy targets, which answer so.
    pub(crate) async fn fill_healthy(&self, jobs: u32, behaviour: Behaviour) -> anyhow::Result<()> {
        let urls = (0..HEALTHY).map(|index| self.receiver.url(index, behaviour));
        self.fill(urls.collect(), jobs).await
    }

    /// Stores jobs of the targets that can turn sick that have ended, spread over all of them.
    pub(crate) async fn fill_ended(&self, jobs: u32, ended: Ended) -> anyhow::Result<()> {
        let urls = (0..self.sick).map(|index| self.sick_url(index));
        let backlog = backlog(urls.collect(), jobs);
        Ok(sql::fill::fill_ended(&self.rig.admin, &backlog, ended).await?)
    }

    /// Replaces the janitor by one with other settings.
    pub(crate) async fn replace_janitor(
        &mut self,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<()> {
        let new = self.rig.janitor(settings).await?;
        let old = std::mem::replace(&mut self.janitor, new);
        old.child.stop().await
    }

    async fn fill(&self, urls: Vec<String>, jobs: u32) -> anyhow::Result<()> {
        let backlog = backlog(urls, jobs);
        Ok(sql::fill::fill(&self.rig.admin, &backlog).await?)
    }

    /// Plays one phase at a rate, while `meanwhile` happens at the receiver.
    pub(crate) async fn phase(
        &mut self,
        mix: Mix,
        rate: f64,
        seconds: f64,
        meanwhile: impl AsyncFnOnce(&mut Receiver) -> anyhow::Result<()>,
    ) -> anyhow::Result<Phase> {
        self.receiver
            .reset(load::jobs_max(Some(rate), seconds))
            .await?;
        let load = Load {
            rate: Some(rate),
            ..self.load(Until::After(Duration::from_secs_f64(seconds)))
        };
        let jobs = self.jobs(mix);
        let (sent, done) = tokio::join!(load.run(jobs), meanwhile(&mut self.receiver));
        done?;
        self.count(&sent?, mix).await
    }

    /// Jobs a second with as many as the product can take, all healthy.
    pub(crate) async fn full(&mut self, time: Duration) -> anyhow::Result<f64> {
        // The first seconds are for connections, plans and caches.
        self.round(Duration::from_secs(2)).await?;
        self.round(time).await
    }

    async fn round(&mut self, time: Duration) -> anyhow::Result<f64> {
        let jobs_max = load::jobs_max(None, time.as_secs_f64());
        self.receiver.reset(jobs_max).await?;
        let load = Load {
            window: Some(Window {
                receiver: self.receiver.address(),
                jobs: 1000,
            }),
            ..self.load(Until::After(time))
        };
        let sent = load.run(self.jobs(Mix::HEALTHY)).await?;
        let phase = self.count(&sent, Mix::HEALTHY).await?;
        Ok(phase.healthy.per_second)
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.api.child.stop().await?;
        self.worker.child.stop().await?;
        self.janitor.child.stop().await?;
        self.receiver.stop().await?;
        self.rig.stop().await
    }

    /// Waits for the healthy jobs and puts their times together.
    async fn count(&mut self, sent: &Sent, mix: Mix) -> anyhow::Result<Phase> {
        let begun = clock::now();
        let is_healthy = |number| !mix.is_sick(number);
        loop {
            let arrivals = self.receiver.arrivals().await?;
            let healthy = Healthy::of(sent, &arrivals, is_healthy);
            let waited = clock::seconds_between(begun, clock::now());
            if healthy.missing == 0 || waited > LATE_MAX.as_secs_f64() {
                let counts = self.receiver.counts().await?;
                #[expect(clippy::cast_precision_loss, reason = "a few thousand at most")]
                let open_max = counts.open_max as f64;
                return Ok(Phase { healthy, open_max });
            }
            clock::pause(Duration::from_millis(200)).await;
        }
    }

    fn jobs(&self, mix: Mix) -> Jobs {
        let well = (0..HEALTHY).map(|index| self.receiver.url(index, Behaviour::Ok));
        let sick = (0..self.sick).map(|index| self.sick_url(index));
        Jobs {
            urls: well.chain(sick).collect(),
            pattern: mix.pattern(),
            body_bytes: BODY_BYTES,
        }
    }

    fn load(&self, until: Until) -> Load {
        Load {
            address: self.api.public,
            path: load::SINGLE,
            form: Form::Single,
            connections: 64,
            rate: None,
            window: None,
            until,
        }
    }
}

fn backlog(urls: Vec<String>, jobs: u32) -> Backlog {
    Backlog {
        first: BACKLOG_NUMBER,
        jobs: i64::from(jobs),
        targets: urls.iter().map(|url| host_of(url)).collect(),
        urls,
        body_bytes: BODY_BYTES,
        due_in: 0.0,
    }
}

/// The host of one of the receiver's URLs.
fn host_of(url: &str) -> String {
    let after = url.trim_start_matches("http://");
    after.split(':').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_mixed_evenly_and_each_target_gets_its_part() {
        let mix = Mix {
            sick_percent: 90,
            sick_from: 2,
            sick: 4,
        };
        let sick = (0..100).filter(|number| mix.is_sick(*number)).count();
        assert_eq!(sick, 90);
        let pattern = mix.pattern();
        for (number, index) in (0_u64..).zip(&pattern) {
            assert_eq!(*index >= HEALTHY, mix.is_sick(number), "{number}");
        }
        let of = |wanted: u16| pattern.iter().filter(|index| **index == wanted).count();
        assert_eq!(of(HEALTHY + 2), of(HEALTHY + 5));
        assert_eq!((of(HEALTHY + 1), of(HEALTHY + 6)), (0, 0));
        assert!(Mix::HEALTHY.pattern().iter().all(|index| *index < HEALTHY));
    }
}
