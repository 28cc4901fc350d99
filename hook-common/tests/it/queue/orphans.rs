//! Who counts as dead, and which leases that ends.

use std::time::Duration;

use hook_common::{
    db::Db,
    job::{JobId, QueueName},
    queue::{
        DeadWorker, Finished, LiveWorker, Next, Queue, ReapLeases, Reaped, Serves, WakeListener,
    },
};
use hook_testkit::{
    db::TestDb,
    wait::{stays, wait_for},
};
use sqlx::{Connection as _, PgPool};
use tokio::time::Instant;

use super::kit::{Kit, finish, reap};

/// What the leases of the kit are marked with.
const NAME: &str = "test-worker";
const MINUTE: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(30);

fn worker(worker_id: i64) -> LiveWorker {
    LiveWorker {
        worker_id,
        serves: Serves::of(&[QueueName::Primary]),
    }
}

async fn execute(kit: &Kit, sql: &'static str) {
    sqlx::query(sql).execute(&kit.pool).await.unwrap();
}

/// Lets every worker have been silent for a while.
async fn silence(kit: &Kit) {
    execute(
        kit,
        "UPDATE hook.worker SET seen_at = seen_at - interval '5 seconds'",
    )
    .await;
}

async fn dead(kit: &Kit) -> Vec<DeadWorker> {
    kit.queue.dead_workers().await.unwrap()
}

/// Waits until somebody counts as dead; whoever asks has to have been connected for a while.
async fn wait_dead(kit: &Kit) -> Vec<DeadWorker> {
    wait_for(LIMIT, async || dead(kit).await, |dead| !dead.is_empty()).await
}

async fn stays_alive(kit: &Kit) {
    let for_longer = Duration::from_millis(500);
    stays(for_longer, async || dead(kit).await, Vec::is_empty).await;
}

/// Starts a worker, lets it note its session and die; afterwards it counts as dead.
async fn dead_worker(kit: &Kit, worker_id: i64) {
    let session = WakeListener::connect(&kit.url(), worker(worker_id), NAME)
        .await
        .unwrap();
    silence(kit).await;
    drop(session);
    wait_dead(kit).await;
}

#[tokio::test]
async fn a_worker_is_dead_when_it_is_silent_and_its_session_is_gone() {
    let kit = Kit::new().await;
    let session = WakeListener::connect(&kit.url(), worker(1), NAME)
        .await
        .unwrap();
    // So that the server is old enough for anybody to be judged.
    dead_worker(&kit, 2).await;
    execute(&kit, "DELETE FROM hook.worker WHERE worker_id = 2").await;
    silence(&kit).await;
    stays_alive(&kit).await;

    // It lost its session only: the sign of life comes through another connection.
    drop(session);
    kit.queue
        .announce_worker(worker(1), NAME, MINUTE)
        .await
        .unwrap();
    stays_alive(&kit).await;

    silence(&kit).await;
    let dead = wait_dead(&kit).await;
    assert_eq!((dead[0].worker_id, dead[0].name.as_str()), (1, NAME));
    kit.queue.forget_workers(&dead).await.unwrap();
    stays_alive(&kit).await;
}

/// What is noted of a dead worker's session when it says nothing for certain.
async fn counts_as_alive(noted: &'static str) {
    let kit = Kit::new().await;
    dead_worker(&kit, 1).await;
    execute(&kit, noted).await;
    stays_alive(&kit).await;
}

#[tokio::test]
async fn a_session_of_another_server_shows_nothing() {
    counts_as_alive(
        "UPDATE hook.worker SET server_start = server_start - interval '1 microsecond'",
    )
    .await;
}

#[tokio::test]
async fn a_worker_without_a_session_is_left_to_its_leases() {
    counts_as_alive(
        "UPDATE hook.worker SET backend_pid = NULL, backend_start = NULL, server_start = NULL",
    )
    .await;
}

/// A backend that is killed makes the server throw everybody out, without being started anew.
#[tokio::test]
async fn a_server_that_threw_everybody_out_judges_nobody_at_once() {
    let db = TestDb::durable().await;
    let session = WakeListener::connect(&db.url(), worker(1), NAME)
        .await
        .unwrap();
    let mut connection = db.connect().await;
    sqlx::query("UPDATE hook.worker SET seen_at = seen_at - interval '5 seconds'")
        .execute(&mut connection)
        .await
        .unwrap();
    let mut victim = db.connect().await;
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
        .fetch_one(&mut victim)
        .await
        .unwrap();
    let begun = Instant::now();
    let killed = std::process::Command::new("kill")
        .args(["-9", &pid.to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    drop(session);
    let thrown_out = async || connection.ping().await.is_err();
    wait_for(LIMIT, thrown_out, |out| *out).await;
    let connect = async || PgPool::connect(&db.url()).await.ok();
    let pool = wait_for(LIMIT, connect, Option::is_some).await.unwrap();
    let queue = Queue::new(Db::around(pool));
    let dead = async || queue.dead_workers().await.unwrap_or_default();
    wait_for(LIMIT, dead, |dead| !dead.is_empty()).await;
    let after = begun.elapsed();
    assert!(after > Duration::from_secs(2), "{after:?}");
}

#[tokio::test]
async fn leases_of_the_dead_end_and_those_of_a_namesake_do_not() {
    let kit = Kit::new().await;
    let ids = kit.enqueue(&["a.test", "b.test"]).await;
    let of_dead = kit.dequeue(&["a.test"], 1).await.pop().unwrap();
    dead_worker(&kit, 1).await;
    kit.queue
        .announce_worker(worker(2), NAME, MINUTE)
        .await
        .unwrap();
    let of_living = kit.dequeue(&["b.test"], 1).await.pop().unwrap();

    let reaped = reap_of_one_dead(&kit).await;
    assert_eq!((reaped.returned, reaped.failed), (1, 0));
    assert_eq!(lost_attempts(&kit, ids[0]).await, 1);
    let finished = [of_dead, of_living].map(|job| finish(job, Next::Retry(MINUTE)));
    let mut finished = Vec::from(finished);
    assert_eq!(
        kit.queue.finish(&mut finished).await.unwrap(),
        [Finished::LeaseLost, Finished::Recorded]
    );
}

#[tokio::test]
async fn an_older_namesake_that_lives_keeps_everything_to_the_leases() {
    let kit = Kit::new().await;
    kit.queue
        .announce_worker(worker(2), NAME, MINUTE)
        .await
        .unwrap();
    kit.enqueue(&["a.test"]).await;
    assert_eq!(kit.dequeue(&["a.test"], 1).await.len(), 1);
    dead_worker(&kit, 1).await;
    kit.queue
        .announce_worker(worker(2), NAME, MINUTE)
        .await
        .unwrap();
    let reaped = reap_of_one_dead(&kit).await;
    assert_eq!((reaped.returned, reaped.failed), (0, 0));
}

/// Waits until one worker is known to be dead, and ends what it leased.
async fn reap_of_one_dead(kit: &Kit) -> Reaped {
    let dead = wait_dead(kit).await;
    assert_eq!(dead.len(), 1);
    let reap = ReapLeases {
        dead_workers: &dead,
        ..reap(10)
    };
    kit.queue.reap_leases(10, &reap).await.unwrap()
}

/// Attempts of a job that were lost with their worker.
async fn lost_attempts(kit: &Kit, id: JobId) -> usize {
    let lost = hook_common::job::ErrorKind::LeaseExpired.code();
    let attempts = kit.queue.attempts(id).await.unwrap();
    let lost = attempts
        .iter()
        .filter(|attempt| attempt.error_kind == Some(lost));
    lost.count()
}
