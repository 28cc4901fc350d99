//! The load: jobs enqueued over kept HTTP connections, at a rate or as fast as answers come.
//!
//! At a rate (open loop) each job has a time at which it is due, whether or not earlier ones were
//! answered, and its latency counts from there: a system that stalls cannot hide it by making the
//! producer wait. Without a rate (closed loop) each connection sends its next request as soon as
//! the last is answered.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use clap::Args;
use hyper::{
    StatusCode, Uri,
    header::{HeaderName, HeaderValue},
};
use tokio::task::JoinSet;

use crate::{
    clock,
    http::{Connection, uri},
    receiver::{self, BEFORE_NUMBER, Behaviour, NUMBER_DIGITS, Receiver},
};

/// How often the receiver is asked what has arrived, where that bounds the load.
const COUNT_EVERY: Duration = Duration::from_millis(20);

/// How often a sender looks whether the window has moved.
const WINDOW_LOOK_EVERY: Duration = Duration::from_millis(5);

/// Where the API takes one job, and where it takes many.
pub(crate) const SINGLE: &str = "/v1/jobs";
pub(crate) const BATCH: &str = "/v1/jobs/batch";

/// How jobs are sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Form {
    /// One job a request.
    Single,
    /// One job a request, with an idempotency key.
    Keyed,
    /// So many jobs a request.
    Batch(u64),
}

/// When the load ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// After so many jobs.
    Jobs(u64),
    /// After this time; what is in flight then is still awaited.
    After(Duration),
}

/// Which jobs are made.
#[derive(Clone, Debug)]
pub(crate) struct Jobs {
    /// Where jobs go. Job number n goes to `urls[pattern[n % pattern.len()]]`.
    pub(crate) urls: Vec<String>,
    pub(crate) pattern: Vec<u16>,
    /// Bytes of a job's body.
    pub(crate) body_bytes: usize,
}

/// More jobs than this a second, and the receiver's list is too short.
pub(crate) const RATE_MAX: f64 = 60_000.0;

/// Jobs that a receiver has to have room for.
pub(crate) fn jobs_max(rate: Option<f64>, seconds: f64) -> u64 {
    let most = seconds * rate.unwrap_or(RATE_MAX) + 1000.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "seconds and rates are small and positive"
    )]
    let most = most as u64;
    most
}

/// What can be told of a load that is as large as the machine delivers.
#[derive(Args, Clone, Debug)]
pub(crate) struct LoadArgs {
    /// Enqueue requests in flight.
    #[arg(long, default_value_t = 64, value_name = "N")]
    connections: u64,
    /// Jobs under way at most, at the full load.
    #[arg(long, default_value_t = 2000, value_name = "JOBS")]
    window: u64,
    /// Destinations, each an address of its own.
    #[arg(long, default_value_t = 50, value_name = "N")]
    pub(crate) targets: u16,
    /// Bytes of a job's body.
    #[arg(long, default_value_t = 1024, value_name = "BYTES")]
    pub(crate) body_bytes: usize,
}

impl LoadArgs {
    /// The bound on the jobs under way.
    pub(crate) fn window(&self, receiver: &Receiver) -> Window {
        Window {
            receiver: receiver.address(),
            jobs: self.window,
        }
    }

    /// One job a request at `address`, without that bound.
    pub(crate) fn load(&self, address: SocketAddr, rate: Option<f64>, until: Until) -> Load {
        Load {
            address,
            path: SINGLE,
            form: Form::Single,
            connections: self.connections,
            rate,
            window: None,
            until,
        }
    }

    /// Jobs for every destination of the receiver in turn.
    pub(crate) fn jobs(&self, receiver: &Receiver) -> Jobs {
        let urls = (0..self.targets).map(|index| receiver.url(index, Behaviour::Ok));
        Jobs::round_robin(urls.collect(), self.body_bytes)
    }
}

/// A load that is still to be put on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Who takes the jobs, and under which path.
    pub(crate) address: SocketAddr,
    pub(crate) path: &'static str,
    pub(crate) form: Form,
    /// Requests in flight at most.
    pub(crate) connections: u64,
    /// Jobs a second; `None` for as many as are answered.
    pub(crate) rate: Option<f64>,
    /// Jobs that may be sent and not yet received; needs the receiver that is asked.
    pub(crate) window: Option<Window>,
    pub(crate) until: Until,
}

/// A bound on the jobs under way, so that a queue that delivers less than it takes is measured by
/// what it delivers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) receiver: SocketAddr,
    pub(crate) jobs: u64,
}

/// A job that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentJob {
    pub(crate) number: u64,
    /// When it was due to be sent.
    pub(crate) due: u64,
    /// When its enqueue was answered.
    pub(crate) answered: u64,
}

/// What became of a load.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    /// The jobs that were taken, in no order.
    pub(crate) jobs: Vec<SentJob>,
    /// Requests that were turned down.
    pub(crate) refused: u64,
    pub(crate) begun: u64,
    pub(crate) ended: u64,
}

impl Sent {
    pub(crate) fn seconds(&self) -> f64 {
        clock::seconds_between(self.begun, self.ended)
    }
}

impl Jobs {
    /// Jobs that go round and round through `urls`.
    pub(crate) fn round_robin(urls: Vec<String>, body_bytes: usize) -> Self {
        let count = u16::try_from(urls.len()).expect("fewer URLs than ports");
        Self {
            urls,
            pattern: (0..count).collect(),
            body_bytes,
        }
    }

    /// The index of the URL that this job goes to.
    pub(crate) fn url_of(&self, number: u64) -> usize {
        let length = self.pattern.len() as u64;
        let place = usize::try_from(number % length).expect("below the length of a vector");
        usize::from(self.pattern[place])
    }

    /// Writes the job as the API takes it.
    fn write(&self, number: u64, into: &mut Vec<u8>) {
        into.extend_from_slice(br#"{"url":""#);
        into.extend_from_slice(self.urls[self.url_of(number)].as_bytes());
        into.extend_from_slice(br#"","payload":"#);
        write_body(number, self.body_bytes, into);
        into.push(b'}');
    }
}

/// Writes the body of a job: its number, and as many bytes as there should be in all.
pub(crate) fn write_body(number: u64, bytes: usize, into: &mut Vec<u8>) {
    const AFTER_NUMBER: &[u8] = br#"","pad":""#;
    const END: &[u8] = br#""}"#;
    let begin = into.len();
    into.extend_from_slice(BEFORE_NUMBER.as_bytes());
    into.extend_from_slice(format!("{number:0NUMBER_DIGITS$}").as_bytes());
    into.extend_from_slice(AFTER_NUMBER);
    let used = into.len() - begin + END.len();
    into.resize(into.len() + bytes.saturating_sub(used), b'x');
    into.extend_from_slice(END);
}

/// What the connections of a load share.
struct Shared {
    load: Load,
    jobs: Jobs,
    path: Uri,
    begun: u64,
    next: AtomicU64,
    received: AtomicU64,
}

impl Load {
    /// Puts the load on, with jobs numbered from 0, and returns once every request is answered.
    pub(crate) async fn run(self, jobs: Jobs) -> anyhow::Result<Sent> {
        let path = uri(self.path)?;
        let mut connections = Vec::new();
        for _ in 0..self.connections {
            connections.push(Connection::open(self.address).await?);
        }
        let window = self.window;
        let shared = Arc::new(Shared {
            load: self,
            jobs,
            path,
            begun: clock::now(),
            next: AtomicU64::new(0),
            received: AtomicU64::new(0),
        });
        let mut counting = JoinSet::new();
        if let Some(window) = window {
            counting.spawn(count(window.receiver, Arc::clone(&shared)));
        }
        let mut senders = JoinSet::new();
        for connection in connections {
            let shared = Arc::clone(&shared);
            senders.spawn(async move { shared.send_all(connection).await });
        }
        let mut sent = Sent {
            begun: shared.begun,
            ..Sent::default()
        };
        while let Some(done) = senders.join_next().await {
            let part = done.context("a sender panicked")??;
            sent.jobs.extend(part.jobs);
            sent.refused += part.refused;
        }
        sent.ended = clock::now();
        Ok(sent)
    }
}

impl Shared {
    async fn send_all(&self, mut connection: Connection) -> anyhow::Result<Sent> {
        let mut sent = Sent::default();
        let batch = match self.load.form {
            Form::Single | Form::Keyed => 1,
            Form::Batch(jobs) => jobs,
        };
        loop {
            let first = self.next.fetch_add(batch, Relaxed);
            if self.is_over(first) {
                return Ok(sent);
            }
            let due = self.wait_until_due(first).await;
            let body = self.request_body(first, batch);
            let answer = match self.load.form {
                Form::Single | Form::Batch(_) => connection.post(&self.path, body).await,
                Form::Keyed => {
                    let key = HeaderValue::from(first);
                    let name = HeaderName::from_static("idempotency-key");
                    connection.post_with(&self.path, body, (name, key)).await
                }
            }?;
            let answered = clock::now();
            match answer.status {
                status if status.is_success() => {
                    let numbers = first..first + batch;
                    sent.jobs.extend(numbers.map(|number| SentJob {
                        number,
                        due,
                        answered,
                    }));
                }
                StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                    sent.refused += 1;
                }
                status => bail!(
                    "an enqueue was answered {status}: {}",
                    String::from_utf8_lossy(&answer.body)
                ),
            }
        }
    }

    fn is_over(&self, first: u64) -> bool {
        match self.load.until {
            Until::Jobs(jobs) => first >= jobs,
            Until::After(time) => {
                clock::seconds_between(self.begun, self.due(first)) >= time.as_secs_f64()
            }
        }
    }

    /// When this job is due; now, where there is no rate.
    fn due(&self, number: u64) -> u64 {
        match self.load.rate {
            Some(rate) => self.begun + nanos(number, rate),
            None => clock::now(),
        }
    }

    /// Waits until the job may be sent, and returns the time that its latency counts from.
    async fn wait_until_due(&self, number: u64) -> u64 {
        if let Some(window) = self.load.window {
            while number >= self.received.load(Relaxed) + window.jobs {
                clock::pause(WINDOW_LOOK_EVERY).await;
            }
        }
        let due = self.due(number);
        let early = due.saturating_sub(clock::now());
        if early == 0 {
            return due;
        }
        clock::pause(Duration::from_nanos(early)).await;
        // The timer is coarser than what is measured; that it fired late is not the queue's doing.
        clock::now().max(due)
    }

    fn request_body(&self, first: u64, batch: u64) -> Bytes {
        let mut body = Vec::with_capacity(self.jobs.body_bytes + 128);
        match self.load.form {
            Form::Single | Form::Keyed => self.jobs.write(first, &mut body),
            Form::Batch(_) => {
                body.extend_from_slice(br#"{"jobs":["#);
                for number in first..first + batch {
                    if number > first {
                        body.push(b',');
                    }
                    self.jobs.write(number, &mut body);
                }
                body.extend_from_slice(b"]}");
            }
        }
        body.into()
    }
}

/// Keeps the count of what was received; ends with the load.
async fn count(receiver: SocketAddr, shared: Arc<Shared>) -> anyhow::Result<()> {
    let mut control = Connection::open(receiver).await?;
    loop {
        let counts = receiver::counts(&mut control).await?;
        shared.received.store(counts.jobs, Relaxed);
        clock::pause(COUNT_EVERY).await;
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "job numbers and times are far below 2^52 and not negative"
)]
fn nanos(jobs: u64, rate: f64) -> u64 {
    (jobs as f64 / rate * 1e9) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_json_of_the_wanted_length_with_its_number_in_front() {
        for bytes in [64, 1024] {
            let mut body = Vec::new();
            write_body(17, bytes, &mut body);
            assert_eq!(body.len(), bytes);
            let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(json["n"], "000000000017");
            assert!(body.starts_with(BEFORE_NUMBER.as_bytes()));
        }
    }

    #[test]
    fn a_pattern_says_where_each_job_goes() {
        let jobs = Jobs {
            urls: vec!["http://a/".to_owned(), "http://b/".to_owned()],
            pattern: vec![0, 1, 1],
            body_bytes: 64,
        };
        let of: Vec<usize> = (0..6).map(|number| jobs.url_of(number)).collect();
        assert_eq!(of, [0, 1, 1, 0, 1, 1]);
        let mut text = Vec::new();
        jobs.write(4, &mut text);
        let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(json["url"], "http://b/");
    }
}
