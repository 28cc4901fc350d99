//! One group: the requests that share a statement.

use std::{collections::VecDeque, ops::Range, sync::Arc, time::Duration};

use hook_common::{lifecycle::within, queue::Enqueue};
use tokio::{sync::oneshot, time::Instant};

use super::{ANSWER_LIMIT, NotPlaced, Placed, Submission, fate::Fate, store::Store};

/// Most jobs of a group of several requests.
const JOBS_MAX: usize = 500;
/// Most bytes of bodies of such a group.
const BYTES_MAX: usize = 2 * 1024 * 1024;
/// A request with more jobs has a statement of its own.
const SHARED_JOBS_MAX: usize = 100;
/// A statement that takes longer is given up; its connection is closed.
const STATEMENT_LIMIT: Duration = Duration::from_secs(30);

/// The requests that share a statement.
#[derive(Debug)]
pub(super) struct Group {
    jobs: Vec<Enqueue>,
    members: Vec<Member>,
    oldest: Instant,
}

/// One request of a group.
#[derive(Debug)]
struct Member {
    place: Range<usize>,
    reply: oneshot::Sender<Result<Vec<Placed>, NotPlaced>>,
}

impl Group {
    /// Takes the oldest waiting requests, as many as go into one statement.
    pub(super) fn take(waiting: &mut VecDeque<Submission>) -> Option<Self> {
        let first = waiting.pop_front()?;
        let mut bytes = bytes_of(&first.jobs);
        let is_alone = is_alone(&first.jobs);
        let mut group = Self {
            oldest: first.since,
            jobs: Vec::new(),
            members: Vec::new(),
        };
        group.add(first);
        while !is_alone && let Some(next) = waiting.front() {
            bytes += bytes_of(&next.jobs);
            let count = group.jobs.len() + next.jobs.len();
            if self::is_alone(&next.jobs) || count > JOBS_MAX || bytes > BYTES_MAX {
                break;
            }
            if let Some(next) = waiting.pop_front() {
                group.add(next);
            }
        }
        Some(group)
    }

    fn add(&mut self, submission: Submission) {
        let start = self.jobs.len();
        if self.jobs.is_empty() {
            self.jobs = submission.jobs;
        } else {
            self.jobs.extend(submission.jobs);
        }
        self.members.push(Member {
            place: start..self.jobs.len(),
            reply: submission.reply,
        });
    }

    /// Stores the jobs and answers every request.
    pub(super) async fn commit(self, store: Arc<Store>) {
        let Self {
            jobs,
            members,
            oldest,
        } = self;
        let spans: Vec<Range<usize>> = members.iter().map(|member| member.place.clone()).collect();
        let storing = async move {
            let fates = store.store(&jobs, &spans).await;
            (jobs, fates)
        };
        tokio::pin!(storing);
        let time_left = ANSWER_LIMIT.saturating_sub(oldest.elapsed());
        if let Some((jobs, fates)) = within(time_left, &mut storing).await {
            answer_all(jobs, members, fates);
            return;
        }
        for member in members {
            drop(member.reply.send(Err(NotPlaced::OutcomeUnknown)));
        }
        // The jobs may still be stored; then workers are to learn of them as of any others.
        within(STATEMENT_LIMIT, storing).await;
    }
}

fn answer_all(jobs: Vec<Enqueue>, members: Vec<Member>, fates: Vec<Fate>) {
    let mut ends = jobs.into_iter().zip(fates);
    for Member { place, reply } in members {
        let mut placed = Vec::with_capacity(place.len());
        let mut reused = Vec::new();
        let mut failed = None;
        for (index, (job, fate)) in ends.by_ref().take(place.len()).enumerate() {
            match fate {
                Fate::Stored(id) => placed.push(Placed::new(id, job.tier, job.job.target)),
                Fate::Known(known) => placed.push(known),
                Fate::KeyReused => reused.push(index),
                Fate::Failed(fault) => failed = Some(fault),
            }
        }
        let answer = match failed {
            // It kept the others of its request out, which failed for no other reason.
            _ if !reused.is_empty() => Err(NotPlaced::KeysReused(reused)),
            Some(fault) => Err(NotPlaced::Fault(fault)),
            None => Ok(placed),
        };
        drop(reply.send(answer));
    }
}

/// Whether these jobs need a statement of their own: many, or several of which one has a key, so
/// that a key in use must keep all of them out.
fn is_alone(jobs: &[Enqueue]) -> bool {
    jobs.len() > SHARED_JOBS_MAX
        || (jobs.len() > 1 && jobs.iter().any(|job| job.job.idempotency.is_some()))
}

fn bytes_of(jobs: &[Enqueue]) -> usize {
    jobs.iter().map(|job| job.job.body.len()).sum()
}
