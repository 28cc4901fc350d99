//! The API answers as its description says, on every route.

use std::collections::BTreeSet;

use hook_testkit::{db::TestDb, sink::Sink, stack::Stack, stack::reply::Reply, wait::wait_for};
use reqwest::Method;
use serde_json::{Value, json};

use crate::kit::{LIMIT, SECRET_KEY};

const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// A stack, its description, and which operations were seen to succeed and to refuse.
struct Described<'a> {
    stack: &'a Stack,
    document: Value,
    succeeded: BTreeSet<String>,
    refused: BTreeSet<String>,
}

impl<'a> Described<'a> {
    async fn of(stack: &'a Stack) -> Self {
        Self {
            stack,
            document: stack.get("/openapi.json").await.json(),
            succeeded: BTreeSet::new(),
            refused: BTreeSet::new(),
        }
    }

    /// Sends a request to `path`, which belongs to `pattern`, and holds the answer against the
    /// description.
    async fn ask(
        &mut self,
        method: Method,
        pattern: &str,
        path: &str,
        body: Option<Value>,
    ) -> Value {
        let url = self.stack.api_url(path);
        let mut request = self.stack.client().request(method.clone(), url);
        if let Some(body) = &body {
            request = request.json(body);
        }
        let reply = self.stack.send(request).await;
        let id = self.judge(&method, pattern, &reply);
        if reply.status < 300 {
            self.succeeded.insert(id);
        } else {
            self.refused.insert(id);
        }
        serde_json::from_slice(&reply.body).unwrap_or_default()
    }

    /// Fails unless the answer is one that the operation has; gives the operation's id.
    fn judge(&self, method: &Method, pattern: &str, reply: &Reply) -> String {
        let method = method.as_str().to_lowercase();
        let operation = &self.document["paths"][pattern][&method];
        let id = operation["operationId"].as_str();
        let id = id.unwrap_or_else(|| panic!("{method} {pattern} is not described"));
        let mut said = &operation["responses"][reply.status.to_string()];
        if let Some(reference) = said["$ref"].as_str() {
            let pointer = reference.trim_start_matches('#');
            said = self
                .document
                .pointer(pointer)
                .expect("it refers to something");
        }
        assert!(
            said.is_object(),
            "{id} answers {} undescribed: {}",
            reply.status,
            reply.text()
        );
        let Some(content) = said["content"].as_object() else {
            assert!(reply.body.is_empty(), "{id}: {}", reply.text());
            return id.to_owned();
        };
        let kind = reply.header("content-type").expect("a content type");
        let schema = &content
            .get(kind)
            .unwrap_or_else(|| panic!("{id} answers {kind}"))["schema"];
        if !schema.is_null() {
            let mut schema = schema.clone();
            schema["components"] = self.document["components"].clone();
            let validator = jsonschema::draft202012::new(&schema).expect("a valid schema");
            let faults: Vec<String> = validator
                .iter_errors(&reply.json())
                .map(|fault| format!("{}: {fault}", fault.instance_path()))
                .collect();
            assert!(faults.is_empty(), "{id}: {faults:#?}\n{}", reply.text());
        }
        id.to_owned()
    }

    /// The ids of all operations.
    fn operations(&self) -> BTreeSet<String> {
        let paths = self.document["paths"].as_object().expect("paths");
        let operations = paths.values().filter_map(Value::as_object).flatten();
        operations
            .map(|(_, operation)| operation["operationId"].as_str().expect("an id").to_owned())
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_answers_as_it_is_described() {
    let db = TestDb::new().await;
    let sink = Sink::start(200).await;
    let stack = Stack::builder(&db.url())
        .set("HOOK_SECRET_KEY", SECRET_KEY)
        .start()
        .await;
    let mut api = Described::of(&stack).await;
    let delivered = enqueue(&mut api, &sink.url("/")).await;
    fail(&stack).await;
    jobs(&mut api, &delivered).await;
    replays(&mut api, &sink.url("/")).await;
    targets(&mut api).await;
    probe(&mut api, &db.pool().await).await;
    secrets(&mut api).await;
    for route in ["/", "/openapi.json", "/page.css", "/page.js"] {
        api.ask(Method::GET, route, route, None).await;
    }
    for route in [
        "/v1/audit",
        "/v1/failures",
        "/v1/next",
        "/v1/overview",
        "/v1/queues",
    ] {
        api.ask(Method::GET, route, route, None).await;
        api.ask(Method::GET, route, &format!("{route}?limit=x"), None)
            .await;
    }
    assert_eq!(api.succeeded, api.operations(), "operations that succeeded");
    let refused: Vec<_> = api.operations().difference(&api.refused).cloned().collect();
    assert_eq!(
        refused,
        ["getDescription", "getPage", "getPageScript", "getPageStyle"],
        "operations that never refused"
    );
}

/// Enqueues in each form and gives the id of a job that was delivered.
async fn enqueue(api: &mut Described<'_>, url: &str) -> String {
    let job = json!({"url": url, "payload": 1, "headers": {"x-token": "a"}, "metadata": {"a": 1}});
    let stored = api
        .ask(Method::POST, "/v1/jobs", "/v1/jobs", Some(job.clone()))
        .await;
    api.ask(
        Method::POST,
        "/v1/jobs",
        "/v1/jobs",
        Some(json!({"url": 1, "x": 2})),
    )
    .await;
    let batch = json!({"jobs": [job]});
    api.ask(
        Method::POST,
        "/v1/jobs/batch",
        "/v1/jobs/batch",
        Some(batch),
    )
    .await;
    api.ask(
        Method::POST,
        "/v1/jobs/batch",
        "/v1/jobs/batch",
        Some(json!({"jobs": []})),
    )
    .await;
    let older = json!({"parameters": {"url": url, "body": "x"}});
    api.ask(Method::POST, "/webhook", "/webhook", Some(older))
        .await;
    api.ask(Method::POST, "/webhook", "/webhook", Some(json!({})))
        .await;
    let id = stored["id"].as_str().expect("an id").to_owned();
    let done = api.stack.wait_final(&id, LIMIT).await;
    assert_eq!(done["status"], "completed");
    id
}

/// Lets a job fail and another wait, so that there is something to group.
async fn fail(stack: &Stack) {
    let target = "paused.example";
    let pause = format!("/v1/targets/{target}/pause");
    assert_eq!(stack.post(&pause, &json!({})).await.status, 200);
    let waits = json!({"url": "https://example.com/", "target": target});
    stack.enqueue_id(&waits).await;
    let refusing = Sink::start(400).await;
    let failed = stack.enqueue_to(&refusing.url("/")).await;
    assert_eq!(stack.wait_final(&failed, LIMIT).await["status"], "failed");
}

async fn jobs(api: &mut Described<'_>, delivered: &str) {
    let path = format!("/v1/jobs/{delivered}");
    for query in ["", "?body=true", "?body=maybe"] {
        api.ask(
            Method::GET,
            "/v1/jobs/{id}",
            &format!("{path}{query}"),
            None,
        )
        .await;
    }
    for query in [
        "",
        "?limit=1",
        "?status=completed&queue=primary",
        "?status=no&cursor=no",
    ] {
        api.ask(Method::GET, "/v1/jobs", &format!("/v1/jobs{query}"), None)
            .await;
    }
    let cancel = "/v1/jobs/{id}/cancel";
    api.ask(Method::POST, cancel, &format!("{path}/cancel"), None)
        .await;
    let later = json!({"url": "https://example.com/", "delay_ms": 3_600_000});
    let later = api.stack.enqueue_id(&later).await;
    api.ask(
        Method::POST,
        cancel,
        &format!("/v1/jobs/{later}/cancel"),
        None,
    )
    .await;
    let retry = "/v1/jobs/{id}/retry";
    api.ask(
        Method::POST,
        retry,
        &format!("{path}/retry"),
        Some(json!({})),
    )
    .await;
    api.ask(Method::POST, retry, "/v1/jobs/none/retry", None)
        .await;
}

async fn replays(api: &mut Described<'_>, url: &str) {
    let jobs = vec![json!({"url": url, "target": "replayed.example"}); 60];
    let batch = json!({"jobs": jobs});
    let stored = api.stack.post("/v1/jobs/batch", &batch).await;
    assert_eq!(stored.status, 202);
    let completed = "/v1/jobs?status=completed&target=replayed.example&limit=60";
    wait_for(
        LIMIT,
        async || api.stack.get(completed).await.json(),
        |page| page["jobs"][59].is_object(),
    )
    .await;
    // A minute's worth of jobs: it is under way for as long as it is looked at.
    let start = "/v1/jobs/replay";
    let which = json!({"status": "completed", "target": "replayed.example", "rate_per_second": 1});
    let replay = api.ask(Method::POST, start, start, Some(which)).await;
    let which = json!({"status": "running"});
    api.ask(Method::POST, start, start, Some(which)).await;
    let id = replay["id"].as_str().expect("an id");
    let list = "/v1/replays";
    for query in ["", "?limit=1", "?cursor=no"] {
        api.ask(Method::GET, list, &format!("{list}{query}"), None)
            .await;
    }
    for (method, rest) in [(Method::GET, ""), (Method::POST, "/cancel")] {
        for id in [id, "none"] {
            let pattern = format!("{list}/{{id}}{rest}");
            let path = format!("{list}/{id}{rest}");
            api.ask(method.clone(), &pattern, &path, None).await;
        }
    }
}

/// A target that is down can be probed, another cannot.
async fn probe(api: &mut Described<'_>, pool: &sqlx::PgPool) {
    let (pattern, target) = ("/v1/targets/{target}/probe", "/v1/targets/held.example");
    let paused = api.stack.post(&format!("{target}/pause"), &json!({})).await;
    assert_eq!(paused.status, 200, "{}", paused.text());
    let path = format!("{target}/probe");
    api.ask(Method::POST, pattern, &path, None).await;
    sqlx::query(
        "UPDATE hook.target SET hold_interval_ms = 60000, held_until = now() + interval '1 hour'
        WHERE name = 'held.example'",
    )
    .execute(pool)
    .await
    .expect("it can be held");
    api.ask(Method::POST, pattern, &path, None).await;
}

async fn targets(api: &mut Described<'_>) {
    let list = "/v1/targets";
    for query in ["", "?order=failing", "?order=slow&limit=3", "?order=none"] {
        api.ask(Method::GET, list, &format!("{list}{query}"), None)
            .await;
    }
    let (pattern, path) = ("/v1/targets/{target}", "/v1/targets/127.0.0.1");
    wait_for(
        LIMIT,
        async || api.stack.get(&format!("{path}/history")).await.json(),
        |hours| hours["hours"][0].is_object(),
    )
    .await;
    api.ask(Method::GET, pattern, path, None).await;
    api.ask(Method::GET, pattern, "/v1/targets/nobody", None)
        .await;
    let limits = json!({"max_in_flight": 3, "rate_per_second": 1.5, "penalty": 1});
    api.ask(Method::PATCH, pattern, path, Some(limits)).await;
    api.ask(
        Method::PATCH,
        pattern,
        path,
        Some(json!({"max_in_flight": 0})),
    )
    .await;
    for action in ["history", "pause", "resume"] {
        let method = if action == "history" {
            Method::GET
        } else {
            Method::POST
        };
        let pattern = format!("{pattern}/{action}");
        api.ask(method.clone(), &pattern, &format!("{path}/{action}"), None)
            .await;
        // A name of 256 characters is none.
        let nobody = format!("{list}/{}/{action}", "n".repeat(256));
        api.ask(method, &pattern, &nobody, None).await;
    }
}

async fn secrets(api: &mut Described<'_>) {
    let (pattern, path) = ("/v1/secrets/{name}", "/v1/secrets/a");
    api.ask(Method::PUT, pattern, path, Some(json!({"secret": SECRET})))
        .await;
    api.ask(Method::PUT, pattern, path, Some(json!({"secret": "x"})))
        .await;
    api.ask(Method::GET, pattern, path, None).await;
    api.ask(Method::DELETE, pattern, path, None).await;
    api.ask(Method::GET, pattern, path, None).await;
    api.ask(Method::DELETE, pattern, path, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_described_is_not_there() {
    let db = TestDb::new().await;
    let stack = Stack::builder(&db.url()).start().await;
    let api = Described::of(&stack).await;
    let paths = api.document["paths"].as_object().expect("paths");
    for (pattern, operations) in paths {
        let path = pattern.replace(['{', '}'], "");
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            let described = !operations[method.to_lowercase()].is_null();
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            let request = stack.client().request(method.clone(), stack.api_url(&path));
            let served = stack.send(request).await.status != 405;
            assert_eq!(served, described, "{method} {path}");
        }
    }
}
