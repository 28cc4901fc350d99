//! `hook.enqueue`: jobs in the caller's own transaction.

use hook_common::{job::Status, queue::Next};
use sqlx::{Executor as _, Row as _};

use super::kit::{Kit, Places, finish};

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
        "http://[::ffff:192.0.2.7]/",
        "http://[::FFFF:c000:207]:8080/",
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

#[tokio::test]
async fn many_jobs_are_stored_in_order_with_the_payload_as_it_was_written() {
    let kit = Kit::new().await;
    let jobs = r#"[
        {"url": "http://a.test/", "payload": {"b": 1.0,  "a": 1e400, "b": null}},
        {"url": "http://b.test/", "body": "text", "headers": {"Content-Type": "text/plain"}, "method": "put"},
        {"url": "http://c.test/", "body_base64": "AP8=", "max_attempts": 3, "target": "d.test"},
        {"url": "http://e.test/", "payload": null, "signing": null}
    ]"#;
    let ids: Vec<String> = sqlx::query_scalar("SELECT hook.enqueue_many($1::text::json)")
        .bind(jobs)
        .fetch_all(&kit.pool)
        .await
        .unwrap();
    type Row = (String, String, Option<Vec<u8>>, Option<String>);
    let stored: Vec<Row> = sqlx::query_as(
        "SELECT job_id::text, target, body, headers::text FROM hook.job ORDER BY job_id",
    )
    .fetch_all(&kit.pool)
    .await
    .unwrap();
    let json = Some(r#"{"content-type": "application/json"}"#.to_owned());
    let text = Some(r#"{"Content-Type": "text/plain"}"#.to_owned());
    let expected = [
        (
            "a.test",
            br#"{"b": 1.0,  "a": 1e400, "b": null}"#.as_slice(),
            json.clone(),
        ),
        ("b.test", b"text", text),
        ("d.test", b"\x00\xff", None),
        ("e.test", b"null", json),
    ];
    assert_eq!(ids.len(), stored.len());
    for ((id, row), (target, body, headers)) in ids.iter().zip(stored).zip(expected) {
        assert_eq!(
            row,
            (id.clone(), target.to_owned(), Some(body.to_vec()), headers)
        );
    }
}

#[tokio::test]
async fn one_bad_job_of_many_is_named_and_none_is_stored() {
    let kit = Kit::new().await;
    let good = r#"{"url": "http://a.test/"}"#;
    for (bad, said) in [
        (r#"{"url": "ftp://a.test/"}"#, "absolute http or https"),
        (r#"{"url": "http://a.test/", "urls": 1}"#, "no field urls"),
        (
            r#"{"url": "http://a.test/", "body": "", "payload": 1}"#,
            "at most one",
        ),
        (
            r#"{"url": "http://a.test/", "max_attempts": "many"}"#,
            "integer",
        ),
        (r#"{"url": "http://a.test/", "body_base64": "*"}"#, "base64"),
        ("1", "must be an object"),
        (
            r#"{"url": "http://a.test/", "signing": ["name"]}"#,
            "signing must be",
        ),
        (
            r#"{"url": "http://a.test/", "signing": {"secret": ["name"]}}"#,
            "signing must be",
        ),
        (
            r#"{"url": "http://a.test/", "signing": {"secrets": []}}"#,
            "signing must be",
        ),
        (
            r#"{"url": "http://a.test/", "signing": {"secrets": [1]}}"#,
            "signing must be",
        ),
    ] {
        let error = sqlx::query("SELECT hook.enqueue_many($1::text::json)")
            .bind(format!("[{good}, {bad}, {good}]"))
            .execute(&kit.pool)
            .await
            .expect_err(bad);
        let error = error
            .into_database_error()
            .expect("Postgres itself refuses");
        assert!(error.message().contains(said), "{bad}: {error:?}");
        let error = error.downcast_ref::<sqlx::postgres::PgDatabaseError>();
        assert_eq!(
            error.detail(),
            Some("It is job 1 of the array, counted from 0."),
            "{bad}"
        );
    }
    assert_eq!(kit.places().await.jobs, 0);
}

#[tokio::test]
async fn ten_thousand_jobs_in_one_statement() {
    let kit = Kit::new().await;
    let stored: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM hook.enqueue_many((SELECT json_agg(json_build_object(
            'url', 'https://host' || n % 100 || '.test/', 'payload', json_build_object('n', n)))
         FROM generate_series(1, 10000) AS n))",
    )
    .fetch_one(&kit.pool)
    .await
    .unwrap();
    assert_eq!(stored, 10_000);
    assert_eq!(kit.places().await.ready, 10_000);
}

#[tokio::test]
async fn a_role_that_may_only_enqueue_can_do_nothing_else() {
    let kit = Kit::new().await;
    let mut connection = kit.pool.acquire().await.unwrap();
    let run = async |connection: &mut sqlx::PgConnection, text: &'static str| {
        connection.execute(sqlx::raw_sql(text)).await.map(drop)
    };
    // Roles belong to the whole server, so this one lives within a transaction.
    run(&mut connection, "BEGIN; CREATE ROLE outbox_test; GRANT USAGE ON SCHEMA hook TO outbox_test; SET LOCAL ROLE outbox_test")
        .await
        .unwrap();
    let one = "SELECT hook.enqueue('http://a.test/', idempotency_key => 'k')";
    run(&mut connection, one).await.unwrap();
    let many = r#"SELECT hook.enqueue_many('[{"url": "http://a.test/"}]')"#;
    run(&mut connection, many).await.unwrap();
    for refused in [
        "SELECT * FROM hook.job",
        "INSERT INTO hook.ready SELECT",
        "DELETE FROM hook.target",
        "SELECT * FROM hook.secret",
        "SELECT hook.truncate_bucket(0::smallint, 0::smallint, now(), true)",
        "CREATE TABLE hook.mine ()",
    ] {
        run(&mut connection, "SAVEPOINT before").await.unwrap();
        let error = run(&mut connection, refused).await.expect_err(refused);
        let code = error
            .as_database_error()
            .and_then(|error| error.code().map(|code| code.into_owned()));
        assert_eq!(code.as_deref(), Some("42501"), "{refused}: {error}");
        run(&mut connection, "ROLLBACK TO before").await.unwrap();
    }
    run(&mut connection, "RESET ROLE").await.unwrap();
    let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM hook.ready")
        .fetch_one(&mut *connection)
        .await
        .unwrap();
    assert_eq!(stored, 2);
    run(&mut connection, "ROLLBACK").await.unwrap();
}

#[tokio::test]
async fn the_statements_of_the_document_work() {
    let kit = Kit::new().await;
    let document = include_str!("../../../../docs/outbox.md");
    let blocks: Vec<&str> = document
        .split("```sql\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default())
        .collect();
    assert_eq!(blocks.len(), 4);
    let mut connection = kit.pool.acquire().await.unwrap();
    let table = "CREATE TABLE invoice (id int, paid bool); INSERT INTO invoice VALUES (42, false)";
    connection.execute(sqlx::raw_sql(table)).await.unwrap();
    for block in blocks {
        // Roles belong to the whole server, so they must not stay.
        let passing = block.contains("ROLE");
        let around = |word| if passing { word } else { "" };
        for text in [around("BEGIN"), block, around("ROLLBACK")] {
            let ran = connection.execute(sqlx::raw_sql(text)).await;
            ran.unwrap_or_else(|error| panic!("{text}: {error}"));
        }
    }
    assert_eq!(kit.places().await.ready, 10_003);
}
