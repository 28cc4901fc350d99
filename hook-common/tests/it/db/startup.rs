use std::time::Duration;

use hook_common::{db::StartFault, migrate};
use hook_testkit::{
    db::TestDb,
    proxy::{ClosedPort, Mode, Proxy},
};
use tokio::time::Instant;

use super::support::{Way, until, way};

const SECOND: Duration = Duration::from_secs(1);

/// Waits for Postgres while `meanwhile` goes on; gives the result and how long it took.
async fn start_while(
    way: &Way,
    meanwhile: impl Future<Output = ()>,
) -> (Result<(), StartFault>, Duration) {
    let begun = Instant::now();
    let waiting = async {
        let ended = way.db.wait_until_usable(&way.stop, None).await;
        (ended, begun.elapsed())
    };
    // Boxed: together these are too large for the stack of a task.
    tokio::join!(waiting, Box::pin(meanwhile)).0
}

/// Waits until a reason not to be ready contains `part`.
async fn reason(way: &Way, part: &str) {
    until(SECOND * 10, async || {
        way.readiness
            .reasons()
            .iter()
            .any(|reason| reason.contains(part))
    })
    .await;
}

async fn refused(url: &str, settings: &[(&str, &str)]) -> String {
    let way = way(url, settings);
    let (ended, took) = start_while(&way, async {}).await;
    assert!(took < SECOND * 5, "{took:?}");
    format!(
        "{:#}",
        anyhow::Error::from(ended.expect_err("the start must end"))
    )
}

#[tokio::test]
async fn a_usable_database_is_used_at_once() {
    let database = TestDb::new().await;
    let way = way(&database.url(), &[]);
    let (ended, took) = start_while(&way, async {}).await;
    ended.unwrap();
    assert!(took < SECOND * 3, "{took:?}");
    assert!(way.readiness.is_ready(), "{:?}", way.readiness.reasons());
}

/// CF-13, and OPS-06 as far as the contract agrees: a schema that is too old is waited for.
#[tokio::test]
async fn cf_13_a_missing_or_old_schema_is_waited_for_and_named() {
    let database = TestDb::empty().await;
    let way = way(&database.url(), &[]);
    let needed = migrate::version_needed();
    let (ended, _) = start_while(&way, async {
        reason(&way, &format!("no schema hook yet, version {needed}")).await;
        let mut connection = Box::pin(database.connect()).await;
        Box::pin(migrate::run(&mut connection)).await.unwrap();
    })
    .await;
    ended.unwrap();

    let mut connection = database.connect().await;
    sqlx::raw_sql("UPDATE hook.migration SET version = version - 10000000000000")
        .execute(&mut connection)
        .await
        .unwrap();
    let old = way_to(&database);
    let (ended, _) = start_while(&old, async {
        reason(&old, &format!("version {needed} is needed")).await;
        old.stop.drain();
    })
    .await;
    assert!(matches!(ended, Err(StartFault::Stopped)), "{ended:?}");
}

fn way_to(database: &TestDb) -> Way {
    way(&database.url(), &[])
}

#[tokio::test]
async fn ops_06_a_schema_newer_than_this_build_ends_the_start_naming_both_versions() {
    let database = TestDb::new().await;
    sqlx::raw_sql(
        "INSERT INTO hook.migration (version, description, checksum)
        VALUES (99990101000000, 'from the future', '')",
    )
    .execute(&mut database.connect().await)
    .await
    .unwrap();
    let text = refused(&database.url(), &[]).await;
    assert!(text.contains("99990101000000"), "{text}");
    let known = migrate::version_needed().to_string();
    assert!(text.contains(&known), "{text}");
}

#[tokio::test]
async fn ops_06_a_wrong_password_ends_the_start_without_being_shown() {
    let database = TestDb::new().await;
    let mut url = url::Url::parse(&database.url()).unwrap();
    url.set_password(Some("wr0ngpa55word")).unwrap();
    let text = refused(url.as_str(), &[]).await;
    assert!(text.contains("refuses us"), "{text}");
    assert!(text.contains("password authentication failed"), "{text}");
    assert!(!text.contains("wr0ngpa55word"), "{text}");
}

#[tokio::test]
async fn an_unknown_database_ends_the_start() {
    let database = TestDb::new().await;
    let mut url = url::Url::parse(&database.url()).unwrap();
    url.set_path("/not_there");
    let text = refused(url.as_str(), &[]).await;
    assert!(text.contains("not_there"), "{text}");
}

#[tokio::test]
async fn a_pool_that_postgres_can_never_fill_ends_the_start() {
    let database = TestDb::new().await;
    let text = refused(&database.url(), &[("HOOK_DB_POOL_MAX", "1000")]).await;
    assert!(text.contains("HOOK_DB_POOL_MAX is 1000"), "{text}");
}

#[tokio::test]
async fn ops_06_an_absent_postgres_is_waited_for() {
    let database = TestDb::new().await;
    for mode in [Mode::Refuse, Mode::Freeze] {
        let proxy = Proxy::before(&database.url());
        proxy.set(mode);
        let way = way(&proxy.url(&database.url()), &[]);
        let back = std::cell::Cell::new(None);
        let (ended, took) = start_while(&way, async {
            reason(&way, "cannot connect").await;
            proxy.set(Mode::Pass);
            back.set(Some(Instant::now()));
        })
        .await;
        ended.unwrap();
        let since_back = back.get().unwrap().elapsed();
        assert!(
            since_back < SECOND * 5,
            "{mode:?}: {since_back:?} of {took:?}"
        );
    }
}

/// CF-12: a standby answers questions and refuses writes, as a read-only server does.
#[tokio::test]
async fn cf_12_a_server_that_does_not_write_is_waited_for() {
    let database = TestDb::new().await;
    let set = async |on: &str| {
        let name = database.name();
        let sql = format!("ALTER DATABASE {name} SET default_transaction_read_only = {on}");
        let mut connection = database.connect().await;
        sqlx::query("SET default_transaction_read_only = off")
            .execute(&mut connection)
            .await
            .unwrap();
        sqlx::raw_sql(hook_testkit_sql(sql))
            .execute(&mut connection)
            .await
            .unwrap();
    };
    set("on").await;
    let way = way(&database.url(), &[]);
    let (ended, _) = start_while(&way, async {
        reason(&way, "read-only").await;
        Box::pin(set("off")).await;
    })
    .await;
    ended.unwrap();
}

#[expect(
    clippy::disallowed_types,
    reason = "a database's name cannot be a parameter"
)]
fn hook_testkit_sql(sql: String) -> sqlx::AssertSqlSafe<String> {
    sqlx::AssertSqlSafe(sql)
}

#[tokio::test]
async fn the_wait_has_a_limit_when_one_is_set() {
    let closed = ClosedPort::new();
    let url = format!("postgres://nobody:x@{}/none", closed.address());
    let way = way(&url, &[]);
    let begun = Instant::now();
    let limit = Some(Duration::from_millis(1500));
    let fault = way
        .db
        .wait_until_usable(&way.stop, limit)
        .await
        .unwrap_err();
    assert!(begun.elapsed() < SECOND * 4, "{:?}", begun.elapsed());
    let text = fault.to_string();
    assert!(
        text.contains("gave up waiting for Postgres at 127.0.0.1"),
        "{text}"
    );
    assert!(text.contains("connection refused"), "{text}");
}
