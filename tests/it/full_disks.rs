//! The disk of the tables, or of the write-ahead log, is full: a small file system, which only who
//! may mount one can have.

use std::{path::Path, process::Command};

use hook_testkit::{db::TestDb, sink::Sink, stack::Stack, wait::wait_for};
use serde_json::{Value, json};
use sqlx::Connection as _;

use crate::kit::{LIMIT, received, wait_drained};

const SMALL: &str = "size=40m";
/// Three files of the write-ahead log.
const SMALL_LOG: &str = "size=50m";
const LARGE: &str = "size=400m";
/// Of one body; what is answered is far smaller than the file system, and what is refused larger.
const BODY_BYTES: usize = 512 * 1024;

/// A file system in memory; gone when this is dropped.
struct Disk {
    place: tempfile::TempDir,
}

impl Disk {
    /// `None` where this user may not mount anything.
    fn mount(size: &str) -> Option<Self> {
        let place = tempfile::tempdir().expect("a folder can be made");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", size, "tmpfs"])
            .arg(place.path())
            .output()
            .expect("mount can be run");
        if !mounted.status.success() {
            let said = String::from_utf8_lossy(&mounted.stderr);
            println!("not shown, since nothing can be mounted here: {said}");
        }
        mounted.status.success().then(|| Self { place })
    }

    /// Lets the server's user have it.
    fn give_to_owner_of(&self, data: &Path) {
        let reference = format!("--reference={}", data.display());
        run(Command::new("chown").arg(reference).arg(self.place.path()));
    }

    /// Becomes the place of the write-ahead log of a server that does not run.
    fn take_log_of(&self, data: &Path) {
        self.give_to_owner_of(data);
        let log = data.join("pg_wal");
        run(Command::new("cp")
            .args(["--archive", "--no-target-directory"])
            .arg(&log)
            .arg(self.place.path()));
        std::fs::remove_dir_all(&log).expect("a copied folder can be removed");
        std::os::unix::fs::symlink(self.place.path(), &log).expect("a link can be made");
    }

    fn enlarge(&self) {
        let options = format!("remount,{LARGE}");
        run(Command::new("mount")
            .args(["-o", &options])
            .arg(self.place.path()));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The server that uses it may end later than this.
        run(Command::new("umount").arg("--lazy").arg(self.place.path()));
    }
}

fn run(command: &mut Command) {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("running {command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

/// With no room left, an enqueue is answered 503 and stores nothing; nobody dies. With room again,
/// everything goes on, and each job that was answered is delivered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_and_loses_nothing() {
    let Some(disk) = Disk::mount(SMALL) else {
        return;
    };
    let db = TestDb::durable().await;
    let data = db
        .with_server(|server| server.directory().join("data"))
        .await;
    disk.give_to_owner_of(&data);
    let (name, place) = (
        db.name().to_owned(),
        disk.place.path().display().to_string(),
    );
    let server = db.with_server(|server| server.url()).await;
    let mut connection = sqlx::PgConnection::connect(&server)
        .await
        .expect("it answers");
    for statement in [
        format!("CREATE TABLESPACE small LOCATION '{place}'"),
        format!("ALTER DATABASE {name} SET TABLESPACE small"),
    ] {
        let statement = sqlx::raw_sql(sqlx::AssertSqlSafe(statement));
        statement
            .execute(&mut connection)
            .await
            .expect("the database can be moved");
    }

    let filled = Filled::on(&db).await;
    disk.enlarge();
    let (fitted, completed) = filled.goes_on(&db).await;
    assert_eq!(completed, fitted + 1, "what is refused is not stored");
}

/// With no room left for the write-ahead log, Postgres ends itself: enqueues are answered 503, and
/// nobody else dies. Started again with room, it has each job that was answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_of_the_log_loses_nothing_that_was_answered() {
    let Some(disk) = Disk::mount(SMALL_LOG) else {
        return;
    };
    let db = TestDb::durable().await;
    let data = db
        .with_server(|server| server.directory().join("data"))
        .await;
    db.stop_server().await;
    disk.take_log_of(&data);
    db.start_server().await;
    let filled = Filled::on(&db).await;
    disk.enlarge();
    db.start_server().await;
    filled.goes_on(&db).await;
}

/// A stack whose Postgres has no room left.
struct Filled {
    stack: Stack,
    sink: Sink,
    job: Value,
    /// The jobs that were answered.
    ids: Vec<String>,
}

impl Filled {
    /// Enqueues until that is refused.
    async fn on(db: &TestDb) -> Self {
        let sink = Sink::start(200).await;
        let mut stack = Stack::start(&db.url()).await;
        let job = json!({"url": sink.url("/d"), "body": "x".repeat(BODY_BYTES)});
        let mut ids = Vec::new();
        let refused = loop {
            let reply = stack.enqueue(&job).await;
            if reply.status != 202 {
                break reply;
            }
            ids.push(reply.id());
            assert!(ids.len() < 1000, "the disk does not get full");
        };
        assert_eq!(refused.status, 503, "{}", refused.text());
        assert!(ids.len() > 10, "{} jobs", ids.len());
        assert!(stack.all_run());
        Self {
            stack,
            sink,
            job,
            ids,
        }
    }

    /// With room again, waits until all is done; gives how many jobs had fitted in, and how many
    /// are completed in the end.
    async fn goes_on(mut self, db: &TestDb) -> (usize, usize) {
        let fitted = self.ids.len();
        let accepted = async || {
            let reply = self.stack.enqueue(&self.job).await;
            (reply.status == 202).then(|| reply.id())
        };
        let id = wait_for(LIMIT, accepted, Option::is_some).await;
        self.ids.extend(id);
        let counts = wait_drained(&db.pool().await).await;
        println!("{fitted} jobs fitted in");
        assert_eq!(counts["ended"], 0);
        let received = received(&self.sink);
        assert!(self.ids.iter().all(|id| received.contains_key(id)));
        assert!(self.stack.all_run());
        let completed = usize::try_from(counts["completed"]).expect("it is a count");
        (fitted, completed)
    }
}
