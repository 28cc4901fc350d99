//! The examples do what they say, in each language that this machine has.

use std::{path::PathBuf, process::Stdio};

use hook_testkit::{
    db::TestDb,
    sink::{Sink, answer::Answer, script::Script},
    stack::Stack,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

use crate::kit::{LIMIT, SECRET_KEY, attempts};

/// How a language runs a file, and the ending of its files.
const LANGUAGES: [(&[&str], &str); 5] = [
    (&["sh"], "sh"),
    (&["python3"], "py"),
    (&["node"], "mjs"),
    (&["go", "run"], "go"),
    (&["ruby"], "rb"),
];

const PAYLOAD: &str = r#"{"type":"invoice.paid",  "id":12345678901234567890}"#;
const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// The example as a command, if there is one in this language and the language is installed.
fn example(kind: &str, (runner, ending): (&[&str], &str)) -> Option<Command> {
    let file = match kind {
        "producer" => "enqueue",
        _ => "receive",
    };
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../examples/{kind}/{file}.{ending}"));
    let (program, first) = runner.split_first()?;
    let exists = path.exists();
    let installed = exists && is_installed(program);
    if exists && !installed {
        println!("not run: {program} is not installed");
    }
    let mut command = Command::new(program);
    command.args(first).arg(path).kill_on_drop(true);
    installed.then_some(command)
}

/// Whether a program lies on the path.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

async fn enqueue(mut command: Command, api: &str, url: &str, key: &str) -> Value {
    let output = command
        .env("HOOK_API_URL", api)
        .env_remove("HOOK_API_TOKEN")
        .args([url, PAYLOAD, key])
        .output();
    let output = output.await.expect("the example runs");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{out}{err}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_repeat_with_one_key_and_send_the_payload_as_it_is() {
    let db = TestDb::new().await;
    let sink = Sink::start(200).await;
    let stack = Stack::builder(&db.url()).start().await;
    let mut run = 0;
    for language in LANGUAGES {
        // An API that is not able at first: the same request comes again, with the same key.
        let busy = Answer::status(503).header("retry-after", "1");
        let stored = Answer::status(202).bytes(r#"{"id":"x","duplicate":false}"#);
        let api = Sink::start(Script::sequence([busy, stored])).await;
        let Some(command) = example("producer", language) else {
            continue;
        };
        run += 1;
        let key = format!("key-{}", language.1);
        let url = sink.url(&format!("/{}", language.1));
        assert_eq!(enqueue(command, &api.url(""), &url, &key).await["id"], "x");
        let keys: Vec<_> = api
            .requests()
            .iter()
            .map(|request| request.header("idempotency-key").map(str::to_owned))
            .collect();
        assert_eq!(keys, [Some(key.clone()), Some(key.clone())]);

        let mut answers = Vec::new();
        for _ in 0..2 {
            let command = example("producer", language).expect("it was there just now");
            answers.push(enqueue(command, &stack.api_url(""), &url, &key).await);
        }
        assert_eq!(answers[0]["id"], answers[1]["id"], "{language:?}");
        assert_eq!(answers[1]["duplicate"], true);
        let id = answers[0]["id"].as_str().expect("an id");
        assert_eq!(stack.wait_final(id, LIMIT).await["status"], "completed");
        assert_eq!(sink.requests_for(id)[0].body, PAYLOAD.as_bytes());
    }
    assert!(run > 0, "no example was run");
}

/// A receiver that runs, and what it prints.
struct Receiver {
    _child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    url: String,
}

impl Receiver {
    async fn start(mut command: Command) -> Self {
        let mut child = command
            .arg("0")
            .env("WEBHOOK_SECRET", SECRET)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example runs");
        let stdout = child.stdout.take().expect("it is piped");
        let mut lines = BufReader::new(stdout).lines();
        let line = next(&mut lines).await;
        let port = line.rsplit(' ').next().expect("it says where it listens");
        Self {
            url: format!("http://127.0.0.1:{port}/"),
            _child: child,
            lines,
        }
    }
}

async fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> String {
    tokio::time::timeout(LIMIT, lines.next_line())
        .await
        .expect("it prints something")
        .expect("it can be read")
        .expect("it has not ended")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receivers_take_what_is_signed_and_know_what_they_have_had() {
    let db = TestDb::new().await;
    let stack = Stack::builder(&db.url())
        .set("HOOK_SECRET_KEY", SECRET_KEY)
        .start()
        .await;
    let put = stack
        .client()
        .put(stack.api_url("/v1/secrets/example"))
        .json(&json!({"secret": SECRET}));
    assert!(matches!(stack.send(put).await.status, 200 | 201 | 204));
    let mut run = 0;
    for language in LANGUAGES {
        let Some(command) = example("receiver", language) else {
            continue;
        };
        run += 1;
        let mut receiver = Receiver::start(command).await;
        let signed =
            json!({"url": receiver.url, "payload": 1, "signing": {"secrets": ["example"]}});
        let id = stack.enqueue_id(&signed).await;
        assert_eq!(stack.wait_final(&id, LIMIT).await["status"], "completed");
        assert_eq!(next(&mut receiver.lines).await, format!("received {id}"));
        let retry = stack.api_url(&format!("/v1/jobs/{id}/retry"));
        let retried = stack.send(stack.client().post(retry)).await;
        assert!(retried.status < 300, "{}", retried.text());
        assert_eq!(next(&mut receiver.lines).await, format!("repeated {id}"));

        let id = stack.enqueue_to(&receiver.url).await;
        let job = stack.wait_final(&id, LIMIT).await;
        assert_eq!(attempts(&job)[0]["response_status"], 401, "{language:?}");
    }
    assert!(run > 0, "no example was run");
}
