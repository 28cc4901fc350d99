//! `hook.enqueue`: jobs in the caller's own transaction.

use hook_common::{job::Status, queue::Next};
use sqlx::{Executor as _, Row as _};

use crate::kit::{Kit, Places, finish};

async fn refused(kit: &Kit, call: &'static str) -> String {
    let error = kit.pool.execute(sqlx::query(call)).await.expect_err(call);
    error
        .as_database_error()
        .expect("Postgres itself refuses")
        .message()
        .to_owned()
}

#[tokio::test]
async fn a_job_exists_exactly_if_its_transaction_commits() {
    let kit = Kit::new().await;
    let mut transaction = kit.pool.begin().await.unwrap();
    transaction
        .execute("SELECT hook.enqueue('http://a.test/')")
        .await
        .unwrap();
    transaction.rollback().await.unwrap();
    assert_eq!(
        kit.places().await,
        Places {
            jobs: 0,
            ready: 0,
            lease: 0,
            finished: 0
        }
    );

    let row = kit
        .pool
        .fetch_one("SELECT hook.enqueue('http://A.Test.:8080/x', '\\x00ff', method => 'put', metadata => '{\"a\":1}')")
        .await
        .unwrap();
    let id: String = row.get(0);
    let job = kit.dequeue(&["a.test"], 1).await.pop().unwrap();
    assert_eq!(job.lease.job_id.to_string(), id);
    assert_eq!((job.method, &job.body[..]), (1, b"\x00\xff".as_slice()));
    kit.queue
        .finish(&mut [finish(job, Next::End(Status::Completed))])
        .await
        .unwrap();
}

/// Calls that are refused, and a part of what the error says.
const REFUSED: [(&str, &str); 21] = [
    ("SELECT hook.enqueue(NULL)", "url is required"),
    ("SELECT hook.enqueue('')", "url is required"),
    (
        "SELECT hook.enqueue('ftp://a.test/')",
        "absolute http or https",
    ),
    ("SELECT hook.enqueue('//a.test/')", "absolute http or https"),
    ("SELECT hook.enqueue('http://')", "no host"),
    (
        "SELECT hook.enqueue(E'http://a.test/\\r\\nx: y')",
        "control character",
    ),
    (
        "SELECT hook.enqueue('http://a b.test/')",
        "control character or a space",
    ),
    ("SELECT hook.enqueue('http://u:p@a.test/')", "user info"),
    (
        "SELECT hook.enqueue('http://a.test/' || repeat('x', 8200))",
        "8 KiB",
    ),
    (
        "SELECT hook.enqueue('http://a.test/', method => 'TRACE')",
        "method must be",
    ),
    (
        "SELECT hook.enqueue('http://a.test/', headers => '[]')",
        "headers must be",
    ),
    (
        "SELECT hook.enqueue('http://a.test/', headers => '{\"a\":1}')",
        "every header",
    ),
    (
        "SELECT hook.enqueue('http://a.test/', metadata => '1')",
        "metadata must be",
    ),
    (
        "SELECT hook.enqueue('http://a.test/', target => '')",
        "no host",
    ),
    (
        "SELECT hook.enqueue('http://a.test/', target => repeat('x', 256))",
        "target must be",
    ),
    (
        "SELECT hook.enqueue('http://a.test/', scheduled_at => 'infinity')",
        "years up to 9999",
    ),
    (
        "SELECT hook.enqueue('http://a.test/', expires_at => '-infinity')",
        "years up to 9999",
    ),
    (
        "SELECT hook.enqueue('http://a.test/', expires_at => now() - interval '1 s')",
        "before scheduled_at",
    ),
    (
        "SELECT hook.enqueue('http://a.test/', max_attempts => 0)",
        "1 to 100",
    ),
    (
        "SELECT hook.enqueue('http://a.test/', timeout_ms => 60001)",
        "1 to 60000",
    ),
    (
        "SELECT hook.enqueue('http://a.test/', idempotency_key => '')",
        "printable",
    ),
];

#[tokio::test]
async fn what_can_never_work_is_refused_with_a_clear_error() {
    let kit = Kit::new().await;
    for (call, says) in REFUSED {
        let message = refused(&kit, call).await;
        assert!(
            message.starts_with("hook.enqueue: ") && message.contains(says),
            "{call}: {message}"
        );
    }
    assert_eq!(kit.places().await.jobs, 0);
}

#[tokio::test]
async fn a_repeated_key_gives_the_first_id_and_another_request_is_refused() {
    let kit = Kit::new().await;
    let call = "SELECT hook.enqueue('http://a.test/', idempotency_key => 'k', body => 'x')";
    let first: String = kit.pool.fetch_one(call).await.unwrap().get(0);
    let second: String = kit.pool.fetch_one(call).await.unwrap().get(0);
    assert_eq!(first, second);
    assert_eq!(kit.places().await.jobs, 1);
    let other = "SELECT hook.enqueue('http://a.test/', idempotency_key => 'k', body => 'y')";
    assert!(refused(&kit, other).await.contains("another request"));
}

#[tokio::test]
async fn both_sides_name_the_target_of_a_plain_url_alike() {
    let kit = Kit::new().await;
    let urls = [
        "http://Example.COM./x",
        "https://example.com:8443/",
        "http://192.0.2.7/",
        "http://[2001:DB8:0:0::1]:8080/x",
        "http://[2001:db8:0:1:1:1:1:1]/",
    ];
    for url in urls {
        let row = kit
            .pool
            .fetch_one(sqlx::query("SELECT hook.url_target($1)").bind(url))
            .await
            .unwrap();
        let here = hook_common::url_rules::check(url).unwrap().target;
        assert_eq!(row.get::<String, _>(0), here.as_str(), "{url}");
    }
    let none = kit
        .pool
        .fetch_one("SELECT hook.url_target('http://[1:2]/')")
        .await;
    assert_eq!(none.unwrap().get::<String, _>(0), "[1:2]");
}

#[tokio::test]
async fn both_sides_compute_the_same_target_id() {
    let kit = Kit::new().await;
    for name in ["example.com", "müller.test", "[::1]", "x"] {
        let row = kit
            .pool
            .fetch_one(sqlx::query("SELECT hook.target_id($1)").bind(name))
            .await
            .unwrap();
        let here = hook_common::target::Target::new(name).unwrap().id().0;
        assert_eq!(row.get::<i64, _>(0), here, "{name}");
    }
}

#[tokio::test]
async fn times_that_no_client_can_read_cannot_be_stored_at_all() {
    let kit = Kit::new().await;
    kit.enqueue(&["a.test"]).await;
    for value in ["infinity", "-infinity", "294276-12-31", "4000-01-01 BC"] {
        let error = sqlx::query("UPDATE hook.ready SET run_at = $1::text::timestamptz")
            .bind(value)
            .execute(&kit.pool)
            .await
            .expect_err(value);
        assert_eq!(
            error.as_database_error().unwrap().code().unwrap(),
            "23514",
            "{value}"
        );
    }
}
