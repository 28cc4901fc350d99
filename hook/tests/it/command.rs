//! The command as people and scripts see it: what it prints, and its exit codes.

use std::{
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Output, Stdio},
    time::Duration,
};

use hook_testkit::{db::TestDb, wait::wait_until};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::{Instant, timeout},
};

const LIMIT: Duration = Duration::from_secs(60);

fn hook(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hook"));
    command
        .args(arguments)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

async fn output_of(command: &mut Command) -> Output {
    timeout(LIMIT, command.output()).await.unwrap().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A running `hook dev`, once it has said where everything is.
struct Dev {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    places: Value,
}

impl Dev {
    async fn start(data: &Path) -> Self {
        let data = data.to_str().unwrap();
        let ports = ["--port=0", "--receiver-port=0", "--ops-port=0"];
        let mut command = hook(&["dev", "--json", "--data", data]);
        command.args(ports).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = timeout(LIMIT, lines.next_line()).await.unwrap().unwrap();
        let places = serde_json::from_str(&first.expect("hook dev gets ready")).unwrap();
        Self {
            child,
            lines,
            places,
        }
    }

    fn place(&self, pointer: &str) -> &str {
        self.places.pointer(pointer).unwrap().as_str().unwrap()
    }

    async fn enqueue(&self, arguments: &[&str]) -> Value {
        let api = self.place("/api");
        let mut command = hook(&["enqueue", "--json", "--api-url", api]);
        let output = output_of(command.args(arguments)).await;
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Waits for the next request that the receiver prints.
    async fn received(&mut self) -> Value {
        let line = timeout(LIMIT, self.lines.next_line()).await.unwrap();
        let line: Value = serde_json::from_str(&line.unwrap().unwrap()).unwrap();
        line["received"].clone()
    }

    async fn interrupt(mut self) -> Option<i32> {
        let pid = self.child.id().unwrap().to_string();
        let killed = Command::new("kill").args(["-INT", &pid]).status().await;
        assert!(killed.unwrap().success());
        timeout(LIMIT, self.child.wait())
            .await
            .unwrap()
            .unwrap()
            .code()
    }
}

#[tokio::test]
async fn config_check_says_what_each_service_would_say() {
    let good = "postgres://nobody@127.0.0.1:1/none";
    let checked = output_of(hook(&["config", "check"]).env("DATABASE_URL", good)).await;
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
    let mut bad = hook(&["config", "check", "--json"]);
    bad.env("DATABASE_URL", good)
        .env("HOOK_WORKER_SLOTS", "many");
    let checked = output_of(&mut bad).await;
    assert_eq!(checked.status.code(), Some(2), "{}", stderr(&checked));
    assert!(
        stderr(&checked).contains("HOOK_WORKER_SLOTS"),
        "{}",
        stderr(&checked)
    );
    let services: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(services["services"]["hook-worker"]["good"], false);
    assert_eq!(services["services"]["hook-janitor"]["good"], true);
}

fn is_open(url: &str) -> bool {
    let address = url.rsplit('@').next().unwrap();
    let address = address.trim_start_matches("http://");
    let address = address.split('/').next().unwrap();
    TcpStream::connect(address.parse::<SocketAddr>().unwrap()).is_ok()
}

#[tokio::test]
async fn dev_delivers_leaves_nothing_behind_and_keeps_the_jobs() {
    let data = tempfile::tempdir().unwrap();
    let mut dev = Dev::start(data.path()).await;
    let receiver = dev.place("/receiver").to_owned();

    let url = format!("{receiver}/flaky");
    let job = dev.enqueue(&[&url, "--payload", r#"{"n": 1.0}"#]).await;
    for (attempt, status) in [(1, 503), (2, 503), (3, 200)] {
        let received = dev.received().await;
        assert_eq!(received["id"], job["id"]);
        assert_eq!(received["attempt"], attempt);
        assert_eq!(received["status"], status);
        assert_eq!(received["body"], r#"{"n": 1.0}"#);
    }
    let later = dev
        .enqueue(&[&format!("{receiver}/ok"), "--delay=1s"])
        .await;

    let health = dev.place("/ops/worker").replace("http://", "");
    let healthy = output_of(&mut hook(&["health", "--ops", &health])).await;
    assert_eq!(healthy.status.code(), Some(0), "{}", stderr(&healthy));

    let places = dev.places.clone();
    assert_eq!(dev.interrupt().await, Some(0));
    for pointer in [
        "/api",
        "/receiver",
        "/ops/api",
        "/ops/worker",
        "/ops/janitor",
        "/database_url",
    ] {
        let url = places.pointer(pointer).unwrap().as_str().unwrap();
        assert!(!is_open(url), "{pointer} is still open");
    }
    let unhealthy = output_of(&mut hook(&["health", "--ops", &health])).await;
    assert_eq!(unhealthy.status.code(), Some(4));

    let dev = Dev::start(data.path()).await;
    // Its address had the port of the receiver before, where nobody listens now: it waits on.
    let route = format!(
        "{}/v1/jobs/{}",
        dev.place("/api"),
        later["id"].as_str().unwrap()
    );
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client.get(route).send().await.unwrap();
    let found: Value = answer.json().await.unwrap();
    assert_eq!(found["id"], later["id"], "{found}");
    assert_eq!(dev.interrupt().await, Some(0));
}

#[tokio::test]
async fn a_second_dev_on_the_same_data_says_so_and_disturbs_nothing() {
    let data = tempfile::tempdir().unwrap();
    let mut dev = Dev::start(data.path()).await;
    let path = data.path().to_str().unwrap();
    let second = output_of(&mut hook(&["dev", "--data", path])).await;
    assert_eq!(second.status.code(), Some(1));
    assert!(
        stderr(&second).contains("another hook dev"),
        "{}",
        stderr(&second)
    );

    let url = format!("{}/status/404", dev.place("/receiver"));
    let job = dev.enqueue(&[&url, "--body", "text"]).await;
    assert_eq!(dev.received().await["id"], job["id"]);

    let mut batch = hook(&["enqueue", "--ndjson", "-", "--api-url", dev.place("/api")]);
    let mut child = batch.stdin(Stdio::piped()).spawn().unwrap();
    let lines = format!("{{\"url\": \"{url}\"}}\n\n{{\"url\": \"{url}\", \"odd\": 1}}\n");
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(lines.as_bytes()).await.unwrap();
    drop(stdin);
    let refused = child.wait_with_output().await.unwrap();
    assert_eq!(refused.status.code(), Some(3));
    assert!(
        stderr(&refused).contains("line 3: odd"),
        "{}",
        stderr(&refused)
    );
    assert_eq!(dev.interrupt().await, Some(0));
}

#[tokio::test]
async fn a_dev_that_is_killed_takes_postgres_along() {
    let data = tempfile::tempdir().unwrap();
    let mut dev = Dev::start(data.path()).await;
    let database_url = dev.place("/database_url").to_owned();
    dev.child.kill().await.unwrap();
    wait_until(LIMIT, async || {
        if is_open(&database_url) {
            Err("Postgres still listens")
        } else {
            Ok(())
        }
    })
    .await;
    let dev = Dev::start(data.path()).await;
    assert_eq!(dev.interrupt().await, Some(0));
}

#[tokio::test]
async fn a_bad_setting_stops_dev_with_one_message_and_leaves_nothing() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().to_str().unwrap();
    let mut command = hook(&["dev", "--port=0", "--data", path]);
    command
        .env("HOOK_WORKER_SLOTS", "many")
        .env("HOOK_RETENTION_FALED", "1d");
    let output = output_of(&mut command).await;
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(
        said.contains("HOOK_WORKER_SLOTS") || said.contains("HOOK_RETENTION_FALED"),
        "{said}"
    );
}

#[tokio::test]
async fn migrate_applies_what_is_missing_and_nothing_twice() {
    let db = TestDb::empty().await;
    let migrate = ["migrate", "--json"];
    let first = output_of(hook(&migrate).env("DATABASE_URL", db.url())).await;
    assert_eq!(first.status.code(), Some(0), "{}", stderr(&first));
    let first: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert!(!first["applied"].as_array().unwrap().is_empty());

    let pooler = "postgres://nobody@127.0.0.1:1/nothing";
    let mut command = hook(&migrate);
    command
        .env("DATABASE_URL", pooler)
        .env("HOOK_DATABASE_DIRECT_URL", db.url());
    let second = output_of(&mut command).await;
    assert_eq!(second.status.code(), Some(0), "{}", stderr(&second));
    let second: Value = serde_json::from_slice(&second.stdout).unwrap();
    assert_eq!(second["applied"], serde_json::json!([]));
    assert_eq!(second["version"], first["version"]);
}

#[tokio::test]
async fn exit_codes_tell_bad_usage_from_a_service_that_is_away() {
    let away = "http://127.0.0.1:1";
    let database = "postgres://nobody@127.0.0.1:1/nothing";
    for (arguments, code) in [
        (&["migrate"][..], 2),
        (&["migrate", "--database-url", "not a url"], 2),
        (&["migrate", "--wait=100ms", "--database-url", database], 4),
        (&["enqueue"], 2),
        (&["enqueue", "http://a.example/", "--payload", "{"], 2),
        (&["enqueue", "http://a.example/", "--api-url", "nowhere"], 2),
        (&["enqueue", "http://a.example/", "--api-url", away], 4),
        (&["health", "--ops", "127.0.0.1:1"], 4),
        (&["health", "--ops", "somewhere"], 2),
        (&["no-such-command"], 2),
        (&["--version"], 0),
        (&["completions", "bash"], 0),
    ] {
        let begun = Instant::now();
        let output = output_of(&mut hook(arguments)).await;
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert!(begun.elapsed() < Duration::from_secs(20), "{arguments:?}");
    }
}
