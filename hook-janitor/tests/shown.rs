//! What `/metrics` shows of a janitor that loses the lead. A process has one such page, so this
//! test has a process of its own.

use std::{sync::Arc, time::Duration};

use hook_common::{db::Db, metrics, queue::Queue};
use hook_janitor::{leader::Leadership, stats::Stats};
use hook_testkit::db::TestDb;

#[tokio::test]
async fn only_the_leader_shows_what_it_measured_and_no_longer_than_it_leads() {
    let db = TestDb::new().await;
    let queue = Queue::new(Db::around(db.pool().await));
    let leadership = Arc::new(Leadership::new(queue.clone(), "leader".to_owned()));
    let refresh = Duration::from_secs(30);
    let stats = Stats::new(queue, Arc::clone(&leadership), 10, refresh);
    let shown = || metrics::install().render().contains("\nhook_queue_jobs{");
    assert!(stats.run_once().await.unwrap().series.is_empty());

    leadership.run_once().await.unwrap();
    assert!(!stats.run_once().await.unwrap().series.is_empty());
    assert!(shown());

    leadership.resign().await.unwrap();
    assert!(!shown());
    assert!(stats.run_once().await.unwrap().series.is_empty());
    assert!(!shown());
}
