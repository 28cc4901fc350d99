//! Group commit: many requests, one statement, each answered after its own statement's commit.
//!
//! Requests hand their jobs to a loop that groups whatever is waiting whenever it may start a
//! statement, so groups grow with the load and nobody waits for a timer. A statement runs in a
//! task that no request owns: a client that hangs up changes nothing for itself or for others.
//!
//! A request that has not been answered in time is refused. If its statement was not sent, its
//! jobs are dropped here and nothing is stored; if it was, nobody knows, and the refusal says so.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use hook_common::{
    db::{Db, Fault},
    job::{JobId, QueueName, Tier},
    lifecycle::within,
    periodic::Heartbeats,
    queue::{Enqueue, Queue},
    target::Target,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::Instant,
};

use crate::{kept, wake::Waker};

mod fate;
mod fold;
mod group;
mod store;

use group::Group;
use store::Store;

/// An answer is given at most this long after the jobs were handed over.
const ANSWER_LIMIT: Duration = Duration::from_millis(1700);
/// Statements that run at one time.
pub(crate) const STATEMENTS_MAX: usize = WAITING_MIN.len();
/// How many requests have to wait before the first, second and third statement is started. A statement
/// costs as much as some thirty jobs of it, so a second one pays only where many wait already.
const WAITING_MIN: [usize; 3] = [1, 16, 64];
/// The loop shows a sign of life at least this often.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Hands jobs to the loop; cheap to clone. The loop ends when all of these are gone.
#[derive(Clone, Debug)]
pub(crate) struct Enqueuer {
    send: mpsc::Sender<Submission>,
}

/// A job that is stored, now or by an earlier request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Placed {
    /// The job.
    pub(crate) id: JobId,
    /// The queue it was put into.
    pub(crate) queue: QueueName,
    /// Its target.
    pub(crate) target: Target,
    /// Whether an earlier request stored it.
    pub(crate) duplicate: bool,
}

/// Why jobs are not known to be stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum NotPlaced {
    /// As many requests are waiting as may.
    Full,
    /// Postgres did not get to it in time; nothing was stored.
    TooLate,
    /// The statement was sent and not answered in time.
    OutcomeUnknown,
    /// The statement failed.
    Fault(Fault),
    /// The keys of the jobs at these places were used for other requests; nothing was stored.
    KeysReused(Vec<usize>),
}

/// The jobs of one request, stored together or not at all.
#[derive(Debug)]
struct Submission {
    jobs: Vec<Enqueue>,
    since: Instant,
    reply: oneshot::Sender<Result<Vec<Placed>, NotPlaced>>,
}

/// Forms groups and runs their statements.
#[derive(Debug)]
pub(crate) struct Committer {
    receive: mpsc::Receiver<Submission>,
    waiting: VecDeque<Submission>,
    running: JoinSet<()>,
    store: Arc<Store>,
    waiting_max: usize,
}

/// What the loop works with.
#[derive(Clone, Debug)]
pub(crate) struct CommitterParts {
    /// Where jobs are stored.
    pub(crate) queue: Queue,
    /// Judges errors.
    pub(crate) db: Db,
    /// Told of new jobs.
    pub(crate) waker: Waker,
    /// How long an idempotency key is remembered.
    pub(crate) key_ttl: Duration,
    /// Requests that may wait.
    pub(crate) waiting_max: usize,
    /// Connections of the whole process.
    pub(crate) pool_max: usize,
}

impl Enqueuer {
    pub(crate) fn new(parts: CommitterParts) -> (Self, Committer) {
        let (send, receive) = mpsc::channel(parts.waiting_max);
        let committer = Committer {
            receive,
            waiting: VecDeque::new(),
            running: JoinSet::new(),
            waiting_max: parts.waiting_max,
            store: Arc::new(Store::new(parts)),
        };
        (Self { send }, committer)
    }

    /// Stores jobs, all or none, and says where they are, in their order.
    ///
    /// # Cancel safety
    /// A caller that is dropped does not learn the answer; the jobs are stored all the same.
    pub(crate) async fn enqueue(&self, jobs: Vec<Enqueue>) -> Result<Vec<Placed>, NotPlaced> {
        let (reply, answer) = oneshot::channel();
        let submission = Submission {
            jobs,
            since: Instant::now(),
            reply,
        };
        self.send
            .try_send(submission)
            .map_err(|_| NotPlaced::Full)?;
        // No answer at all means that the task has panicked or was cut while aborting.
        answer.await.unwrap_or(Err(NotPlaced::OutcomeUnknown))
    }
}

/// What the loop has to react to.
enum Event {
    /// Requests came in; none means that no more will.
    Received(usize),
    StatementEnded,
    /// Nothing happened until the oldest waiting request ran out of time, or a connection was idle
    /// for long enough.
    TimeUp,
}

impl Committer {
    /// Commits groups until every [`Enqueuer`] is gone and everything is answered.
    pub(crate) async fn run(mut self, heartbeats: Heartbeats) {
        let heartbeat = heartbeats.register("group_commit", SILENCE_MAX);
        let mut is_open = true;
        while is_open || !self.waiting.is_empty() || !self.running.is_empty() {
            self.start_groups();
            match heartbeat.while_waiting(self.next_event(is_open)).await {
                Event::Received(0) => is_open = false,
                Event::Received(_) | Event::StatementEnded => {}
                Event::TimeUp => {
                    self.refuse_overdue();
                    self.store.connections().release_idle();
                }
            }
        }
    }

    fn start_groups(&mut self) {
        while let Some(min) = WAITING_MIN.get(self.running.len())
            && self.waiting.len() >= *min
        {
            let Some(group) = Group::take(&mut self.waiting) else {
                return;
            };
            let store = Arc::clone(&self.store);
            self.running.spawn(group.commit(store));
        }
    }

    /// # Cancel safety
    /// Loses nothing when it is dropped.
    async fn next_event(&mut self, is_open: bool) -> Event {
        let room = self.waiting_max.saturating_sub(self.waiting.len());
        let time_left = match self.waiting.front() {
            Some(oldest) => Some(ANSWER_LIMIT.saturating_sub(oldest.since.elapsed())),
            None if self.store.connections().is_empty() => None,
            None => Some(kept::IDLE_MAX),
        };
        let mut received = Vec::new();
        let next = async {
            tokio::select! {
                biased;
                Some(_ended) = self.running.join_next() => Event::StatementEnded,
                count = self.receive.recv_many(&mut received, room), if is_open && room > 0 => {
                    Event::Received(count)
                }
                else => std::future::pending().await,
            }
        };
        let event = match time_left {
            None => next.await,
            Some(time_left) => within(time_left, next).await.unwrap_or(Event::TimeUp),
        };
        self.waiting.extend(received);
        event
    }

    /// Drops what has waited for too long, oldest first; nothing of it was sent.
    fn refuse_overdue(&mut self) {
        while let Some(oldest) = self.waiting.front()
            && oldest.since.elapsed() >= ANSWER_LIMIT
            && let Some(overdue) = self.waiting.pop_front()
        {
            overdue.answer(Err(NotPlaced::TooLate));
        }
    }
}

impl Submission {
    /// A client that has hung up is told nothing.
    fn answer(self, answer: Result<Vec<Placed>, NotPlaced>) {
        drop(self.reply.send(answer));
    }
}

impl Placed {
    fn new(id: JobId, tier: Tier, target: Target) -> Self {
        Self {
            id,
            queue: tier.queue(),
            target,
            duplicate: false,
        }
    }
}
