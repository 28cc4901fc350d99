//! What happened in a run with faults, and whether that is allowed.
//!
//! Producers, the receiver, the database at the end, and whoever made the faults each tell what
//! they saw; [`History::check`] compares these accounts. It is pure, so that it can be tested with
//! histories that are wrong on purpose: a checker that accepts everything proves nothing.
//!
//! All times are counted from the start of the run. Clocks are those of one machine, read by
//! several processes: [`SLACK`] covers what lies between two readings.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Between one event and another process's record of it.
pub const SLACK: Duration = Duration::from_secs(1);

/// The accounts of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// What the producers asked for and heard, one entry per key.
    pub enqueues: Vec<Enqueue>,
    /// What arrived at the receiver.
    pub deliveries: Vec<Delivery>,
    /// What the database holds at the end.
    pub jobs: Vec<Job>,
    /// What was done to the processes, Postgres and the network.
    pub faults: Vec<Fault>,
    /// Attempts that the product counted, by how they ended.
    pub counted: Counts,
    /// What the product promises.
    pub limits: Limits,
}

/// What the product promises for this run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Attempts of a job.
    pub attempts_max: u32,
    /// Shortest pause between a failed attempt and the next one.
    pub backoff_min: Duration,
    /// A lost attempt is over after this, where no fault keeps the janitor away.
    pub orphan_max: Duration,
}

/// A job that a producer asked for.
#[derive(Clone, Debug)]
pub struct Enqueue {
    /// Its idempotency key.
    pub key: String,
    /// SHA-256 of the bytes to be delivered.
    pub digest: String,
    /// What became of the request, repeats included.
    pub answer: Answer,
}

/// What a producer knows about its job.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// It was accepted; repeats of the request were answered with these ids as well.
    Stored(Vec<String>),
    /// It was refused for good.
    Refused,
    /// No answer came, and the producer gave up.
    Unknown,
    /// An answer came that is none of the documented ones.
    Unexpected(u16),
}

/// A request at the receiver.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// `webhook-id`
    pub id: String,
    /// `hook-attempt`
    pub attempt: u32,
    /// SHA-256 of the body; `None` where the body did not arrive whole.
    pub digest: Option<String>,
    /// When its head was read.
    pub begun: Duration,
    /// The status that was answered.
    pub status: Option<u16>,
}

/// A job at the end.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its id.
    pub id: String,
    /// The key that it was stored under.
    pub key: String,
    /// SHA-256 of the stored body.
    pub digest: String,
    /// Where it is.
    pub state: State,
    /// Attempts counted in the job itself.
    pub attempt: u32,
    /// Its attempts on record.
    pub attempts: Vec<Attempt>,
}

/// Where a job is at the end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// It waits or is running.
    Unfinished,
    /// Delivered, at this time.
    Completed(Duration),
    /// Given up, at this time.
    Failed(Duration),
}

/// An attempt on record.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// Its number.
    pub attempt: u32,
    /// The fence it was made under.
    pub fence: i64,
    /// When it was leased.
    pub begun: Duration,
    /// When it was over.
    pub ended: Duration,
    /// What it came to.
    pub outcome: Outcome,
}

/// What an attempt came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The receiver took it.
    Delivered,
    /// The receiver, or the way to it, failed.
    Retryable,
    /// The receiver refused it.
    Permanent,
    /// Its worker did not report.
    Lost,
}

/// Attempts by outcome; lost ones are among the retryable.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Taken by the receiver.
    pub delivered: usize,
    /// To be tried again.
    pub retryable: usize,
    /// Refused.
    pub permanent: usize,
}

/// Something that was done to the product.
#[derive(Clone, Debug)]
pub struct Fault {
    /// What it was, for people.
    pub what: String,
    /// When it began.
    pub from: Duration,
    /// When things had to be in order again.
    pub until: Duration,
}

/// A promise that was broken.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Breach {
    /// Accepted, and not there.
    Lost(String),
    /// Neither delivered nor failed at the end.
    Unfinished(String),
    /// Completed, and the receiver never took it.
    NeverTaken(String),
    /// Failed, and no attempt says why.
    Unexplained(String),
    /// A request for a job that was never asked for, or refused.
    Unasked(String),
    /// Other bytes than were sent, stored or delivered.
    WrongBytes(String),
    /// Two jobs for one key.
    KeyTwice(String),
    /// An answer outside the contract.
    Unexpected(String, u16),
    /// A further request for an attempt that had an answer, or had two requests already.
    SentTwice(String, u32),
    /// A request under a number that no attempt has.
    OffRecord(String, u32),
    /// More attempts than allowed.
    TooManyAttempts(String),
    /// Numbers of attempts with a gap or twice, or not as many as the job says.
    Miscounted(String),
    /// A fence that did not rise.
    FenceFell(String),
    /// Something followed a final attempt.
    AfterTheEnd(String),
    /// A request after the job was over, and no fault explains it.
    LateRequest(String),
    /// An attempt was lost, and there was no fault.
    LostWithoutFault(String),
    /// A lost attempt took too long to be noticed.
    OrphanLate(String),
    /// The next attempt came before its time.
    TooSoon(String),
    /// The product's totals are not what the attempts add up to.
    Totals,
}

impl History {
    /// Names every promise that was broken.
    #[must_use]
    pub fn check(&self) -> Vec<Breach> {
        let mut breaches = Vec::new();
        let jobs: HashMap<&str, &Job> =
            self.jobs.iter().map(|job| (job.id.as_str(), job)).collect();
        let asked: HashMap<&str, &Enqueue> = self
            .enqueues
            .iter()
            .map(|enqueue| (enqueue.key.as_str(), enqueue))
            .collect();
        for enqueue in &self.enqueues {
            check_enqueue(enqueue, &jobs, &mut breaches);
        }
        let mut received: HashMap<&str, Vec<&Delivery>> = HashMap::new();
        for delivery in &self.deliveries {
            received.entry(&delivery.id).or_default().push(delivery);
            if !jobs.contains_key(delivery.id.as_str()) {
                breaches.push(Breach::Unasked(delivery.id.clone()));
            }
        }
        let mut keys = HashSet::new();
        for job in &self.jobs {
            if !keys.insert(&job.key) {
                breaches.push(Breach::KeyTwice(job.key.clone()));
            }
            match asked.get(job.key.as_str()) {
                None => breaches.push(Breach::Unasked(job.id.clone())),
                Some(enqueue) if enqueue.answer == Answer::Refused => {
                    breaches.push(Breach::Unasked(job.id.clone()));
                }
                Some(enqueue) if enqueue.digest != job.digest => {
                    breaches.push(Breach::WrongBytes(job.id.clone()));
                }
                Some(_) => {}
            }
            let received = received.get(job.id.as_str()).map_or(&[][..], Vec::as_slice);
            check_deliveries(job, received, &mut breaches);
            self.check_attempts(job, &mut breaches);
            self.check_end(job, received, &mut breaches);
        }
        if self.counted != self.on_record() {
            breaches.push(Breach::Totals);
        }
        breaches
    }

    /// Requests beyond the first that the receiver took, of all jobs.
    #[must_use]
    pub fn duplicates(&self) -> usize {
        let taken = self
            .deliveries
            .iter()
            .filter(|delivery| was_taken(delivery));
        let ids: Vec<&str> = taken.map(|delivery| delivery.id.as_str()).collect();
        ids.len() - ids.iter().collect::<HashSet<_>>().len()
    }

    /// What the recorded attempts add up to.
    #[must_use]
    pub fn on_record(&self) -> Counts {
        let mut counts = Counts::default();
        for attempt in self.jobs.iter().flat_map(|job| &job.attempts) {
            match attempt.outcome {
                Outcome::Delivered => counts.delivered += 1,
                Outcome::Retryable | Outcome::Lost => counts.retryable += 1,
                Outcome::Permanent => counts.permanent += 1,
            }
        }
        counts
    }

    fn check_attempts(&self, job: &Job, breaches: &mut Vec<Breach>) {
        let mut attempts = job.attempts.clone();
        attempts.sort_by_key(|attempt| attempt.attempt);
        let counted = attempts.iter().map(|attempt| attempt.attempt);
        if !counted.eq(1..=job.attempt) {
            breaches.push(Breach::Miscounted(job.id.clone()));
        }
        if job.attempt > self.limits.attempts_max {
            breaches.push(Breach::TooManyAttempts(job.id.clone()));
        }
        for pair in attempts.windows(2) {
            let (before, after) = (pair[0], pair[1]);
            if after.fence <= before.fence {
                breaches.push(Breach::FenceFell(job.id.clone()));
            }
            match before.outcome {
                Outcome::Delivered | Outcome::Permanent => {
                    breaches.push(Breach::AfterTheEnd(job.id.clone()));
                }
                // An attempt counts from before its dequeue, which a fault makes long.
                Outcome::Retryable => {
                    let early = after.begun + SLACK / 4 < before.ended + self.limits.backoff_min;
                    let disturbed = self.faults_in(before.begun, before.ended).next().is_some();
                    if early && !disturbed {
                        breaches.push(Breach::TooSoon(job.id.clone()));
                    }
                }
                Outcome::Lost => {}
            }
        }
        for lost in attempts
            .iter()
            .filter(|attempt| attempt.outcome == Outcome::Lost)
        {
            let over: Duration = self
                .faults_in(lost.begun, lost.ended)
                .map(|fault| fault.until.min(lost.ended) - fault.from.max(lost.begun))
                .sum();
            if self.faults_in(lost.begun, lost.ended).next().is_none() {
                breaches.push(Breach::LostWithoutFault(job.id.clone()));
            } else if lost.ended - lost.begun > self.limits.orphan_max + over {
                breaches.push(Breach::OrphanLate(job.id.clone()));
            }
        }
    }

    fn check_end(&self, job: &Job, received: &[&Delivery], breaches: &mut Vec<Breach>) {
        let last = job.attempts.iter().max_by_key(|attempt| attempt.attempt);
        let over = match job.state {
            State::Unfinished => {
                breaches.push(Breach::Unfinished(job.id.clone()));
                return;
            }
            State::Completed(over) => {
                let taken = received.iter().any(|delivery| was_taken(delivery));
                let on_record = last.is_some_and(|last| last.outcome == Outcome::Delivered);
                if !taken || !on_record {
                    breaches.push(Breach::NeverTaken(job.id.clone()));
                }
                over
            }
            State::Failed(over) => {
                let explained = last.is_some_and(|last| match last.outcome {
                    Outcome::Delivered => false,
                    Outcome::Permanent => true,
                    Outcome::Retryable | Outcome::Lost => last.attempt == self.limits.attempts_max,
                });
                if !explained {
                    breaches.push(Breach::Unexplained(job.id.clone()));
                }
                over
            }
        };
        let late = received
            .iter()
            .filter(|delivery| delivery.begun > over + SLACK)
            .any(|delivery| {
                self.faults_in(Duration::ZERO, delivery.begun)
                    .next()
                    .is_none()
            });
        if late {
            breaches.push(Breach::LateRequest(job.id.clone()));
        }
    }

    /// Faults that overlap this time.
    fn faults_in(&self, from: Duration, until: Duration) -> impl Iterator<Item = &Fault> {
        let faults = self.faults.iter();
        faults.filter(move |fault| fault.from <= until && fault.until >= from)
    }
}

fn was_taken(delivery: &Delivery) -> bool {
    delivery
        .status
        .is_some_and(|status| (200..300).contains(&status))
}

fn check_enqueue(enqueue: &Enqueue, jobs: &HashMap<&str, &Job>, breaches: &mut Vec<Breach>) {
    match &enqueue.answer {
        Answer::Stored(ids) => {
            if ids.iter().collect::<HashSet<_>>().len() > 1 {
                breaches.push(Breach::KeyTwice(enqueue.key.clone()));
            }
            for id in ids {
                match jobs.get(id.as_str()) {
                    Some(job) if job.key == enqueue.key => {}
                    Some(_) | None => breaches.push(Breach::Lost(id.clone())),
                }
            }
        }
        Answer::Refused | Answer::Unknown => {}
        Answer::Unexpected(status) => {
            breaches.push(Breach::Unexpected(enqueue.key.clone(), *status));
        }
    }
}

fn check_deliveries(job: &Job, received: &[&Delivery], breaches: &mut Vec<Breach>) {
    let mut answered: HashMap<u32, Vec<Option<u16>>> = HashMap::new();
    for delivery in received {
        let other_bytes = |digest: &String| *digest != job.digest;
        if delivery.digest.as_ref().is_some_and(other_bytes) {
            breaches.push(Breach::WrongBytes(job.id.clone()));
        }
        // A kept connection that dies before a byte of the answer is replaced once.
        let before = answered.entry(delivery.attempt).or_default();
        if before.len() > 1 || before.iter().any(Option::is_some) {
            breaches.push(Breach::SentTwice(job.id.clone(), delivery.attempt));
        }
        before.push(delivery.status);
        let on_record = |attempt: &Attempt| attempt.attempt == delivery.attempt;
        if !job.attempts.iter().any(on_record) {
            breaches.push(Breach::OffRecord(job.id.clone(), delivery.attempt));
        }
    }
}
