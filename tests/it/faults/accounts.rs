//! What each side tells about a run: the producers, the receiver, and the database at the end.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    iter::StepBy,
    ops::Range,
    time::Duration,
};

use chrono::{DateTime, Utc};
use hook_testkit::{
    db::TestDb,
    history::{Answer, Attempt, Counts, Delivery, Enqueue, Job, Outcome, State},
    sink::{
        Sink,
        answer::{Answer as Reply, End, Stage},
        script::Script,
    },
    wait::pause,
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::Value;
use sqlx::PgPool;
use tokio::{sync::watch, time::Instant};

use crate::kit::{LIMIT, sample, sha256};

const PRODUCERS: usize = 8;
const TARGETS: usize = 200;

/// Where the time of a run is counted from.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    begun: Instant,
    begun_in_postgres: DateTime<Utc>,
}

impl Run {
    pub(crate) async fn begin(db: &TestDb) -> Self {
        let mut connection = db.connect().await;
        let begun_in_postgres = sqlx::query_scalar("SELECT clock_timestamp()")
            .fetch_one(&mut connection)
            .await
            .expect("Postgres tells the time");
        Self {
            begun: Instant::now(),
            begun_in_postgres,
        }
    }

    pub(crate) fn at(&self, time: Instant) -> Duration {
        time.saturating_duration_since(self.begun)
    }

    fn at_postgres(&self, time: DateTime<Utc>) -> Duration {
        let since = time - self.begun_in_postgres;
        since.to_std().unwrap_or_default()
    }
}

/// What the receiver does with an attempt; the same each time that it is asked.
#[derive(Clone, Copy)]
enum Reaction {
    Take,
    TakeSlowly,
    Fail,
    Reset,
}

fn reaction(id: &str, attempt: u32) -> Reaction {
    let mut hasher = DefaultHasher::new();
    (id, attempt).hash(&mut hasher);
    match hasher.finish() % 20 {
        0..2 => Reaction::Fail,
        2 => Reaction::Reset,
        3..7 => Reaction::TakeSlowly,
        _ => Reaction::Take,
    }
}

/// A receiver that takes most, some of it slowly, and fails in two ways.
pub(crate) fn script() -> Script {
    Script::new(|request, _| {
        let attempt = request.attempt().expect("every attempt has a number");
        match reaction(request.id(), attempt) {
            Reaction::Take => Reply::ok(),
            Reaction::TakeSlowly => Reply::ok().pause_before_head(Duration::from_millis(300)),
            Reaction::Fail => Reply::status(503),
            Reaction::Reset => Reply::ok().end_at(Stage::BodyRead, End::Reset),
        }
    })
}

/// What arrived.
pub(crate) fn deliveries(run: &Run, sink: &Sink) -> Vec<Delivery> {
    let requests = sink.requests();
    let mut connections = HashSet::new();
    let tell = requests.iter().map(|request| {
        let attempt = request.attempt().expect("every attempt has a number");
        let status = match reaction(request.id(), attempt) {
            Reaction::Take | Reaction::TakeSlowly => Some(200),
            Reaction::Fail => Some(503),
            Reaction::Reset => None,
        };
        Delivery {
            id: request.id().to_owned(),
            attempt,
            digest: request.body_complete.then(|| sha256(&request.body)),
            begun: run.at(request.head_read),
            status: status.filter(|_| request.body_complete),
            kept_connection: !connections.insert(request.connection),
        }
    });
    tell.collect()
}

/// A request with a key, which is repeated until it is answered, unless its producer gives up.
pub(crate) struct Order {
    key: String,
    body: String,
    digest: String,
    gives_up: bool,
}

/// The requests of one producer: one in thirty is refused, one in twenty given up when in doubt.
pub(crate) struct Orders {
    rng: StdRng,
    numbers: StepBy<Range<usize>>,
    url: String,
    /// From one request to the next.
    pace: Duration,
}

impl Iterator for Orders {
    type Item = Order;

    fn next(&mut self) -> Option<Order> {
        let n = self.numbers.next()?;
        let target = format!("t{}.test", n % TARGETS);
        let sample = sample(&mut self.rng, n + 20, &self.url, &target);
        let fields = sample.request.strip_prefix('{').expect("it is an object");
        let wrong = if self.rng.random_ratio(1, 30) {
            r#""no_such_field":1,"#
        } else {
            ""
        };
        Some(Order {
            key: format!("k{n}"),
            body: format!(r#"{{"idempotency_key":"k{n}",{wrong}{fields}"#),
            digest: sha256(&sample.bytes),
            gives_up: self.rng.random_ratio(1, 20),
        })
    }
}

/// So many requests for all producers, spread over this time.
pub(crate) fn orders(rng: &mut StdRng, sink: &Sink, keys: usize, time: Duration) -> Vec<Orders> {
    let each = u32::try_from(keys / PRODUCERS).expect("there are not so many");
    let orders = (0..PRODUCERS).map(|producer| Orders {
        rng: StdRng::seed_from_u64(rng.random()),
        numbers: (producer..keys).step_by(PRODUCERS),
        url: sink.url("/f"),
        pace: time / each,
    });
    orders.collect()
}

/// What a producer tells of a request, and when it knew.
pub(crate) struct Answered {
    pub(crate) enqueue: Enqueue,
    pub(crate) at: Duration,
}

/// Sends each request until its outcome is known or its producer gives up.
pub(crate) async fn produce(
    run: Run,
    client: reqwest::Client,
    bases: watch::Receiver<String>,
    orders: Orders,
) -> Vec<Answered> {
    let mut told = Vec::new();
    let mut due = Instant::now();
    let pace = orders.pace;
    for order in orders {
        pause(due.saturating_duration_since(Instant::now())).await;
        due += pace;
        let begun = Instant::now();
        let answer = loop {
            assert!(begun.elapsed() < LIMIT, "the API does not come back");
            let url = format!("{}/v1/jobs", bases.borrow().as_str());
            let sent = client
                .post(url)
                .header("content-type", "application/json")
                .body(order.body.clone());
            match outcome(sent).await {
                Some(answer) => break answer,
                None if order.gives_up => break Answer::Unknown,
                None => pause(Duration::from_millis(20)).await,
            }
        };
        let enqueue = Enqueue {
            key: order.key,
            digest: order.digest,
            answer,
        };
        told.push(Answered {
            enqueue,
            at: run.at(Instant::now()),
        });
    }
    told
}

/// What the answer says; `None` if none came, or the API is not able now.
async fn outcome(request: reqwest::RequestBuilder) -> Option<Answer> {
    let reply = request.send().await.ok()?;
    let status = reply.status().as_u16();
    let body: Value = reply.json().await.ok()?;
    match status {
        200 | 202 => {
            let id = body["id"].as_str().expect("an id");
            Some(Answer::Stored(vec![id.to_owned()]))
        }
        429 | 503 => None,
        422 => Some(Answer::Refused),
        other => Some(Answer::Unexpected(other)),
    }
}

/// An attempt as it is stored: job, number, fence, begin, milliseconds, outcome, error kind, status.
type AttemptRow = (
    String,
    i32,
    i64,
    DateTime<Utc>,
    i32,
    i16,
    Option<i16>,
    Option<i16>,
);

/// A job as it is stored: id, key, digest, status, end, attempts; the last three once it is final.
type JobRow = (
    String,
    String,
    String,
    Option<i16>,
    Option<DateTime<Utc>>,
    Option<i32>,
);

/// What the database holds, and what the product counted.
pub(crate) async fn jobs_and_counts(run: &Run, pool: &PgPool) -> (Vec<Job>, Counts) {
    let rows: Vec<AttemptRow> = sqlx::query_as(
        "SELECT job_id::text, attempt, fence, started_at::timestamptz, duration_ms, outcome, error_kind,
            response_status FROM hook.attempt
        UNION ALL
        SELECT job_id::text, attempt, fence, started_at::timestamptz, duration_ms, outcome, error_kind,
            response_status FROM hook.finished
        WHERE started_at IS NOT NULL",
    )
    .fetch_all(pool)
    .await
    .expect("attempts can be read");
    let mut attempts: HashMap<String, Vec<Attempt>> = HashMap::new();
    for (id, attempt, fence, started_at, ms, outcome, error_kind, status) in rows {
        let begun = run.at_postgres(started_at);
        attempts.entry(id).or_default().push(Attempt {
            attempt: u32::try_from(attempt).expect("it is small"),
            fence,
            begun,
            ended: begun + Duration::from_millis(u64::try_from(ms).expect("time passes")),
            outcome: match (outcome, error_kind) {
                (0, _) => Outcome::Delivered,
                (1, Some(10)) => Outcome::Lost,
                (1, _) => Outcome::Retryable,
                (2, _) => Outcome::Permanent,
                other => panic!("outcome {other:?}"),
            },
            status: status.map(|status| u16::try_from(status).expect("it is a status")),
        });
    }
    let rows: Vec<JobRow> = sqlx::query_as(
        "SELECT j.job_id::text, i.key, encode(sha256(COALESCE(j.body, '')), 'hex'), f.status,
                f.finished_at::timestamptz, f.attempt
            FROM hook.job AS j
            JOIN hook.idempotency AS i ON i.job_id = j.job_id
            LEFT JOIN hook.finished AS f ON f.job_id = j.job_id",
    )
    .fetch_all(pool)
    .await
    .expect("jobs can be read");
    let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM hook.job")
        .fetch_one(pool)
        .await
        .expect("jobs can be counted");
    assert_eq!(
        usize::try_from(stored),
        Ok(rows.len()),
        "each job has one key"
    );
    let job = |(id, key, digest, status, finished_at, attempt): JobRow| {
        let over = finished_at
            .map(|at| run.at_postgres(at))
            .unwrap_or_default();
        Job {
            attempts: attempts.remove(&id).unwrap_or_default(),
            id,
            key,
            digest,
            state: match status {
                Some(2) => State::Completed(over),
                Some(_) => State::Failed(over),
                None => State::Unfinished,
            },
            attempt: u32::try_from(attempt.unwrap_or_default()).expect("it is small"),
        }
    };
    (rows.into_iter().map(job).collect(), counts(pool).await)
}

/// What the tallies add up to: those that were counted, and those that wait for it.
async fn counts(pool: &PgPool) -> Counts {
    let row: (i64, i64, i64) = sqlx::query_as(
        "SELECT COALESCE(sum(delivered), 0)::bigint, COALESCE(sum(retryable), 0)::bigint,
            COALESCE(sum(permanent), 0)::bigint
        FROM (
            SELECT delivered, retryable, permanent FROM hook.attempt_total
            UNION ALL
            SELECT (one.outcome = 0)::int, (one.outcome = 1)::int, (one.outcome = 2)::int
            FROM hook.tally AS t, unnest(t.outcome) AS one (outcome)
        ) AS counted",
    )
    .fetch_one(pool)
    .await
    .expect("totals can be read");
    let count = |n| usize::try_from(n).expect("it is a count");
    Counts {
        delivered: count(row.0),
        retryable: count(row.1),
        permanent: count(row.2),
    }
}
