//! What happened in a run with faults, and whether that is allowed.
//!
//! Producers, the receiver, the database at the end, and whoever made the faults each tell what
//! they saw; [`History::check`] compares these accounts. It is pure, so that it can be tested with
//! histories that are wrong on purpose: a checker that accepts everything proves nothing.
//!
//! All times are counted from the start of the run. Clocks are those of one machine, read by
//! several processes: [`SLACK`] covers what lies between two readings.

use std::time::Duration;

mod check;
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
    /// Whether its connection had carried a request before.
    pub kept_connection: bool,
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
    /// The status that its worker saw.
    pub status: Option<u16>,
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
    /// A further request for an attempt whose first one had an answer or a new connection, or which
    /// had two requests already.
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
    /// A request after the job was over, of an attempt that was not given up as lost.
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
