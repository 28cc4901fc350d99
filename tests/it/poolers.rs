//! PgBouncer between every process and Postgres: the Debian package `pgbouncer`, whose version knows no
//! prepared statements in transaction mode.

use std::{
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use hook_testkit::{
    db::TestDb,
    process::{ProcessBuilder, Program},
    sink::Sink,
    stack::Stack,
    wait::wait_for,
};
use serde_json::{Value, json};

use crate::kit::{LIMIT, amount, enqueue_many, wait_drained};

/// A pooler with a configuration of its own; ends when it is dropped.
struct Pooler {
    child: Child,
    folder: PathBuf,
    port: u16,
    _files: tempfile::TempDir,
}

impl Pooler {
    fn start(db: &TestDb, mode: &str) -> Self {
        let files = tempfile::tempdir().expect("a folder");
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("it is bound").port();
        drop(free);
        let url: reqwest::Url = db.url().parse().expect("a URL");
        let settings = format!(
            "[databases]\n{name} = host={host} port={pg} dbname={name} user={user} password={password}\n\
            [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\nunix_socket_dir =\n\
            pool_mode = {mode}\nmax_client_conn = 200\ndefault_pool_size = 40\n",
            name = db.name(),
            host = url.host_str().expect("a host"),
            pg = url.port().expect("a port"),
            user = url.username(),
            password = url.password().unwrap_or_default(),
        );
        let folder = files.path().to_path_buf();
        std::fs::write(folder.join("pgbouncer.ini"), settings).expect("written");
        // It refuses to run as root.
        let owned = Command::new("chown")
            .args(["-R", "nobody"])
            .arg(&folder)
            .status();
        assert!(owned.expect("chown runs").success() || !is_root());
        let child = Self::spawn(&folder);
        Self {
            child,
            folder,
            port,
            _files: files,
        }
    }

    fn spawn(folder: &Path) -> Child {
        let mut command = Command::new("pgbouncer");
        if is_root() {
            command.args(["-u", "nobody"]);
        }
        command
            .arg("-q")
            .arg(folder.join("pgbouncer.ini"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("pgbouncer is installed (Debian package pgbouncer); .ci/run does it")
    }

    /// Waits until it listens, for those who do not.
    async fn listening(&self) {
        let up = async || TcpStream::connect(("127.0.0.1", self.port)).is_ok();
        wait_for(LIMIT, up, |up| *up).await;
    }

    fn restart(&mut self) {
        self.stop();
        self.child = Self::spawn(&self.folder);
    }

    fn stop(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    fn url(&self, db: &TestDb) -> String {
        let mut url: reqwest::Url = db.url().parse().expect("a URL");
        url.set_port(Some(self.port)).expect("a port");
        url.into()
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.stop();
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|of| std::os::unix::fs::MetadataExt::uid(&of) == 0)
}

/// PG-08: a pooler that forgets prepared statements is refused by every service, which names the
/// setting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_08_a_pooler_in_transaction_mode_is_refused_naming_the_setting() {
    let db = TestDb::new().await;
    let pooler = Pooler::start(&db, "transaction");
    for program in [Program::Api, Program::Worker, Program::Janitor] {
        let process = Stack::builder(&pooler.url(&db)).process(program).await;
        let mut process = process.start();
        assert_eq!(process.wait_exit(LIMIT).await.code(), Some(1));
        let text: String = process
            .lines()
            .iter()
            .map(|line| line.text.as_str())
            .collect();
        for setting in ["max_prepared_statements", "pool_mode = session"] {
            assert!(text.contains(setting), "{}: {text}", program.name());
        }
    }
}

/// `hook doctor` with these settings: its exit code and what it says of the pooler.
async fn doctor(settings: &[(&str, String)]) -> (Option<i32>, Value) {
    let mut doctor = ProcessBuilder::program(Program::Hook).await;
    for (name, value) in settings {
        doctor = doctor.set(*name, value);
    }
    let mut doctor = doctor.argument("--json").argument("doctor").start();
    let code = doctor.wait_exit(LIMIT).await.code();
    let lines = doctor.lines();
    let lines = lines
        .iter()
        .filter_map(|line| serde_json::from_str::<Value>(&line.text).ok());
    let checks = lines.filter_map(|line| line["checks"].as_array().cloned());
    let of_pooler = |check: &Value| check["check"] == "pooler";
    let found = checks.flatten().find(of_pooler);
    (code, found.expect("it looks for a pooler"))
}

/// PG-08: `hook doctor` tells apart what stands between the services and Postgres, and says what to
/// do where they could not start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_08_the_doctor_finds_the_pooler_and_names_the_setting() {
    let db = TestDb::new().await;
    let direct = || ("HOOK_DATABASE_DIRECT_URL", db.url());
    let session = Pooler::start(&db, "session");
    let url = |pooler: &Pooler| ("DATABASE_URL", pooler.url(&db));
    session.listening().await;
    let (_, check) = doctor(&[url(&session)]).await;
    assert_eq!(check["verdict"], "good", "{check}");

    let transaction = Pooler::start(&db, "transaction");
    transaction.listening().await;
    for settings in [vec![url(&transaction)], vec![url(&transaction), direct()]] {
        let (code, check) = doctor(&settings).await;
        assert_eq!(
            (code, &check["verdict"]),
            (Some(1), &json!("fault")),
            "{check}"
        );
        let remedy = check["remedy"].as_str().expect("a text");
        for setting in ["max_prepared_statements", "pool_mode = session"] {
            assert!(remedy.contains(setting), "{check}");
        }
    }
}

/// PG-08: in session mode, with the pooler restarted on the way, all is delivered, and no statement
/// fails for want of a prepared one; listening goes through it, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_08_a_pooler_in_session_mode_may_be_restarted() {
    let db = TestDb::new().await;
    let mut pooler = Pooler::start(&db, "session");
    let sink = Sink::start(200).await;
    let stack = Stack::builder(&pooler.url(&db))
        .set("HOOK_DB_POOL_MAX", 4)
        .set("HOOK_WORKER_SLOTS", 32)
        .workers(3)
        .start()
        .await;
    let pool = db.pool().await;
    let half = amount(250, 500);
    let jobs: Vec<Value> = (0..half)
        .map(|n| json!({"url": sink.url("/p"), "target": format!("t{}.test", n % 50)}))
        .collect();
    enqueue_many(&stack, &jobs).await;
    sink.wait_requests(20, LIMIT).await;
    pooler.restart();
    // A batch with keys may be repeated when nobody knows what became of it.
    let keyed = jobs.iter().enumerate().map(|(n, job)| {
        let mut job = job.clone();
        job["idempotency_key"] = json!(format!("k{n}"));
        job
    });
    let request = json!({ "jobs": keyed.collect::<Vec<Value>>() });
    let accepted = async || stack.post("/v1/jobs/batch", &request).await.status;
    wait_for(LIMIT, accepted, |status| *status == 202 || *status == 200).await;
    let counts = wait_drained(&pool).await;
    let all = i64::try_from(2 * half).expect("it is small");
    assert_eq!((counts["completed"], counts["ended"]), (all, 0));
    for process in stack.processes() {
        let metrics = stack.metrics_of(process).await;
        let stale = metrics.sum("hook_db_faults_total", &[("fault", "stale_statement")]);
        assert_eq!(stale, 0.0, "{}", process.name());
    }
}
