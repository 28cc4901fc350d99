//! Nobody can use the product to reach a network that it should not reach.
//!
//! Only the receiver's own address is opened. On the same port of other loopback addresses listen
//! canaries, which must see no connection, however an address is written, resolved or offered.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use hook_testkit::{
    db::TestDb,
    dns::{
        Dns,
        zone::{Reply, Rule},
    },
    process::Program,
    sink::{Sink, answer::Answer, script::Script},
    stack::Stack,
};
use serde_json::json;
use sqlx::PgPool;

use crate::kit::{LIMIT, assert_ended, attempts, enqueue_by_sql, stored};

/// The one address that is open.
const OPEN: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 7);
/// Variables that would send deliveries through a proxy, if they were obeyed.
const PROXY_VARIABLES: [&str; 8] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "FTP_PROXY",
    "REQUEST_METHOD",
];

/// Hosts that are addresses which nobody may reach; `{}` is where a port would go. Those of the
/// loopback would all find a canary.
const LITERALS: [(&str, &str); 47] = [
    ("SL-02", "http://127.255.255.254{}/"),
    ("SL-03", "http://2130706433{}/"),
    ("SL-04", "http://0x7f000001{}/"),
    ("SL-05", "http://017700000001{}/"),
    ("SL-09", "http://127.0.0.1.{}/"),
    ("SL-10", "http://%31%32%37.0.0.1{}/"),
    ("SL-11", "http://①②⑦.⓪.⓪.①{}/"),
    ("SL-12", "http://127。0。0。1{}/"),
    ("SL-13", "http://0{}/"),
    ("SL-14", "http://0.0.0.0{}/"),
    ("SL-15", "http://256{}/"),
    ("SL-18", "http://0xA9FEA9FE{}/"),
    ("SL-19", "http://0251.0376.0251.0376{}/"),
    ("SL-20", "http://169.254.43518{}/"),
    ("SL-21", "http:169.254.169.254{}"),
    ("SL-25", "http://10.0.0.1{}/"),
    ("SL-26", "http://172.16.0.1{}/"),
    ("SL-29", "http://100.64.0.1{}/"),
    ("SL-30", "http://100.100.100.200{}/"),
    ("SL-35", "http://[::127.0.0.1]{}/"),
    ("SL-36", "http://[::ffff:0:7f00:1]{}/"),
    ("SL-39", "http://[64:ff9b:1::a9fe:a9fe]{}/"),
    ("SL-41", "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]{}/"),
    ("SL-42", "http://[fe80::1]{}/"),
    ("SL-46", "http://224.0.0.1{}/"),
    ("SL-47", "http://255.255.255.255{}/"),
    ("SL-48", "http://240.0.0.1{}/"),
    ("SL-49", "http://198.18.0.1{}/"),
    ("loopback", "http://127.0.0.1{}/"),
    ("loopback in two parts", "http://127.1{}/"),
    ("loopback in three parts", "http://127.0.1{}/"),
    ("loopback in hex parts", "http://0x7f.0x0.0x0.0x1{}/"),
    ("loopback in full width", "http://１２７.0.0.1{}/"),
    ("loopback of IPv6", "http://[::1]{}/"),
    ("loopback of IPv6 at length", "http://[0:0:0:0:0:0:0:1]{}/"),
    ("mapped loopback", "http://[::ffff:127.0.0.1]{}/"),
    ("mapped loopback in hex", "http://[::ffff:7f00:1]{}/"),
    ("NAT64 loopback", "http://[64:ff9b::7f00:1]{}/"),
    ("6to4 loopback", "http://[2002:7f00:1::1]{}/"),
    ("unspecified of IPv6", "http://[::]{}/"),
    ("unique local", "http://[fd00::1]{}/"),
    ("metadata of IPv6", "http://[fd00:ec2::254]{}/"),
    ("documentation", "http://192.0.2.1{}/"),
    ("multicast of IPv6", "http://[ff02::1]{}/"),
    ("user info in front", "http://127.0.0.7@127.0.0.1{}/"),
    ("backslashes", "http:\\\\127.0.0.1{}\\"),
    ("next to the open one", "http://127.0.0.6{}/"),
];

/// Receiver, canaries and a whole product that may reach only the receiver.
struct Field {
    sink: Sink,
    canaries: Vec<Sink>,
    dns: Dns,
    stack: Stack,
    pool: PgPool,
    _db: TestDb,
}

impl Field {
    async fn start(script: impl Into<Script>, nets: &str) -> Self {
        let db = TestDb::new().await;
        let sink = Sink::builder(script).bind(OPEN).start().await;
        let mut canaries = Vec::new();
        for address in [
            IpAddr::from([127, 0, 0, 1]),
            IpAddr::from([127, 0, 0, 2]),
            IpAddr::from([127, 0, 0, 6]),
            IpAddr::from([127, 255, 255, 254]),
            Ipv6Addr::LOCALHOST.into(),
        ] {
            let canary = Sink::builder(200).bind(address).port(sink.port());
            canaries.push(canary.start().await);
        }
        let dns = Dns::start().await;
        let canary = format!("http://127.0.0.1:{}", sink.port());
        let mut builder = Stack::builder(&db.url())
            .set("HOOK_ALLOW_NETS", nets)
            .set("HOOK_DNS_SERVERS", dns.address())
            .set("HOOK_WORKER_SLOTS", 32)
            .set("HOOK_RETRY_SCHEDULE", "200ms");
        for name in PROXY_VARIABLES {
            builder = builder.set_for(Program::Worker, name, &canary);
        }
        let stack = builder
            .set_for(Program::Worker, "NO_PROXY", "sink.test")
            .start()
            .await;
        Self {
            sink,
            canaries,
            dns,
            stack,
            pool: db.pool().await,
            _db: db,
        }
    }

    /// A URL of a name on the port of the receiver and of the canaries.
    fn url(&self, host: &str) -> String {
        self.sink.url_at(host, "/h")
    }

    #[track_caller]
    fn assert_no_canary_sang(&self) {
        for canary in &self.canaries {
            let seen = canary.connections();
            assert!(seen.is_empty(), "{}: {seen:?}", canary.address());
        }
    }

    /// Refused by the API; by SQL refused at once or by the worker, without a word to anybody.
    async fn check_refused(&self, what: &str, url: &str) {
        let reply = self.stack.enqueue(&json!({"url": url})).await;
        assert_eq!(
            (reply.status, &reply.code()[..], reply.pointers()),
            (422, "target_forbidden", vec!["/url".to_owned()]),
            "{what} {url}: {}",
            reply.text()
        );
        let Ok(id) = enqueue_by_sql(&self.pool, url).await else {
            return;
        };
        let job = self.stack.wait_final(&id, LIMIT).await;
        assert_ended(&job, "failed", 1, Some("blocked_address"));
        assert_eq!(attempts(&job)[0]["outcome"], "permanent", "{what}");
        self.assert_not_blamed(&job).await;
    }

    /// A refused address says nothing of the target, so nothing is held against it.
    async fn assert_not_blamed(&self, job: &serde_json::Value) {
        let target = job["target"].as_str().expect("a job has a target");
        let path: String = url_encoded(target);
        let reply = self.stack.get(&format!("/v1/targets/{path}")).await;
        if reply.status == 200 {
            let target = reply.json();
            assert_eq!(
                (&target["state"], &target["penalty"]),
                (&json!("healthy"), &json!(0)),
                "{target}"
            );
        }
    }
}

fn url_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// SL-02 to SL-49, each by the API and by SQL; SP-03 and SP-05 hold in all of it.
#[tokio::test]
async fn sl_02_to_sl_49_no_spelling_of_an_address_reaches_a_canary() {
    let field = Field::start(200, "127.0.0.7/32").await;
    let port = format!(":{}", field.sink.port());
    let before = stored(&field.pool).await;
    for (what, pattern) in LITERALS {
        let url = pattern.replace("{}", &port);
        field.check_refused(what, &url).await;
    }
    // By the API nothing was stored; by SQL not everything is let in.
    let by_sql = usize::try_from(stored(&field.pool).await - before).expect("a few");
    assert!((30..=LITERALS.len()).contains(&by_sql), "{by_sql}");
    assert_eq!(field.dns.asked().len(), 0, "an address is not looked up");
    // The one address that is open is reached, in any spelling.
    for host in ["127.0.0.7", "127.7", "0x7f000007", "[::ffff:127.0.0.7]"] {
        let id = field.stack.enqueue_to(&field.url(host)).await;
        let job = field.stack.wait_final(&id, LIMIT).await;
        assert_ended(&job, "completed", 1, None);
    }
    let lines = field.stack.worker().lines();
    assert!(
        lines
            .iter()
            .any(|line| line.text.contains("proxy variables are ignored")),
        "SP-03, SP-05: the start says so"
    );
    field.assert_no_canary_sang();
}

/// SD-02 to SD-16: what names lead to, and what becomes of it.
#[tokio::test]
async fn sd_02_to_sd_16_no_answer_of_a_dns_server_reaches_a_canary() {
    let field = Field::start(200, "127.0.0.7/32").await;
    let dns = &field.dns;
    let open = OPEN.to_string();
    let many = (0..1000_u16).map(|_| IpAddr::from(OPEN));
    let blocked: [(&str, Reply); 9] = [
        ("sd-02.test", Reply::parse(&["169.254.169.254"])),
        ("sd-06.test", Reply::parse(&[&open, "fd00::1"])),
        ("sd-06b.test", Reply::parse(&["127.0.0.1", &open])),
        ("sd-06c.test", Reply::parse(&[&open, "::1"])),
        ("sd-08.test", Reply::parse(&["64:ff9b::a00:1"])),
        ("sd-09.test", Reply::alias("internal.test")),
        ("loopback.test", Reply::loopback()),
        ("mapped.test", Reply::parse(&["::ffff:127.0.0.1"])),
        ("self.test", Reply::parse(&["0.0.0.0"])),
    ];
    let mut ids = Vec::new();
    dns.set("internal.test", Reply::parse(&["10.1.2.3"]));
    for (name, reply) in blocked {
        dns.set(name, reply);
        ids.push(field.stack.enqueue_to(&field.url(name)).await);
    }
    for id in ids {
        let job = field.stack.wait_final(&id, LIMIT).await;
        assert_ended(&job, "failed", 1, Some("blocked_address"));
        field.assert_not_blamed(&job).await;
    }
    assert_eq!(field.sink.connection_count(), 0);

    // SD-10: one lookup serves the check and the connection.
    let rebinding = || {
        Rule::PerLookup(vec![
            Reply::address(OPEN).ttl_seconds(0),
            Reply::loopback().ttl_seconds(0),
        ])
    };
    dns.set("sd-10.test", rebinding());
    let id = field.stack.enqueue_to(&field.url("sd-10.test")).await;
    let job = field.stack.wait_final(&id, LIMIT).await;
    assert_ended(&job, "completed", 1, None);
    assert_eq!(dns.lookups("sd-10.test"), 1);
    // SD-11: the next attempt is checked anew.
    field.sink.set_script(503);
    dns.set("sd-11.test", rebinding());
    let id = field.stack.enqueue_to(&field.url("sd-11.test")).await;
    let job = field.stack.wait_final(&id, LIMIT).await;
    assert_ended(&job, "failed", 2, Some("blocked_address"));
    assert_eq!(attempts(&job)[0]["response_status"], 503);
    field.sink.set_script(200);
    // SD-16: a thousand addresses are no trouble.
    let before = field.stack.worker().usage().rss_bytes;
    dns.set("sd-16.test", Reply::addresses(many));
    let id = field.stack.enqueue_to(&field.url("sd-16.test")).await;
    let job = field.stack.wait_final(&id, LIMIT).await;
    assert_ended(&job, "completed", 1, None);
    let growth = field
        .stack
        .worker()
        .usage()
        .rss_bytes
        .saturating_sub(before);
    assert!(growth < 1024 * 1024, "grew by {growth} bytes");
    // SD-12, SD-15, DEL-11: what has no address now may have one later.
    for (name, reply) in [
        ("sd-12.test", Reply::no_name()),
        ("sd-15.test", Reply::no_data()),
        ("servfail.test", Reply::server_failure()),
    ] {
        dns.set(name, reply);
        let id = field.stack.enqueue_to(&field.url(name)).await;
        let job = field.stack.wait_final(&id, LIMIT).await;
        assert_ended(&job, "failed", 3, Some("dns"));
    }
    field.assert_no_canary_sang();
    for marker in ["169.254", "fd00::1", "10.1.2.3", "64:ff9b"] {
        assert!(!field.stack.logs_contain(marker), "{marker} is in a log");
    }
}

/// DEL-01, SR-02 to SR-06: where an answer points to is of no interest.
#[tokio::test]
async fn del_01_sr_02_to_sr_06_no_redirect_reaches_a_canary() {
    let script = Script::new(|request, _| {
        let status = request
            .path
            .split('/')
            .nth(1)
            .and_then(|text| text.parse().ok());
        let place = request.header("x-place").unwrap_or("/end").to_owned();
        Answer::status(status.unwrap_or(404))
            .header("location", place.clone())
            .header("refresh", format!("0;url={place}"))
    });
    let field = Field::start(script, "127.0.0.7/32").await;
    let port = field.sink.port();
    let places = [
        "/end".to_owned(),
        "http://169.254.169.254/".to_owned(),
        format!("http://127.0.0.1:{port}/"),
    ];
    let mut ids = Vec::new();
    // SR-02: 301, SR-03: 303, SR-05: 308, SR-06: 200.
    for status in [200, 300, 301, 302, 303, 304, 307, 308] {
        for place in &places {
            let job = json!({
                "url": field.sink.url(&format!("/{status}/start")),
                "headers": {"x-place": place},
                "payload": {"n": 1},
            });
            ids.push((status, field.stack.enqueue_id(&job).await));
        }
    }
    for (status, id) in ids {
        let job = field.stack.wait_final(&id, LIMIT).await;
        if status == 200 {
            // SR-06: only the status decides.
            assert_ended(&job, "completed", 1, None);
        } else {
            assert_ended(&job, "failed", 1, Some("redirect"));
        }
        assert_eq!(attempts(&job)[0]["response_status"], status);
        let requests = field.sink.requests_for(&id);
        assert_eq!(requests.len(), 1);
        assert_eq!(
            (&requests[0].method[..], &requests[0].body[..]),
            ("POST", &b"{\"n\":1}"[..])
        );
        assert!(requests[0].path.ends_with("/start"));
    }
    let target = field.stack.get("/v1/targets/127.0.0.7").await.json();
    assert_eq!(target["penalty"], 0, "DEL-01: {target}");
    assert_eq!(field.sink.request_count(), 24);
    field.assert_no_canary_sang();
}

/// SD-20 to SD-31: with nothing opened, inner names are refused before any lookup.
#[tokio::test]
async fn sd_20_to_sd_31_inner_names_are_refused_unasked() {
    let field = Field::start(200, "").await;
    field.dns.set_others(|_| Some(Reply::loopback()));
    for (what, host) in [
        ("SD-20", "localhost"),
        ("SD-22", "LOCALHOST"),
        ("SD-23", "foo.localhost"),
        ("SD-25", "metadata.google.internal"),
        ("SD-28", "\u{24db}ocalhost"),
        ("SD-29", "loc\u{ad}alhost"),
        ("a single label", "intranet"),
        ("of a cluster", "api.default.svc"),
        ("of a printer", "printer.local"),
        ("with a dot", "localhost."),
    ] {
        field.check_refused(what, &field.url(host)).await;
    }
    let reply = field
        .stack
        .enqueue(&json!({"url": field.url("xn--localhost-.test")}))
        .await;
    assert_eq!(
        (reply.status, &reply.code()[..]),
        (422, "url_invalid"),
        "SD-31"
    );
    assert_eq!(field.dns.asked().len(), 0);
    // A public name is looked up, and what it leads to is closed.
    let id = field.stack.enqueue_to(&field.url("victim.test")).await;
    let job = field.stack.wait_final(&id, Duration::from_secs(60)).await;
    assert_ended(&job, "failed", 1, Some("blocked_address"));
    assert_eq!(field.sink.connection_count(), 0);
    field.assert_no_canary_sang();
}
