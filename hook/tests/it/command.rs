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

    /// Runs a command against this stack.
    async fn output(&self, arguments: &[&str]) -> Output {
        let mut command = hook(arguments);
        command
            .args(["--json"])
            .env("HOOK_API_URL", self.place("/api"));
        output_of(&mut command).await
    }

    /// The JSON lines that a command prints which succeeds.
    async fn ask(&self, arguments: &[&str]) -> Vec<Value> {
        let output = self.output(arguments).await;
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let lines = output.stdout.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
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

/// What somebody on call asks about a job that was delivered with its third attempt, and then has it
/// sent again.
async fn on_call(dev: &Dev, job: &str) {
    let tail = dev.ask(&["tail", "--last=3", "--for=1ms"]).await;
    let outcomes: Vec<_> = tail
        .iter()
        .map(|line| (&line["job"], &line["outcome"]))
        .collect();
    let id = Value::from(job);
    let [failed, delivered] = ["retryable", "delivered"].map(Value::from);
    assert_eq!(
        outcomes,
        [(&id, &failed), (&id, &failed), (&id, &delivered)]
    );
    let target = tail[0]["target"].as_str().unwrap();
    let shown = &dev.ask(&["targets", "show", target]).await[0];
    assert_eq!(shown["penalty_reasons"], serde_json::json!([]), "{shown}");

    let doctor = ["doctor", "--database-url", dev.place("/database_url")];
    let checks = dev.ask(&doctor).await[0]["checks"].clone();
    for check in checks.as_array().unwrap() {
        assert_ne!(check["verdict"], "fault", "{check}");
    }

    let replay = [
        "jobs",
        "replay",
        "--status=completed",
        "--idempotency-key=once",
    ];
    let first = dev.ask(&replay).await[0].clone();
    assert_eq!(
        (&first["state"], &first["done"]),
        (&Value::from("completed"), &Value::from(1))
    );
    // The same key is the same replay, which has ended.
    assert_eq!(dev.ask(&replay).await[0], first);
    let list = &dev.ask(&["replays", "list"]).await[0]["replays"];
    assert_eq!(*list, serde_json::json!([first]));
    let id = first["id"].as_str().unwrap();
    assert_eq!(dev.ask(&["replays", "show", id, "--wait"]).await[0], first);
    let refused = dev.output(&["replays", "cancel", id]).await;
    assert_eq!(refused.status.code(), Some(3), "{}", stderr(&refused));
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
    on_call(&dev, job["id"].as_str().unwrap()).await;
    keep_secrets(&dev).await;
    assert_eq!(dev.received().await["id"], job["id"], "the replay");
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

/// The shell commands of a document, block by block, but for those that start the product or find it.
fn commands_of(document: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(document);
    let text = std::fs::read_to_string(&path).unwrap();
    let blocks = text.split("```sh\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().unwrap().to_owned());
    let starts = ["cargo ", "export PATH", "export DATABASE_URL"];
    blocks
        .filter(|block| !starts.iter().any(|start| block.starts_with(start)))
        .collect()
}

/// The commands of all documents for newcomers are typed one after the other into one `hook dev`.
#[tokio::test]
async fn every_command_of_the_guides_works_as_it_stands() {
    let data = tempfile::tempdir().unwrap();
    let here = tempfile::tempdir().unwrap();
    let dev = Dev::start(data.path()).await;
    let programs = Path::new(env!("CARGO_BIN_EXE_hook")).parent().unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = [programs.to_owned()]
        .into_iter()
        .chain(std::env::split_paths(&path));
    let path = std::env::join_paths(path).unwrap();
    let mut run = 0;
    for document in [
        "README.md",
        "docs/quick-start.md",
        "docs/concepts.md",
        "docs/migrating.md",
        "docs/faq.md",
    ] {
        for block in commands_of(document) {
            let block = block
                .replace("http://127.0.0.1:3300", dev.place("/api"))
                .replace("http://127.0.0.1:3380", dev.place("/receiver"));
            let mut shell = Command::new("sh");
            shell
                .args(["-euc", &block])
                .current_dir(here.path())
                .env("PATH", &path)
                .env("HOOK_API_URL", dev.place("/api"))
                .env("NO_PROXY", "*")
                .stdin(Stdio::null())
                .kill_on_drop(true);
            let output = output_of(&mut shell).await;
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && !said.contains("\"status\":4"),
                "{document}: {block}\n{said}{}",
                stderr(&output)
            );
            run += 1;
        }
    }
    assert!(run >= 10, "{run} blocks were found");
    // What the quick start says has happened.
    let sick = &dev.ask(&["targets", "show", "sick.example"]).await[0];
    assert_ne!(sick["state"], "paused", "{sick}");
    let replays = dev.ask(&["replays", "list"]).await[0]["replays"].clone();
    let of_sick = replays.as_array().unwrap().iter();
    let of_sick: Vec<_> = of_sick
        .filter(|replay| replay["target"] == "sick.example")
        .map(|replay| &replay["state"])
        .collect();
    assert_eq!(of_sick, ["completed"], "{replays}");
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
        .env("HOOK_API_BODY_MAX", "much")
        .env("HOOK_WORKER_SLOTS", "many")
        .env("HOOK_DB_POOL_MAX", "few")
        .env("HOOK_RETENTION_FALED", "1d");
    let output = output_of(&mut command).await;
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let said = stderr(&output);
    for name in [
        "HOOK_API_BODY_MAX",
        "HOOK_WORKER_SLOTS",
        "HOOK_DB_POOL_MAX",
        "HOOK_RETENTION_FALED",
    ] {
        assert_eq!(said.matches(name).count(), 1, "{name}: {said}");
    }
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

/// The checks of a doctor's visit that found a fault, and its exit code.
async fn faults(command: &mut Command) -> (Vec<String>, Option<i32>) {
    let output = output_of(command).await;
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = seen["checks"].as_array().unwrap().iter();
    let faults = checks.filter(|check| check["verdict"] == "fault");
    let faults = faults.inspect(|check| assert_ne!(check["remedy"], "", "{check}"));
    let names = faults.map(|check| check["check"].as_str().unwrap().to_owned());
    (names.collect(), output.status.code())
}

#[tokio::test]
async fn doctor_names_what_is_wrong_and_exits_by_it() {
    let doctor = ["doctor", "--json"];
    let db = TestDb::new().await;
    let well = faults(hook(&doctor).env("DATABASE_URL", db.url())).await;
    assert_eq!(well, (vec![], Some(0)));

    let empty = TestDb::empty().await;
    let seen = faults(hook(&doctor).env("DATABASE_URL", empty.url())).await;
    assert_eq!(seen, (vec!["schema".to_owned()], Some(1)));

    let away = "postgres://nobody@127.0.0.1:1/nothing";
    let seen = faults(hook(&doctor).env("DATABASE_URL", away)).await;
    assert_eq!(seen, (vec!["connection".to_owned()], Some(4)));
    let mut command = hook(&doctor);
    command
        .env("DATABASE_URL", db.url())
        .env("HOOK_DATABASE_DIRECT_URL", away);
    assert_eq!(
        faults(&mut command).await,
        (vec!["pooler".to_owned()], Some(1))
    );

    let mut command = hook(&doctor);
    command
        .env("DATABASE_URL", db.url())
        .env("HOOK_WORKER_SLOTS", "many");
    assert_eq!(
        faults(&mut command).await,
        (vec!["settings".to_owned()], Some(2))
    );

    // A role that may look at the schema and do no more.
    let role = format!("reader_{}", db.name());
    let grant = format!(
        "CREATE ROLE {role} LOGIN PASSWORD 'reader'; GRANT USAGE ON SCHEMA hook TO {role};
         GRANT SELECT ON ALL TABLES IN SCHEMA hook TO {role}"
    );
    let pool = db.pool().await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(grant))
        .execute(&pool)
        .await
        .unwrap();
    let (start, rest) = db
        .url()
        .split_once("://")
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    let host = rest.split_once('@').map_or(rest.as_str(), |(_, host)| host);
    let url = format!("{start}://{role}:reader@{host}");
    let seen = faults(hook(&doctor).env("DATABASE_URL", url)).await;
    assert_eq!(seen, (vec!["permissions".to_owned()], Some(1)));
}

/// Secrets come from stdin and are never shown again.
async fn keep_secrets(dev: &Dev) {
    let secrets = |arguments: &[&str]| {
        let mut command = hook(&["secrets", "--json", "--api-url", dev.place("/api")]);
        command.args(arguments);
        command
    };
    let secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let mut child = secrets(&["set", "shop"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin
        .write_all(format!("{secret}\n").as_bytes())
        .await
        .unwrap();
    drop(stdin);
    let stored = child.wait_with_output().await.unwrap();
    assert_eq!(stored.status.code(), Some(0), "{}", stderr(&stored));
    let shown = output_of(&mut secrets(&["show", "shop"])).await;
    for output in [&stored, &shown] {
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("\"last_four\":\"Hh8=\""), "{text}");
        assert!(!text.contains("AAECAwQF"), "{text}");
    }
    let made = output_of(&mut secrets(&["set", "other", "--generate"])).await;
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    assert!(
        made["secret"].as_str().unwrap().starts_with("whsec_"),
        "{made}"
    );
    let deleted = output_of(&mut secrets(&["delete", "shop"])).await;
    assert_eq!(deleted.status.code(), Some(0), "{}", stderr(&deleted));
    let gone = output_of(&mut secrets(&["show", "shop"])).await;
    assert_eq!(gone.status.code(), Some(3));
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
        (&["completions", "fish"], 0),
        (&["doctor"], 2),
        (&["tail", "--jobs=0"], 2),
        (&["tail", "--api-url", away], 4),
        (&["replays", "list", "--api-url", away], 4),
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
