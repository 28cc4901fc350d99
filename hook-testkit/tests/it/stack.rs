//! The kit on the real product: what a system test takes for granted.

use std::time::Duration;

use hook_testkit::db::TestDb;
use hook_testkit::dns::Dns;
use hook_testkit::dns::zone::Reply;
use hook_testkit::process::{Program, Signal};
use hook_testkit::proxy::{Mode, Proxy};
use hook_testkit::sink::Sink;
use hook_testkit::stack::Stack;
use hook_testkit::wait::wait_for;
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_stack_delivers_a_job_and_shows_it() {
    let db = TestDb::new().await;
    let dns = Dns::start().await;
    dns.set("sink.test", Reply::loopback());
    let sink = Sink::start(200).await;
    let mut stack = Stack::builder(&db.url())
        .set("HOOK_DNS_SERVERS", dns.address())
        .start()
        .await;
    let url = sink.url_at("sink.test", "/hook");
    let id = stack
        .enqueue_id(&json!({"url": url, "payload": {"n": 1}}))
        .await;
    let job = stack.wait_final(&id, LIMIT).await;
    assert_eq!(job["status"], "completed", "{job}");
    let requests = sink.requests_for(&id);
    assert_eq!(
        (requests.len(), &requests[0].body[..]),
        (1, &br#"{"n":1}"#[..])
    );
    assert_eq!(requests[0].attempt(), Some(1));
    assert!(dns.lookups("sink.test") >= 1);
    let metrics = stack.metrics(Program::Worker).await;
    let attempts = metrics.sum("hook_worker_attempts_total", &[("outcome", "delivered")]);
    assert_eq!(attempts, 1.0);
    assert!(stack.all_run() && !stack.logs().is_empty());
    for process in [&mut stack.api, &mut stack.workers[0]] {
        assert_eq!(process.terminate(LIMIT).await.code(), Some(0));
    }
}

#[tokio::test]
async fn processes_and_the_database_link_can_fail() {
    let db = TestDb::new().await;
    let proxy = Proxy::before(&db.url());
    let sink = Sink::start(200).await;
    let mut stack = Stack::builder(&proxy.url(&db.url()))
        .without_janitor()
        .start()
        .await;
    stack.workers[0].signal(Signal::Kill);
    stack.workers[0].wait_exit(LIMIT).await;
    let id = stack.enqueue_to(&sink.url("/x")).await;
    stack.start_worker().await;
    assert_eq!(stack.wait_final(&id, LIMIT).await["status"], "completed");
    proxy.set(Mode::Freeze);
    let job = json!({"url": sink.url("/y")});
    let reply = stack.enqueue(&job).await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    proxy.set(Mode::Pass);
    wait_for(
        LIMIT,
        async || stack.enqueue(&job).await.status,
        |status| *status == 202,
    )
    .await;
}
