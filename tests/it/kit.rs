//! What the system tests share: realistic bodies, enqueueing them, and the receiver's account.

use std::{collections::HashMap, fmt::Write as _, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hook_testkit::{sink::Sink, stack::Stack, wait::wait_for};
use rand::{Rng as _, RngCore as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

/// A key to seal secrets with: base64 of 32 bytes.
pub(crate) const SECRET_KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// Long enough for a busy machine; a test that passes never waits for it.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// A body as a producer would send it, and the fields of the request that carry it.
pub(crate) struct Sample {
    pub(crate) bytes: Vec<u8>,
    pub(crate) request: String,
}

/// Makes the `n`th sample: empty, JSON with odd numbers and texts, text, or bytes; a few are large.
pub(crate) fn sample(rng: &mut StdRng, n: usize, url: &str, target: &str) -> Sample {
    let size = match n % 500 {
        0 => 1024 * 1024,
        1..20 => rng.random_range(16 * 1024..64 * 1024),
        20..200 => rng.random_range(1024..4096),
        _ => rng.random_range(0..1024),
    };
    let (bytes, field) = match n % 4 {
        0 => {
            let text = json_text(n, size);
            (text.clone().into_bytes(), format!(r#""payload":{text}"#))
        }
        1 => {
            let mut bytes = vec![0; size];
            rng.fill_bytes(&mut bytes);
            let field = format!(r#""body_base64":"{}""#, BASE64_STANDARD.encode(&bytes));
            (bytes, field)
        }
        2 => {
            let text: String = "Grüße, 世界 🦀\n\u{1}"
                .chars()
                .cycle()
                .take(size / 3)
                .collect();
            (
                text.clone().into_bytes(),
                format!(r#""body":{}"#, json!(text)),
            )
        }
        _ => (Vec::new(), r#""metadata":{}"#.to_owned()),
    };
    let request = format!(r#"{{"url":"{url}","target":"{target}",{field}}}"#);
    Sample { bytes, request }
}

/// A JSON text whose spelling a parser would not keep.
fn json_text(n: usize, size: usize) -> String {
    let mut text = format!(
        r#"{{ "id":{n}, "big":123456789012345678901234567890, "id":1e400, "nul":"\u0000", "half":"\ud83d","#
    );
    text.push_str(r#""text":""#);
    let filler = size.saturating_sub(text.len() + 3);
    for _ in 0..filler {
        text.push('x');
    }
    text.push_str("\" }");
    text
}

/// SHA-256 as hexadecimal text.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").expect("writing to a string");
            text
        })
}

/// Enqueues samples in a batch and returns the ids in their order.
pub(crate) async fn enqueue_batch(stack: &Stack, samples: &[Sample]) -> Vec<String> {
    let joined: Vec<&str> = samples
        .iter()
        .map(|sample| sample.request.as_str())
        .collect();
    let body = format!(r#"{{"jobs":[{}]}}"#, joined.join(","));
    let request = stack
        .client()
        .post(stack.api_url("/v1/jobs/batch"))
        .header("content-type", "application/json")
        .body(body);
    let reply = stack.send(request).await;
    assert_eq!(reply.status, 202, "{}", reply.text());
    let answer = reply.json();
    let answers = answer["jobs"].as_array().expect("one answer per job");
    assert_eq!(answers.len(), samples.len());
    answers
        .iter()
        .map(|answer| answer["id"].as_str().expect("an id").to_owned())
        .collect()
}

/// How many jobs there are with each status.
pub(crate) async fn counts(pool: &sqlx::PgPool) -> HashMap<&'static str, i64> {
    let row: (i64, i64, i64, i64) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM hook.ready), (SELECT count(*) FROM hook.lease),
            (SELECT count(*) FROM hook.finished WHERE status = 2),
            (SELECT count(*) FROM hook.finished WHERE status <> 2)",
    )
    .fetch_one(pool)
    .await
    .expect("the counts can be read");
    HashMap::from([
        ("waiting", row.0),
        ("running", row.1),
        ("completed", row.2),
        ("ended", row.3),
    ])
}

/// Waits until nothing waits or runs any more.
pub(crate) async fn wait_drained(pool: &sqlx::PgPool) -> HashMap<&'static str, i64> {
    wait_for(
        LIMIT,
        async || counts(pool).await,
        |counts| counts["waiting"] + counts["running"] == 0,
    )
    .await
}

/// What the receiver got for each job: how often, and the digests of the bodies.
pub(crate) fn received(sink: &Sink) -> HashMap<String, Vec<String>> {
    let mut received: HashMap<String, Vec<String>> = HashMap::new();
    for request in sink.requests() {
        let id = request
            .header("webhook-id")
            .expect("every delivery names its job")
            .to_owned();
        received.entry(id).or_default().push(sha256(&request.body));
    }
    received
}

/// A seed that is printed, so that a failure can be repeated with `HOOK_TEST_SEED`.
pub(crate) fn seeded() -> StdRng {
    let given = std::env::var_os("HOOK_TEST_SEED");
    let given = given.and_then(|seed| seed.to_str()?.parse().ok());
    let seed = given.unwrap_or_else(|| rand::rng().random());
    println!("seed {seed}");
    StdRng::seed_from_u64(seed)
}

/// The job as the API shows it.
pub(crate) fn attempts(job: &Value) -> &Vec<Value> {
    job["attempts"]
        .as_array()
        .expect("a job has a list of attempts")
}

/// Enqueues these jobs in batches and returns their ids in order.
pub(crate) async fn enqueue_many(stack: &Stack, jobs: &[Value]) -> Vec<String> {
    let mut ids = Vec::with_capacity(jobs.len());
    for batch in jobs.chunks(1000) {
        let reply = stack
            .post("/v1/jobs/batch", &json!({ "jobs": batch }))
            .await;
        assert_eq!(reply.status, 202, "{}", reply.text());
        let answer = reply.json();
        let answers = answer["jobs"].as_array().expect("one answer per job");
        ids.extend(answers.iter().map(|answer| {
            let id = answer["id"].as_str().expect("an id");
            id.to_owned()
        }));
    }
    ids
}

/// What 95 of 100 of these durations do not exceed.
pub(crate) fn p95(mut durations: Vec<Duration>) -> Duration {
    assert!(!durations.is_empty(), "nothing was measured");
    durations.sort_unstable();
    durations[(durations.len() * 95).div_ceil(100) - 1]
}

/// Time from before each job was enqueued until its first request came.
pub(crate) fn waits(sink: &Sink, enqueued: &HashMap<String, Instant>) -> Vec<Duration> {
    let mut first: HashMap<String, Instant> = HashMap::new();
    for request in sink.requests() {
        first
            .entry(request.id().to_owned())
            .or_insert(request.head_read);
    }
    enqueued
        .iter()
        .map(|(id, at)| {
            let arrived = first.get(id).unwrap_or_else(|| panic!("{id} never came"));
            arrived.saturating_duration_since(*at)
        })
        .collect()
}

/// A target as the API shows it.
pub(crate) async fn target(stack: &Stack, name: &str) -> Value {
    let reply = stack.get(&format!("/v1/targets/{name}")).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

/// Waits until a target has this state.
pub(crate) async fn wait_state(stack: &Stack, name: &str, state: &str) -> Value {
    wait_for(
        LIMIT,
        async || target(stack, name).await,
        |target| target["state"] == state,
    )
    .await
}

/// Changes settings of a target.
pub(crate) async fn patch_target(stack: &Stack, name: &str, change: &Value) {
    let url = stack.api_url(&format!("/v1/targets/{name}"));
    let reply = stack.send(stack.client().patch(url).json(change)).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// How much a costly test does: `usual`, or `full` where `HOOK_TEST_FULL` is set.
pub(crate) fn amount(usual: usize, full: usize) -> usize {
    amount_of([usual, full, full])
}

/// How much a test does that has a third size, for `HOOK_TEST_FULL=long`.
pub(crate) fn amount_of([usual, full, long]: [usize; 3]) -> usize {
    match std::env::var_os("HOOK_TEST_FULL") {
        None => usual,
        Some(size) if size == "long" => long,
        Some(_) => full,
    }
}

/// Puts a job into the queue as an application does in its own transaction; the error is what
/// Postgres says to a job that can never work.
pub(crate) async fn enqueue_by_sql(pool: &sqlx::PgPool, url: &str) -> sqlx::Result<String> {
    sqlx::query_scalar("SELECT hook.enqueue($1)")
        .bind(url)
        .fetch_one(pool)
        .await
}

/// Jobs that are stored, in whatever state.
pub(crate) async fn stored(pool: &sqlx::PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM hook.job")
        .fetch_one(pool)
        .await
        .expect("jobs can be counted")
}

/// Asserts how a job ended: its status, the attempts started and what the last one came to.
#[track_caller]
pub(crate) fn assert_ended(job: &Value, status: &str, attempt: u32, error_kind: Option<&str>) {
    let last = attempts(job).last();
    let kind = last.map_or(&Value::Null, |last| &last["error_kind"]);
    assert_eq!(
        (&job["status"], &job["attempt"], kind),
        (&json!(status), &json!(attempt), &json!(error_kind)),
        "{job}"
    );
}

/// The address of the same database for another role.
pub(crate) fn with_role(url: &str, role: &str) -> String {
    let (scheme, rest) = url.split_once("://").expect("an address");
    let (_, place) = rest.rsplit_once('@').expect("an address with a role");
    format!("{scheme}://{role}:secret@{place}")
}

/// Runs a statement about the role of this name.
pub(crate) async fn grant(pool: &sqlx::PgPool, role: &str, statement: &'static str) {
    let mut connection = pool.acquire().await.expect("a connection");
    sqlx::query("SELECT set_config('test.role', $1, false)")
        .bind(role)
        .execute(&mut *connection)
        .await
        .expect("a setting");
    sqlx::raw_sql(statement)
        .execute(&mut *connection)
        .await
        .unwrap_or_else(|error| panic!("{statement}: {error}"));
}

/// Makes the role, which may do what a service does and is no superuser.
pub(crate) const CREATE_ROLE: &str = "DO $$
DECLARE role CONSTANT text := current_setting('test.role');
BEGIN
    EXECUTE format('CREATE ROLE %I LOGIN PASSWORD ''secret''', role);
    EXECUTE format('GRANT USAGE ON SCHEMA hook TO %I', role);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA hook TO %I', role);
END $$";
