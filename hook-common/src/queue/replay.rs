//! Replays: requests to put many finished jobs back, and how far they have come.
//!
//! A replay is a row. The api writes it and shows it; every api and janitor works it off
//! (`batch.rs`, `replays.rs`), so that it goes on whoever comes and goes.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, postgres::PgRow};
use uuid::Uuid;

use crate::{
    job::{ErrorKind, JobId, QueueName, Status, Tier},
    queue::{JobFilter, Queue, SHARD, listing::tier_codes},
};

mod batch;

pub use batch::ReplayWork;

/// Replays that may be under way at one time: each has a rate of its own, and the sum needs a bound.
pub const REPLAYS_UNDER_WAY_MAX: i64 = 20;

/// A request to put jobs back.
#[derive(Clone, Debug)]
pub struct NewReplay<'a> {
    /// Which jobs; its status must be a final one.
    pub filter: &'a JobFilter,
    /// What they ended for; `None` means anything.
    pub error_kind: Option<ErrorKind>,
    /// Jobs at most.
    pub limit: i32,
    /// Jobs that fall due in a second.
    pub rate_per_second: i32,
    /// What tells the sender's token from others.
    pub requested_by: Option<&'a str>,
    /// A second request with this key is the first one again.
    pub key: Option<&'a str>,
}

/// What became of a request.
#[derive(Clone, Debug)]
pub enum ReplayStart {
    /// It is under way.
    Started(Replay),
    /// It had been asked for before.
    Repeated(Replay),
    /// Its key belongs to another request.
    KeyReused,
    /// Too many are under way.
    TooMany,
}

/// How far a replay has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReplayState {
    /// Its jobs are being counted.
    Counting,
    /// Its jobs are being put back.
    Running,
    /// All are back.
    Completed,
    /// It was stopped.
    Cancelled,
}

impl ReplayState {
    /// Every state.
    pub const ALL: &'static [Self] = &[
        Self::Counting,
        Self::Running,
        Self::Completed,
        Self::Cancelled,
    ];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counting => "counting",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
        }
    }

    const fn code(self) -> i16 {
        match self {
            Self::Counting => 0,
            Self::Running => 1,
            Self::Completed => 2,
            Self::Cancelled => 3,
        }
    }

    fn from_code(code: i16) -> Option<Self> {
        Self::ALL.iter().copied().find(|state| state.code() == code)
    }
}

/// A replay.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Sorts by time.
    pub replay_id: Uuid,
    /// How far it has come.
    pub state: ReplayState,
    /// Status of the jobs it is for.
    pub status: Status,
    /// Their target; `None` means any.
    pub target: Option<String>,
    /// Their queue; `None` means either.
    pub queue: Option<QueueName>,
    /// What they ended for; `None` means anything.
    pub error_kind: Option<ErrorKind>,
    /// They were enqueued at this time or later.
    pub from: Option<DateTime<Utc>>,
    /// They were enqueued before this time.
    pub to: Option<DateTime<Utc>>,
    /// Jobs at most.
    pub limit: i32,
    /// Jobs that fall due in a second.
    pub rate_per_second: i32,
    /// When it was asked for.
    pub requested_at: DateTime<Utc>,
    /// What tells the sender's token from others.
    pub requested_by: Option<String>,
    /// Jobs that were found.
    pub total: i64,
    /// Jobs that were put back.
    pub done: i64,
    /// When it was completed or cancelled.
    pub finished_at: Option<DateTime<Utc>>,
}

impl FromRow<'_, PgRow> for Replay {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        use sqlx::Row as _;
        let unknown = || sqlx::Error::Decode("an unknown state or status".into());
        let state = ReplayState::from_code(row.try_get("state")?);
        let status = Status::from_code(row.try_get("job_status")?);
        let tiers: Vec<i16> = row.try_get("tiers")?;
        let error_kind: Option<i16> = row.try_get("error_kind")?;
        Ok(Self {
            replay_id: row.try_get("replay_id")?,
            state: state.ok_or_else(unknown)?,
            status: status.ok_or_else(unknown)?,
            target: row.try_get("target")?,
            queue: queue_of(&tiers),
            error_kind: error_kind.and_then(ErrorKind::from_code),
            from: row.try_get("jobs_from")?,
            to: row.try_get("jobs_to")?,
            limit: row.try_get("job_limit")?,
            rate_per_second: row.try_get("rate_per_second")?,
            requested_at: row.try_get("requested_at")?,
            requested_by: row.try_get("requested_by")?,
            total: row.try_get("total")?,
            done: row.try_get("done")?,
            finished_at: row.try_get("finished_at")?,
        })
    }
}

/// The queue that has exactly these tiers.
fn queue_of(tiers: &[i16]) -> Option<QueueName> {
    let queues = QueueName::ALL.iter().copied();
    let mut of_tiers = queues.filter(|queue| {
        let of_queue: Vec<i16> = queue.tiers().iter().map(|tier| tier.code()).collect();
        of_queue == tiers && of_queue.len() < Tier::ALL.len()
    });
    of_tiers.next()
}

// Jobs that were enqueued after the request are none of its own: its id is the end of their ids.
const START: &str = "-- start_replay
WITH clock AS MATERIALIZED (
    SELECT at, hook.new_job_id((extract(epoch FROM at) * 1000000)::bigint) AS replay_id
    FROM (SELECT clock_timestamp() AS at) AS now
), started AS (
    INSERT INTO hook.replay (shard, replay_id, requested_at, next_at, job_status, target, target_id, tiers,
        error_kind, jobs_from, jobs_to, first_job, end_job, cursor, job_limit, rate_per_second, requested_by, key)
    SELECT $1, replay_id, at, at, $2, $3, $4, $5, $6, $7, $8, $9, LEAST($10, replay_id), $9, $11, $12, $13, $14
    FROM clock
    WHERE (SELECT count(*) FROM hook.replay WHERE shard = $1 AND state < 2) < $15
    ON CONFLICT (shard, key) DO NOTHING
    RETURNING *
)
SELECT true AS is_new, true AS is_same, started.* FROM started
UNION ALL
SELECT false, (job_status, target, tiers, error_kind, jobs_from, jobs_to, job_limit, rate_per_second)
    IS NOT DISTINCT FROM ($2::smallint, $3::text, $5::smallint[], $6::smallint, $7::timestamptz, $8::timestamptz,
        $11::integer, $12::integer), known.*
FROM hook.replay AS known WHERE shard = $1 AND key = $14";

const REPLAY: &str = "-- replay
SELECT * FROM hook.replay WHERE shard = $1 AND replay_id = $2";

const REPLAYS: &str = "-- replays
SELECT * FROM hook.replay WHERE shard = $1 AND replay_id < $2 ORDER BY replay_id DESC LIMIT $3";

const CANCEL_REPLAY: &str = "-- cancel_replay
UPDATE hook.replay SET state = 3, finished_at = now() WHERE shard = $1 AND replay_id = $2 AND state < 2
RETURNING *";

impl Queue {
    /// Notes that jobs are to be put back; see [`crate::replays`] for who does it.
    ///
    /// # Errors
    /// Whether it was noted is not known; with a key, asking again is harmless.
    pub async fn start_replay(&self, replay: &NewReplay<'_>) -> sqlx::Result<ReplayStart> {
        // Somebody else may take the key between the two looks at it; then it is there the next time.
        for _ in 0..2 {
            if let Some(row) = self.try_start_replay(replay).await? {
                let found = Replay::from_row(&row)?;
                return Ok(match StartRow::from_row(&row)? {
                    StartRow { is_new: true, .. } => ReplayStart::Started(found),
                    StartRow { is_same: true, .. } => ReplayStart::Repeated(found),
                    StartRow { is_same: false, .. } => ReplayStart::KeyReused,
                });
            }
        }
        Ok(ReplayStart::TooMany)
    }

    async fn try_start_replay(&self, replay: &NewReplay<'_>) -> sqlx::Result<Option<PgRow>> {
        let filter = replay.filter;
        let ids = filter.ids();
        sqlx::query(START)
            .bind(SHARD)
            .bind(filter.status.unwrap_or(Status::Failed).code())
            .bind(filter.target.as_ref().map(|target| target.as_str()))
            .bind(filter.target.as_ref().map(|target| target.id().0))
            .bind(tier_codes(filter.queue))
            .bind(replay.error_kind.map(ErrorKind::code))
            .bind(filter.from)
            .bind(filter.to)
            .bind(ids.start)
            .bind(ids.end)
            .bind(replay.limit)
            .bind(replay.rate_per_second)
            .bind(replay.requested_by)
            .bind(replay.key)
            .bind(REPLAYS_UNDER_WAY_MAX)
            .fetch_optional(&self.pool())
            .await
    }

    /// Returns a replay; `None` if there is none (any more).
    ///
    /// # Errors
    /// Postgres could not be asked; that says nothing about the replay.
    pub async fn replay(&self, id: JobId) -> sqlx::Result<Option<Replay>> {
        sqlx::query_as(REPLAY)
            .bind(SHARD)
            .bind(id.0)
            .fetch_optional(&self.pool())
            .await
    }

    /// Returns up to `limit` replays, the latest first, from the one before `before` on.
    ///
    /// # Errors
    /// As [`Queue::replay`].
    pub async fn replays(&self, before: Option<JobId>, limit: usize) -> sqlx::Result<Vec<Replay>> {
        sqlx::query_as(REPLAYS)
            .bind(SHARD)
            .bind(before.map_or(Uuid::max(), |before| before.0))
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&self.pool())
            .await
    }

    /// Stops a replay that is under way: what is back stays back. `None` if it is not under way.
    ///
    /// # Errors
    /// Whether it was stopped is not known; calling again is harmless.
    pub async fn cancel_replay(&self, id: JobId) -> sqlx::Result<Option<Replay>> {
        sqlx::query_as(CANCEL_REPLAY)
            .bind(SHARD)
            .bind(id.0)
            .fetch_optional(&self.pool())
            .await
    }
}

/// What a start came to.
#[derive(Clone, Copy, FromRow)]
struct StartRow {
    is_new: bool,
    is_same: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_and_queue_comes_back_from_what_is_stored() {
        for state in ReplayState::ALL {
            assert_eq!(ReplayState::from_code(state.code()), Some(*state));
        }
        for queue in QueueName::ALL {
            assert_eq!(queue_of(&tier_codes(Some(*queue))), Some(*queue));
        }
        assert_eq!(queue_of(&tier_codes(None)), None);
    }
}
