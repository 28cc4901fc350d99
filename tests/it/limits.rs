//! Limits of Postgres that a queue grows into: numbers that run out, notifications that are too long.

use std::collections::HashMap;

use hook_testkit::{db::TestDb, sink::Sink, stack::Stack};
use serde_json::{Value, json};

use crate::kit::{enqueue_many, sha256, wait_drained};

/// PG-12: nothing is numbered by a sequence, in particular not in 32 bits; ids are UUIDs and fences
/// 64 bits wide.
#[tokio::test]
async fn pg_12_no_id_can_run_out() {
    let db = TestDb::new().await;
    let pool = db.pool().await;
    let sequences: Vec<String> = sqlx::query_scalar(
        "SELECT c.oid::regclass::text FROM pg_class AS c
        WHERE c.relkind = 'S' AND c.relnamespace = 'hook'::regnamespace",
    )
    .fetch_all(&pool)
    .await
    .expect("the catalogue can be read");
    assert_eq!(sequences, Vec::<String>::new());
    let types: Vec<(String, String)> = sqlx::query_as(
        "SELECT DISTINCT column_name::text, udt_name::text FROM information_schema.columns
        WHERE table_schema = 'hook'
            AND column_name IN ('job_id', 'target_id', 'worker_id', 'fence') ORDER BY 1, 2",
    )
    .fetch_all(&pool)
    .await
    .expect("the catalogue can be read");
    // `_int8` is a list of `int8`.
    let wanted = [
        ("fence", "int8"),
        ("job_id", "uuid"),
        ("target_id", "_int8"),
        ("target_id", "int8"),
        ("worker_id", "int8"),
    ];
    let types: Vec<(&str, &str)> = types
        .iter()
        .map(|(a, b)| (a.as_str(), b.as_str()))
        .collect();
    assert_eq!(types, wanted);
}

/// PG-13: no notification carries what a producer sends, so that no size or number makes an insert
/// fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_13_no_body_name_or_batch_is_too_large_for_a_notification() {
    let db = TestDb::new().await;
    let sink = Sink::start(200).await;
    let stack = Stack::builder(&db.url())
        .set("HOOK_WORKER_SLOTS", 64)
        .start()
        .await;
    let mut bodies: Vec<String> = [7_900, 7_999, 8_000, 9_000, 1_000_000]
        .map(|bytes| "x".repeat(bytes))
        .to_vec();
    bodies.push("🦀".repeat(2_500));
    let longest = "t".repeat(255);
    let mut jobs: Vec<Value> = bodies
        .iter()
        .map(|body| json!({"url": sink.url("/n"), "target": longest, "body": body}))
        .collect();
    // A batch whose targets alone are far longer than a notification may be.
    jobs.extend((jobs.len()..1_000).map(
        |n| json!({"url": sink.url("/n"), "target": format!("{n:0>255}"), "body": format!("{n}")}),
    ));
    let ids = enqueue_many(&stack, &jobs).await;
    let counts = wait_drained(&db.pool().await).await;
    assert_eq!((counts["completed"], counts["ended"]), (1_000, 0));
    let requests = sink.requests();
    let received: HashMap<&str, String> = requests
        .iter()
        .map(|request| (request.id(), sha256(&request.body)))
        .collect();
    for (id, job) in ids.iter().zip(&jobs) {
        let body = job["body"].as_str().expect("a text");
        assert_eq!(received[id.as_str()], sha256(body.as_bytes()));
    }
}
