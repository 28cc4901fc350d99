//! What clients and operators see while the product cannot do its work: how it answers, and how soon.
//!
//! The bounds here are wide enough for a busy machine; `HOOK_TEST_FULL` makes the load that of the
//! figures in `docs/guarantees.md`, which the test prints.

use std::{collections::BTreeMap, time::Duration};

use hook_testkit::{
    db::TestDb,
    process::{Listener, Program, Signal},
    proxy::{Mode, Proxy},
    raw::RawClient,
    sink::Sink,
    stack::Stack,
    wait::{pause, wait_for},
};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

use crate::kit::{LIMIT, amount};

/// Requests that the API works on at one time; there are twice as many clients.
const IN_FLIGHT_MAX: usize = 16;
/// From one round of questions to an ops listener to the next.
const ASK_EVERY: Duration = Duration::from_millis(10);
/// Of a machine that has other things to do, too.
const BUSY: Duration = Duration::from_secs(5);

/// What was seen meanwhile.
#[derive(Default)]
struct Seen {
    /// How many by status and code, and the longest time that one took; status 0 stands for none.
    answers: BTreeMap<(u16, String), (usize, Duration)>,
    /// What all ops listeners took, route by route.
    ops: BTreeMap<&'static str, Vec<Duration>>,
}

impl Seen {
    fn merge(&mut self, other: Self) {
        for (kind, (count, longest)) in other.answers {
            let answers = self.answers.entry(kind).or_default();
            *answers = (answers.0 + count, answers.1.max(longest));
        }
        for (route, took) in other.ops {
            self.ops.entry(route).or_default().extend(took);
        }
    }

    /// Prints it, and holds it against the contract.
    fn judge(mut self, phase: &str, longest_max: Duration) {
        println!("{phase}:");
        for ((status, code), (count, longest)) in &self.answers {
            println!("  {status} {code}: {count} answers, the longest {longest:?}");
            assert!(matches!(status, 200 | 202 | 429 | 503), "{phase}: {status}");
            // Who finds no place is sent away at once.
            let at_once = code == "overloaded";
            let longest_max = if at_once { Duration::ZERO } else { longest_max };
            assert!(
                *longest < longest_max + BUSY,
                "{phase}, {code}: {longest:?}"
            );
        }
        for (route, took) in &mut self.ops {
            took.sort_unstable();
            let p99 = took[took.len() * 99 / 100];
            let most = took[took.len() - 1];
            println!(
                "  {route}: {} answers, p99 {p99:?}, the longest {most:?}",
                took.len()
            );
            assert!(most < BUSY, "{phase}, {route}: {most:?}");
        }
    }
}

/// Enqueues until this time, one request after the other.
async fn enqueue_until(over: Instant, client: reqwest::Client, url: String, job: Value) -> Seen {
    let mut seen = Seen::default();
    while Instant::now() < over {
        let begun = Instant::now();
        let (mut status, mut code) = (0, String::new());
        if let Ok(reply) = client.post(&url).json(&job).send().await {
            status = reply.status().as_u16();
            let answer: Value = reply.json().await.expect("an answer is JSON");
            code = answer["code"].as_str().unwrap_or_default().to_owned();
        }
        let answers = seen.answers.entry((status, code)).or_default();
        *answers = (answers.0 + 1, answers.1.max(begun.elapsed()));
        // Who is told to come back does so, though not as late as it is asked to.
        if status == 503 {
            pause(ASK_EVERY).await;
        }
    }
    seen
}

/// Asks the ops listener of a process until this time.
async fn ask_until(over: Instant, client: reqwest::Client, ops: String) -> Seen {
    let mut seen = Seen::default();
    while Instant::now() < over {
        for route in ["/livez", "/readyz", "/metrics"] {
            let begun = Instant::now();
            let reply = client.get(format!("{ops}{route}")).send().await;
            let reply = reply.expect("an ops listener answers");
            let status = reply.status().as_u16();
            reply.bytes().await.expect("an answer has a body");
            seen.ops.entry(route).or_default().push(begun.elapsed());
            assert!(
                status == 200 || (route, status) == ("/readyz", 503),
                "{route}: {status}"
            );
        }
        pause(ASK_EVERY).await;
    }
    seen
}

/// The product under load.
struct Scene {
    stack: Stack,
    proxy: Proxy,
    job: Value,
    _sink: Sink,
    _db: TestDb,
}

impl Scene {
    async fn new() -> Self {
        let db = TestDb::new().await;
        let proxy = Proxy::before(&db.url());
        let sink = Sink::start(200).await;
        let stack = Stack::builder(&proxy.url(&db.url()))
            .set_for(Program::Api, "HOOK_API_IN_FLIGHT_MAX", IN_FLIGHT_MAX)
            .set_for(Program::Api, "HOOK_API_CONNECTIONS_MAX", 15_000)
            .set_for(Program::Api, "HOOK_API_BODY_TIMEOUT", "60s")
            .set_for(Program::Api, "HOOK_API_HEAD_TIMEOUT", "60s")
            .start()
            .await;
        let job = json!({"url": sink.url("/o"), "payload": {"text": "x".repeat(500)}});
        Self {
            stack,
            proxy,
            job,
            _sink: sink,
            _db: db,
        }
    }

    /// Loads the product and watches it for a while.
    async fn seen(&self) -> Seen {
        let over = Instant::now() + Duration::from_millis(amount(300, 10_000) as u64);
        let mut tasks = JoinSet::new();
        for _ in 0..2 * IN_FLIGHT_MAX {
            let (client, url) = (self.stack.client().clone(), self.stack.api_url("/v1/jobs"));
            tasks.spawn(enqueue_until(over, client, url, self.job.clone()));
        }
        for process in self.stack.processes() {
            let ops = process.address(Listener::Ops, LIMIT).await;
            let client = self.stack.client().clone();
            tasks.spawn(ask_until(over, client, format!("http://{ops}")));
        }
        let mut seen = Seen::default();
        for part in tasks.join_all().await {
            seen.merge(part);
        }
        seen
    }

    async fn wait_accepting(&self) {
        let status = async || self.stack.enqueue(&self.job).await.status;
        wait_for(LIMIT, status, |status| *status == 202).await;
    }

    /// A client that sends half of its request and takes its time with the rest.
    async fn slow_client(&self) -> RawClient {
        let client = RawClient::connect(self.stack.api_address()).await;
        let mut client = client.expect("the API takes connections");
        let half = "POST /v1/jobs HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n\
            content-length: 900\r\n\r\n{";
        client.send(half).await.expect("the API reads");
        client
    }
}

/// Each answer is one of the contract, in time; health and metrics answer all the while; and who is
/// told to end is not ready from that moment on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_in_the_way_answers_come_in_time() {
    let scene = Scene::new().await;
    scene
        .seen()
        .await
        .judge("nothing in the way", Duration::ZERO);

    scene.proxy.set(Mode::Freeze);
    let frozen = scene.seen().await;
    frozen.judge("Postgres frozen", Duration::from_secs(2));
    scene.proxy.set(Mode::Pass);
    scene.wait_accepting().await;
    scene.proxy.set(Mode::Refuse);
    scene.proxy.cut();
    scene.seen().await.judge("Postgres away", Duration::ZERO);
    scene.proxy.set(Mode::Pass);
    scene.wait_accepting().await;

    scene.proxy.set(Mode::Delay(Duration::from_millis(100)));
    let slow = scene.seen().await;
    let mut codes = slow.answers.keys().map(|(_, code)| code.as_str());
    assert!(codes.any(|code| code == "overloaded"), "{:?}", slow.answers);
    slow.judge("Postgres slow, all places taken", Duration::from_secs(2));
    scene.proxy.set(Mode::Pass);
    scene.wait_accepting().await;

    let mut open = Vec::new();
    let connections = amount(500, 10_000);
    for _ in 0..connections {
        let client = RawClient::connect(scene.stack.api_address()).await;
        open.push(client.expect("the API takes connections"));
    }
    let many = format!("{connections} open connections");
    scene.seen().await.judge(&many, Duration::ZERO);
    drop(open);

    let _in_hand = scene.slow_client().await;
    let ops = scene.stack.api.address(Listener::Ops, LIMIT).await;
    let url = format!("http://{ops}/readyz");
    let ready = async || {
        let reply = scene.stack.client().get(&url).send().await;
        reply.expect("the ops listener answers").status().as_u16()
    };
    assert_eq!(ready().await, 200);
    let told = Instant::now();
    scene.stack.api.signal(Signal::Terminate);
    while ready().await == 200 {
        assert!(told.elapsed() < BUSY, "it stays ready");
    }
    println!("SIGTERM: not ready after {:?}", told.elapsed());
}
