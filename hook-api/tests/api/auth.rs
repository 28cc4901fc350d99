//! Who may do what (cases AU-02 to AU-20).

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hook_api::config::Config;
use hook_common::{
    config::{Binary, command_line::Vars},
    start,
};
use hook_testkit::proxy::Mode;

use super::{
    away::behind_proxy,
    kit::{Api, Client, URL},
};

const FULL: &str = "full-token-0123456789";
const ENQUEUE: &str = "enqueue-token-0123456789";

const TOKENS: [(&str, &str); 2] = [
    ("HOOK_API_TOKENS", FULL),
    ("HOOK_API_ENQUEUE_TOKENS", ENQUEUE),
];

async fn guarded() -> Api {
    Api::with(&TOKENS).await
}

fn job() -> String {
    format!(r#"{{"url":"{URL}"}}"#)
}

async fn post_as(api: &Api, authorization: &str) -> super::kit::Answer {
    let headers = [
        ("content-type", "application/json"),
        ("authorization", authorization),
    ];
    api.send("POST", "/v1/jobs", &headers, job().as_bytes())
        .await
}

/// Postgres is asked nothing on behalf of a stranger: while it is frozen, the answers are the same.
#[tokio::test]
async fn au_02_au_03_au_04_au_07_au_08_au_09_a_missing_or_wrong_token() {
    let (api, proxy) = behind_proxy(&TOKENS).await;
    proxy.set(Mode::Freeze);
    let long = format!("Bearer {}", "x".repeat(10_000));
    let values = [
        ("AU-02", ""),
        ("AU-03", "Bearer"),
        ("AU-04", "Bearer "),
        ("AU-07", "Bearer wrong"),
        ("AU-08", "Bearer  two spaces"),
        ("AU-09", "Bearer a\u{e9}"),
        ("two spaces before a good one", &format!("Bearer  {FULL}")),
        ("without a scheme", FULL),
        ("a beginning", &format!("Bearer {}", &FULL[..10])),
        ("more than one", &format!("Bearer {FULL},{ENQUEUE}")),
        ("a good one in another scheme", &format!("Token {FULL}")),
        ("a wrong password", "Basic Zm9vOmJhcg=="),
        ("another scheme", "Digest x"),
        ("very long", &long),
    ];
    let mut bodies = Vec::new();
    for (what, value) in values {
        let answer = post_as(&api, value).await;
        answer.assert_problem(401, "unauthorized");
        assert_eq!(answer.header("www-authenticate"), Some("bearer"), "{what}");
        bodies.push(answer.body);
    }
    let answer = api.post("/v1/jobs", &job()).await;
    answer.assert_problem(401, "unauthorized");
    bodies.push(answer.body);
    bodies.dedup();
    assert_eq!(bodies.len(), 1, "an answer hints at which part was wrong");
    proxy.set(Mode::Pass);
    assert_eq!(api.rows().await, 0);
    proxy.set(Mode::Freeze);
    let known = post_as(&api, &format!("Bearer {FULL}")).await;
    assert_eq!(
        known.status, 503,
        "a request with a token does ask Postgres"
    );
}

#[tokio::test]
async fn a_wrong_token_is_refused_before_the_body_is_read() {
    let api = guarded().await;
    let mut client = Client::connect(api.address).await;
    let head = "POST /v1/jobs HTTP/1.1\r\nhost: a\r\nauthorization: Bearer wrong\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n";
    client.send(head.as_bytes()).await;
    client.answer().await.assert_problem(401, "unauthorized");
}

#[tokio::test]
async fn au_10_two_credentials() {
    let api = guarded().await;
    let bearer = format!("Bearer {FULL}");
    let headers = [
        ("content-type", "application/json"),
        ("authorization", bearer.as_str()),
        ("authorization", "Bearer bad-token-0123456789"),
    ];
    let answer = api
        .send("POST", "/v1/jobs", &headers, job().as_bytes())
        .await;
    answer.assert_problem(400, "duplicate_header");
    assert_eq!(api.rows().await, 0);
}

#[tokio::test]
async fn valid_tokens_in_both_schemes() {
    let api = guarded().await;
    assert_eq!(post_as(&api, &format!("Bearer {FULL}")).await.status, 202);
    assert_eq!(
        post_as(&api, &format!("bearer {ENQUEUE}")).await.status,
        202
    );
    let basic = STANDARD.encode(format!("anybody:{FULL}"));
    assert_eq!(post_as(&api, &format!("Basic {basic}")).await.status, 202);
    assert_eq!(api.rows().await, 3);
}

#[tokio::test]
async fn an_enqueue_token_manages_nothing() {
    let api = guarded().await;
    let bearer = format!("Bearer {ENQUEUE}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
    ];
    let id = "00000000-0000-7000-8000-000000000000";
    for (method, path) in [
        ("GET", "/v1/jobs".to_owned()),
        ("GET", format!("/v1/jobs/{id}")),
        ("POST", format!("/v1/jobs/{id}/retry")),
        ("POST", format!("/v1/jobs/{id}/cancel")),
        ("POST", "/v1/jobs/replay".to_owned()),
        ("GET", "/v1/replays".to_owned()),
        ("GET", format!("/v1/replays/{id}")),
        ("POST", format!("/v1/replays/{id}/cancel")),
        ("GET", "/v1/targets".to_owned()),
        ("GET", "/v1/targets/x".to_owned()),
        ("GET", "/v1/targets/x/history".to_owned()),
        ("PATCH", "/v1/targets/x".to_owned()),
        ("POST", "/v1/targets/x/pause".to_owned()),
        ("POST", "/v1/targets/x/resume".to_owned()),
        ("POST", "/v1/targets/x/probe".to_owned()),
        ("GET", "/v1/queues".to_owned()),
        ("PUT", "/v1/secrets/x".to_owned()),
        ("GET", "/v1/secrets/x".to_owned()),
        ("DELETE", "/v1/secrets/x".to_owned()),
    ] {
        let answer = api.send(method, &path, &headers, b"").await;
        answer.assert_problem(403, "forbidden");
    }
    let batch = format!(r#"{{"jobs":[{}]}}"#, job());
    let answer = api
        .send("POST", "/v1/jobs/batch", &headers, batch.as_bytes())
        .await;
    assert_eq!(answer.status, 202);
    let legacy = format!(r#"{{"parameters":{{"url":"{URL}"}}}}"#);
    let answer = api
        .send("POST", "/webhook", &headers, legacy.as_bytes())
        .await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn a_browser_is_asked_for_a_password() {
    let api = guarded().await;
    let answer = api
        .send("GET", "/v1/queues", &[("accept", "text/html,*/*")], b"")
        .await;
    answer.assert_problem(401, "unauthorized");
    assert!(
        answer.head.contains("www-authenticate: bearer\r\n"),
        "{}",
        answer.head
    );
    assert!(
        answer.head.contains("www-authenticate: basic realm="),
        "{}",
        answer.head
    );
}

#[tokio::test]
async fn a_page_of_another_site_cannot_act_for_a_user() {
    let api = Api::start().await;
    let id = api.enqueue(&job()).await;
    for site in ["cross-site", "same-site"] {
        let headers = [("sec-fetch-site", site)];
        let answer = api
            .send("POST", &format!("/v1/jobs/{id}/cancel"), &headers, b"")
            .await;
        answer.assert_problem(403, "forbidden");
    }
    let headers = [("sec-fetch-site", "same-origin")];
    let answer = api
        .send("POST", &format!("/v1/jobs/{id}/cancel"), &headers, b"")
        .await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn au_17_au_18_au_20_ops_paths_do_not_exist_here() {
    let api = Api::start().await;
    for path in [
        "/metrics",
        "/livez",
        "/readyz",
        "/debug/pprof",
        "/v1",
        "/v1/nothing",
    ] {
        api.get(path).await.assert_problem(404, "not_found");
    }
}

/// Reads settings as a start does, and tells the names of bad ones.
fn bad_settings(settings: &[(&str, &str)]) -> Vec<String> {
    let mut vars = Vars::default();
    vars.set("DATABASE_URL", "postgres://u:p@127.0.0.1/d");
    for (name, value) in settings {
        vars.set(*name, *value);
    }
    match start::settings(Binary::Api, &vars, Config::read) {
        Ok(_) => Vec::new(),
        Err(bad) => bad.names().map(str::to_owned).collect(),
    }
}

#[test]
fn without_tokens_only_loopback_is_bound() {
    let everywhere = ("HOOK_API_LISTEN", "0.0.0.0:0");
    assert_eq!(bad_settings(&[everywhere]), ["HOOK_API_LISTEN"]);
    assert!(bad_settings(&[everywhere, ("HOOK_API_TOKENS", FULL)]).is_empty());
    assert!(bad_settings(&[everywhere, ("HOOK_API_ALLOW_ANONYMOUS", "true")]).is_empty());
    assert!(bad_settings(&[("HOOK_API_LISTEN", "[::1]:0")]).is_empty());
    let bad = bad_settings(&[("HOOK_API_TOKENS", "a b"), ("HOOK_API_BODY_MAX", "1")]);
    assert!(bad.contains(&"HOOK_API_TOKENS".to_owned()), "{bad:?}");
    assert!(bad.contains(&"HOOK_API_BODY_MAX".to_owned()), "{bad:?}");
}

/// With enqueue tokens alone nobody may manage, and nobody gets in without one.
#[tokio::test]
async fn enqueue_tokens_alone_guard_as_well() {
    let api = Api::with(&[("HOOK_API_ENQUEUE_TOKENS", ENQUEUE)]).await;
    api.post("/v1/jobs", &job())
        .await
        .assert_problem(401, "unauthorized");
    api.get("/v1/jobs")
        .await
        .assert_problem(401, "unauthorized");
    assert_eq!(
        post_as(&api, &format!("Bearer {ENQUEUE}")).await.status,
        202
    );
}
