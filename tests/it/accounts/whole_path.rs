//! The main job: many producers, many targets, every kind of body, three processes.

use std::collections::HashMap;

use hook_testkit::{db::TestDb, sink::Sink, stack::Stack};
use tokio::task::JoinSet;

use crate::kit::{Sample, amount, enqueue_batch, received, sample, seeded, sha256, wait_drained};

const TARGETS: usize = 500;
const BATCH: usize = 50;
const PRODUCERS: usize = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_jobs_arrive_exactly_once_and_byte_for_byte() {
    let mut rng = seeded();
    // Half of them one by one, half in batches of 50.
    let jobs = amount(4_000, 10_000);
    let db = TestDb::new().await;
    let sink = Sink::start(200).await;
    let stack = Stack::builder(&db.url())
        .set("HOOK_WORKER_SLOTS", 256)
        .start()
        .await;
    let url = sink.url("/hooks?q=%20");
    let samples: Vec<Sample> = (0..jobs)
        .map(|n| sample(&mut rng, n, &url, &format!("t{}.test", n % TARGETS)))
        .collect();
    let (single, batched) = samples.split_at(jobs / 2);
    let mut expected: HashMap<String, String> = HashMap::new();
    for chunk in batched.chunks(BATCH) {
        let ids = enqueue_batch(&stack, chunk).await;
        expected.extend(
            ids.into_iter()
                .zip(chunk.iter().map(|sample| sha256(&sample.bytes))),
        );
    }
    let mut producers = JoinSet::new();
    for part in single.chunks(single.len().div_ceil(PRODUCERS)) {
        let work: Vec<(String, String)> = part
            .iter()
            .map(|sample| (sample.request.clone(), sha256(&sample.bytes)))
            .collect();
        let (client, url) = (stack.client().clone(), stack.api_url("/v1/jobs"));
        producers.spawn(async move {
            let mut ids = Vec::new();
            for (request, digest) in work {
                let answer = client
                    .post(&url)
                    .header("content-type", "application/json")
                    .body(request)
                    .send()
                    .await
                    .expect("the API answers");
                assert_eq!(answer.status(), 202);
                let answer: serde_json::Value = answer.json().await.expect("a JSON answer");
                ids.push((answer["id"].as_str().expect("an id").to_owned(), digest));
            }
            ids
        });
    }
    expected.extend(producers.join_all().await.into_iter().flatten());
    assert_eq!(expected.len(), jobs, "every job has an id of its own");

    let counts = wait_drained(&db.pool().await).await;
    let stored = i64::try_from(jobs).expect("it is small");
    assert_eq!((counts["completed"], counts["ended"]), (stored, 0));
    let received = received(&sink);
    assert_eq!(received.len(), jobs);
    for (id, digests) in &received {
        assert_eq!(digests, std::slice::from_ref(&expected[id]), "job {id}");
    }
    assert!(sink.violations().is_empty(), "{:?}", sink.violations());
}
