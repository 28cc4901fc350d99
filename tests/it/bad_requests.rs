//! Requests that are meant to hurt: they cost the API neither memory nor time.

use std::{io::Write as _, time::Duration};

use flate2::{Compression, write::GzEncoder};
use hook_testkit::{db::TestDb, raw::RawClient, sink::Sink, stack::Stack};
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};

use crate::kit::{LIMIT, stored, wait_drained};

const MIB: u64 = 1024 * 1024;
/// Other requests that go on meanwhile, and a busy machine.
const SOON: Duration = Duration::from_secs(2);

/// JS-16, JS-49, JS-55, JS-56, PAY-10: by what the process holds and by its id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn js_16_js_49_js_55_js_56_pay_10_bombs_cost_the_api_nothing() {
    let db = TestDb::new().await;
    let sink = Sink::start(200).await;
    let mut stack = Stack::builder(&db.url())
        .set("HOOK_API_BODY_TIMEOUT", "1s")
        .start()
        .await;
    let url = sink.url("/");
    for _ in 0..200 {
        stack.enqueue_to(&url).await;
    }
    wait_drained(&db.pool().await).await;
    let (pids, before) = (stack.pids(), stack.api.usage().rss_bytes);
    let grown = |stack: &Stack| stack.api.usage().rss_peak_bytes.saturating_sub(before);

    // JS-16: refused where the limit is met, not where the stack ends.
    let begun = Instant::now();
    let reply = stack.enqueue_raw("[".repeat(100_000), &[]).await;
    assert_eq!(
        (reply.status, &reply.code()[..]),
        (400, "json_invalid"),
        "JS-16"
    );
    assert!(begun.elapsed() < SOON, "JS-16");
    // JS-49: thirteen bytes that Postgres would write out as 130,008.
    let body = format!(r#"{{"url":"{url}","metadata":{{"n":1e130000}}}}"#);
    let reply = stack.enqueue_raw(body, &[]).await;
    assert_eq!(reply.status, 202, "JS-49: {}", reply.text());
    let shown = stack.get(&format!("/v1/jobs/{}", reply.id())).await;
    assert!(
        shown.text().contains(r#""metadata":{"n":1e130000}"#),
        "JS-49"
    );
    // JS-55: a size that is only declared. Above the limit the contract wants 413 at once.
    let head = "POST /v1/jobs HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n";
    for (length, status) in [("9999999999", 413), ("8000000", 408)] {
        let mut clients = JoinSet::new();
        for _ in 0..20 {
            let address = stack.api_address();
            let request = format!("{head}content-length: {length}\r\n\r\n{{");
            clients.spawn(async move {
                let mut client = RawClient::connect(address).await.expect("it listens");
                let answer = client.exchange(request).await.expect("an answer");
                client.closed(LIMIT).await.expect("and the end");
                answer.status
            });
        }
        let statuses = clients.join_all().await;
        assert!(
            statuses.iter().all(|seen| *seen == status),
            "JS-55: {statuses:?}"
        );
    }
    let after_sizes = grown(&stack);
    // JS-56, PAY-10: 130 KB that would become 128 MiB, twenty at a time.
    let bomb = bomb();
    for coding in ["gzip", "br", "zstd"] {
        let mut clients = JoinSet::new();
        for _ in 0..20 {
            let post = stack.client().post(stack.api_url("/v1/jobs"));
            let post = post
                .header("content-type", "application/json")
                .header("content-encoding", coding)
                .body(bomb.clone());
            clients.spawn(async move { post.send().await.map(|answer| answer.status().as_u16()) });
        }
        for status in clients.join_all().await {
            // A peer that closes without reading all of it may also be seen as a reset.
            assert!(matches!(status, Ok(415) | Err(_)), "PAY-10: {status:?}");
        }
    }
    println!(
        "sizes: {after_sizes} bytes more, bombs: {} bytes more",
        grown(&stack)
    );
    assert!(after_sizes < 4 * MIB, "JS-55: {after_sizes}");
    assert!(grown(&stack) < 32 * MIB, "PAY-10");
    assert_eq!(stored(&db.pool().await).await, 201);
    assert_eq!(stack.pids(), pids);
    assert!(stack.all_run());
    let reply = stack.enqueue(&json!({"url": url})).await;
    assert_eq!(reply.status, 202);
}

/// 128 MiB of spaces, in a thousandth of that.
fn bomb() -> Vec<u8> {
    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    for _ in 0..128 {
        bomb.write_all(&[b' '; 1024 * 1024])
            .expect("memory takes it");
    }
    bomb.finish().expect("memory takes it")
}
