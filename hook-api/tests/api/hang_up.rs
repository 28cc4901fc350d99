//! Clients that go away (case AU-28, scaled).

use std::time::Duration;

use hook_testkit::wait::{pause, wait_for};
use tokio::task::JoinSet;

use super::kit::{Api, Client, URL};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn au_28_hang_ups_undo_and_corrupt_nothing() {
    let api = Api::with(&[("HOOK_DB_POOL_MAX", "4")]).await;
    let body = format!(r#"{{"url":"{URL}","payload":"{}"}}"#, "x".repeat(500));
    let keyed =
        format!(r#"{{"jobs":[{{"url":"{URL}","idempotency_key":"KEY"}},{{"url":"{URL}"}}]}}"#);
    let mut tasks = JoinSet::new();
    for client in 0..20_u64 {
        let (address, body, keyed) = (api.address, body.clone(), keyed.clone());
        tasks.spawn(async move {
            for round in 0..50_u64 {
                // Batches with keys run in a transaction, the dangerous thing to cancel.
                let (path, body) = if round % 5 == 0 {
                    ("/v1/jobs/batch", keyed.replace("KEY", &format!("{client}-{round}")))
                } else {
                    ("/v1/jobs", body.clone())
                };
                let head = format!(
                    "POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                let mut connection = Client::connect(address).await;
                connection.send(format!("{head}{body}").as_bytes()).await;
                pause(Duration::from_micros((client * 50 + round) * 37 % 20_000)).await;
            }
        });
    }
    tasks.join_all().await;
    // What was acknowledged afterwards is there.
    for _ in 0..20 {
        let id = api.enqueue(&body).await;
        let found = api.get(&format!("/v1/jobs/{id}")).await;
        assert_eq!(found.status, 200);
    }
    wait_for(
        Duration::from_secs(10),
        async || {
            let idle: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM pg_stat_activity
                WHERE datname = current_database() AND state LIKE 'idle in transaction%'",
            )
            .fetch_one(&api.pool)
            .await
            .unwrap();
            idle
        },
        |idle| *idle == 0,
    )
    .await;
    // Every job that exists is complete: a row in `job` and one in `ready`.
    let halves: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM hook.job j FULL JOIN hook.ready r ON r.job_id = j.job_id
        WHERE j.job_id IS NULL OR r.job_id IS NULL",
    )
    .fetch_one(&api.pool)
    .await
    .unwrap();
    assert_eq!(halves, 0);
    assert!(api.rows().await >= 20);
}
