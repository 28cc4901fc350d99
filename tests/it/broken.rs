//! A database that fails for a moment, and one that will not work again by itself.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hook_testkit::{
    db::TestDb,
    process::{Listener, Program},
    proxy::{CutPoint, Proxy},
    sink::{Sink, answer::Answer},
    stack::Stack,
    wait::{stays, wait_for},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::kit::{LIMIT, amount, counts, enqueue_many, wait_drained};

/// Stands in every answer, and so in every statement that writes a result.
const MARK: &str = "ops-07-was-here";
/// One in so many writes is cut off.
const CUT_EVERY: usize = 10;

fn jobs(sink: &Sink, count: usize) -> Vec<Value> {
    let job = |n| json!({"url": sink.url("/o"), "target": format!("t{}.test", n % 50)});
    (0..count).map(job).collect()
}

/// What `/readyz` of the worker says.
async fn readyz(stack: &Stack) -> (u16, String) {
    let ops = stack.worker().address(Listener::Ops, LIMIT).await;
    let url = format!("http://{ops}/readyz");
    let reply = stack.send(stack.client().get(url)).await;
    (reply.status, reply.text())
}

/// OPS-07, the hiccup: connections are reset before and after results are written; the writes are
/// repeated within the lease, so nothing is sent twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ops_07_a_hiccup_of_the_result_writes_repeats_no_delivery() {
    let db = TestDb::new().await;
    let sink = Sink::start(Answer::ok().bytes(MARK)).await;
    let proxy = Proxy::before(&db.url());
    let stack = Stack::builder(&db.url())
        .set_for(Program::Worker, "DATABASE_URL", proxy.url(&db.url()))
        .start()
        .await;
    let (writes, cuts) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (seen, cut) = (Arc::clone(&writes), Arc::clone(&cuts));
    let marked = move |bytes: &[u8]| {
        let writes = bytes
            .windows(MARK.len())
            .any(|part| part == MARK.as_bytes());
        let cuts = writes && seen.fetch_add(1, Ordering::Relaxed) % CUT_EVERY == CUT_EVERY - 1;
        cut.fetch_add(usize::from(cuts), Ordering::Relaxed);
        cuts
    };
    let count = amount(400, 5_000);
    for point in [CutPoint::Before, CutPoint::After] {
        proxy.cut_on(point, marked.clone());
        enqueue_many(&stack, &jobs(&sink, count / 2)).await;
        wait_drained(&db.pool().await).await;
    }
    let counts = counts(&db.pool().await).await;
    let all = i64::try_from(count).expect("it is small");
    assert_eq!((counts["completed"], counts["ended"]), (all, 0));
    assert_eq!(sink.request_count(), count, "nothing is sent twice");
    let cuts = cuts.load(Ordering::Relaxed);
    println!("{cuts} of {} writes cut", writes.load(Ordering::Relaxed));
    assert!(cuts >= 4, "{cuts} cuts");
}

/// OPS-07, the hopeless case, where no job can be leased any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ops_07_a_column_that_leases_need_is_gone() {
    column_is_gone("lease", "worker").await;
}

/// OPS-07, the hopeless case, where no result can be written any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ops_07_a_column_that_results_need_is_gone() {
    column_is_gone("finished", "response_excerpt").await;
}

/// The worker sends nothing, is not ready and says why, counts the errors and does not flood its
/// log; it goes on by itself once that is mended.
async fn column_is_gone(table: &str, column: &str) {
    let db = TestDb::new().await;
    let pool = db.pool().await;
    let sink = Sink::start(200).await;
    let stack = Stack::start(&db.url()).await;
    let rename = async |from: &str, to: &str| {
        let sql = format!("ALTER TABLE hook.{table} RENAME {from} TO {to}");
        let sql = sqlx::AssertSqlSafe(sql);
        sqlx::raw_sql(sql).execute(&pool).await.expect("it alters");
    };
    // The worker has its statements prepared before.
    stack.enqueue_to(&sink.url("/first")).await;
    wait_drained(&pool).await;
    rename(column, "gone").await;
    let broken = Instant::now();
    let unready = async || readyz(&stack).await;
    let (_, reason) = wait_for(LIMIT, unready, |(status, _)| *status == 503).await;
    let said = "statements: refused with SQLSTATE 42703";
    assert!(reason.contains(said), "{reason}");
    enqueue_many(&stack, &jobs(&sink, 20)).await;
    stays(
        Duration::from_secs(3),
        async || sink.request_count(),
        |sent| *sent == 1,
    )
    .await;
    let metrics = stack.metrics(Program::Worker).await;
    let permanent = metrics.sum("hook_db_faults_total", &[("fault", "permanent")]);
    assert!(permanent >= 2.0, "{permanent}");
    let lines = stack.worker().lines();
    let lines: Vec<_> = lines.iter().filter(|line| line.at > broken).collect();
    // The first of each kind comes at once, so a short while has more than its share.
    let most = broken.elapsed().as_secs() + 4;
    assert!(lines.len() as u64 <= most, "{lines:#?}");
    rename("gone", column).await;
    let counts = wait_drained(&pool).await;
    assert_eq!((counts["completed"], counts["ended"]), (21, 0));
    assert_eq!(sink.request_count(), 21, "nothing is sent twice");
    wait_for(LIMIT, unready, |(status, _)| *status == 200).await;
}

/// PG-02: a dequeue that takes longer than the server allows is cancelled, said with a hint and
/// repeated with a pause; the worker goes on by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_02_a_dequeue_that_is_cancelled_is_repeated_with_a_pause() {
    let db = TestDb::new().await;
    let pool = db.pool().await;
    let sink = Sink::start(200).await;
    let mut stack = Stack::builder(&db.url())
        .set_for(Program::Worker, "HOOK_DB_STATEMENT_TIMEOUT", "500ms")
        .start()
        .await;
    let mut other = db.connect().await;
    // Slow for no fault of the statement's, which is cancelled all the same.
    let lock = "BEGIN; LOCK TABLE hook.lease IN ACCESS EXCLUSIVE MODE";
    sqlx::raw_sql(lock)
        .execute(&mut other)
        .await
        .expect("it locks");
    enqueue_many(&stack, &jobs(&sink, 20)).await;
    let begun = Instant::now();
    let failures = async || {
        let metrics = stack.metrics(Program::Worker).await;
        metrics.sum("hook_worker_dequeue_failures_total", &[])
    };
    let failures = wait_for(LIMIT, failures, |failures| *failures >= 3.0).await;
    // Each took its half second, and the pauses between them grow: 0.25 s, 0.5 s.
    let least = Duration::from_millis(3 * 500 + 250 + 500);
    assert!(
        begun.elapsed() >= least.mul_f64(0.9),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(sink.request_count(), 0, "{failures} failures");
    sqlx::raw_sql("COMMIT")
        .execute(&mut other)
        .await
        .expect("it unlocks");
    let counts = wait_drained(&pool).await;
    assert_eq!((counts["completed"], counts["ended"]), (20, 0));
    assert_eq!(sink.request_count(), 20, "nothing is sent twice");
    let lines = stack.worker().lines();
    let said = lines
        .iter()
        .filter(|line| line.text.contains("dequeue cancelled"));
    let said: Vec<_> = said.map(|line| line.text.as_str()).collect();
    assert!(
        said.len() == 1 && said[0].contains("ANALYZE hook.ready"),
        "{said:?}"
    );
    assert!(stack.all_run());
}
