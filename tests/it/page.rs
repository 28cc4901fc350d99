//! The operations page in a real browser: every screen, every action, hostile text, no complaint.
//!
//! `HOOK_TEST_SHOTS=<directory>` keeps a picture of each screen in each look.

use std::{env, fs, path::Path};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hook_testkit::{
    browser::{Look, Page},
    db::TestDb,
    sink::{Sink, answer::Answer},
    stack::Stack,
    wait::wait_for,
};
use serde_json::{Value, json};

use crate::kit::{LIMIT, attempts, target, wait_state};

/// A name and an answer that would do harm if anything took them for HTML.
const HOSTILE: &str =
    r#"<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>"#;
const PAYLOAD: &str = "not for everybody's eyes";

/// The element with this key, as an expression.
fn key(key: &str) -> String {
    let key = json!(key);
    format!("[...document.querySelectorAll('[data-key]')].find((e) => e.dataset.key === {key})")
}

/// A page, and where it comes from.
struct Shown {
    page: Page,
    base: String,
}

impl Shown {
    async fn open(stack: &Stack) -> Self {
        Self {
            page: Page::open().await,
            base: stack.api_url("/"),
        }
    }

    async fn screen(&mut self, name: &str) {
        let url = format!("{}#/{name}", self.base);
        self.page.goto(&url).await;
        let screen = name.split('/').next().expect("a name");
        self.page
            .wait(&format!(
                "document.body.dataset.ready === {}",
                json!(screen)
            ))
            .await;
    }

    async fn click(&mut self, name: &str) {
        let element = key(name);
        self.page.wait(&format!("!!({element})")).await;
        self.page.eval(&format!("({element}).click()")).await;
    }

    /// Fills in the dialog, says yes and gives what it had asked.
    async fn confirm(&mut self, fields: &[(&str, &str)]) -> String {
        self.page
            .wait("document.getElementById('dialog').open")
            .await;
        for (name, value) in fields {
            let field = format!("document.querySelector('dialog [name={name}]').value = '{value}'");
            self.page.eval(&field).await;
        }
        let text = "document.getElementById('dialog').innerText";
        let text = self.page.eval(text).await;
        self.page
            .eval("document.getElementById('dialog-ok').click()")
            .await;
        text.as_str().expect("text").to_owned()
    }

    async fn wait_text(&mut self, text: &str) {
        let shown = format!("document.body.innerText.includes({})", json!(text));
        self.page.wait(&shown).await;
    }

    async fn text(&mut self) -> String {
        let text = self
            .page
            .eval("document.getElementById('main').innerText")
            .await;
        text.as_str().expect("text").to_owned()
    }

    async fn keep_picture(&mut self, name: &str) {
        let Some(directory) = env::var_os("HOOK_TEST_SHOTS") else {
            return;
        };
        let picture = BASE64_STANDARD.decode(self.page.picture().await);
        let file = Path::new(&directory).join(format!("{name}.png"));
        fs::write(file, picture.expect("base64")).expect("the picture is kept");
    }
}

/// A stack with one job that was delivered and three that a hostile receiver refused.
async fn scene(db: &TestDb, good: &Sink, bad: &Sink) -> (Stack, String) {
    let mut stack = Stack::builder(&db.url()).start().await;
    let delivered = stack.enqueue_to(&good.url("/")).await;
    let mut failed = String::new();
    for _ in 0..3 {
        let job = json!({"url": bad.url("/"), "target": HOSTILE, "body": PAYLOAD});
        failed = stack.enqueue_id(&job).await;
        assert_eq!(stack.wait_final(&failed, LIMIT).await["status"], "failed");
    }
    stack.wait_final(&delivered, LIMIT).await;
    // Without a worker nothing moves but by what the page does.
    stack.workers.clear();
    (stack, failed)
}

fn refusing() -> Answer {
    Answer::status(400).bytes(HOSTILE)
}

fn path_of_hostile() -> String {
    let name = HOSTILE.bytes().map(|byte| format!("%{byte:02x}"));
    name.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_screen_shows_hostile_text_as_text_in_every_look() {
    let db = TestDb::new().await;
    let (good, bad) = (Sink::start(200).await, Sink::start(refusing()).await);
    let (stack, failed) = scene(&db, &good, &bad).await;
    let pause = format!("/v1/targets/{}/pause", path_of_hostile());
    assert_eq!(stack.post(&pause, &json!({})).await.status, 200);
    let held_back = json!({"url": bad.url("/"), "target": HOSTILE, "body": PAYLOAD});
    stack.enqueue_id(&held_back).await;

    let mut shown = Shown::open(&stack).await;
    for look in [Look::Light, Look::Dark, Look::Phone] {
        shown.page.look(look).await;
        for screen in ["targets", "overview", "failures", "next", "job"] {
            let at = match screen {
                "job" => format!("job/{failed}"),
                _ => screen.to_owned(),
            };
            shown.screen(&at).await;
            let text = shown.text().await;
            assert!(!text.contains(PAYLOAD), "{screen}: {text}");
            assert_eq!(
                text.contains(HOSTILE),
                screen != "overview",
                "{screen}: {text}"
            );
            let made = "document.querySelectorAll('main img, main script').length";
            assert_eq!(shown.page.eval(made).await, 0, "{screen}");
            let title = shown.page.eval("document.title").await;
            assert_eq!(title, format!("hook: {screen}"));
            let width = "document.documentElement.scrollWidth <= innerWidth";
            assert_eq!(shown.page.eval(width).await, true, "{screen} in {look:?}");
            let name = format!("{screen}-{look:?}").to_lowercase();
            shown.keep_picture(&name).await;
        }
    }
    assert_eq!(shown.page.complaints(), [] as [String; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_action_does_what_it_says() {
    let db = TestDb::new().await;
    let (good, bad) = (Sink::start(200).await, Sink::start(refusing()).await);
    let (mut stack, failed) = scene(&db, &good, &bad).await;
    let mut shown = Shown::open(&stack).await;
    let hostile = path_of_hostile();

    shown.screen(&format!("targets/{hostile}")).await;
    // Once the janitor has counted them, the three failures stand in the last hours.
    let counted = "[...document.querySelectorAll('svg.spark title')].some((title) => \
        title.textContent.endsWith('0 delivered, 3 not'))";
    shown.page.wait(counted).await;
    shown.click(&format!("pause {HOSTILE}")).await;
    shown.wait_text("paused by hand").await;
    assert_eq!(target(&stack, &hostile).await["state"], "paused");
    shown.click(&format!("limits {HOSTILE}")).await;
    let limits = [
        ("max_in_flight", "3"),
        ("rate_per_second", "2.5"),
        ("penalty", "4"),
    ];
    shown.confirm(&limits).await;
    shown.wait_text("/ 3").await;
    let set = target(&stack, &hostile).await;
    assert_eq!(
        (
            &set["max_in_flight"],
            &set["rate_per_second"],
            &set["penalty_pin"]
        ),
        (&json!(3), &json!(2.5), &json!(4))
    );
    shown.click(&format!("limits {HOSTILE}")).await;
    shown
        .confirm(&[
            ("max_in_flight", ""),
            ("rate_per_second", ""),
            ("penalty", ""),
        ])
        .await;
    shown
        .page
        .wait("!document.getElementById('main').innerText.includes('/ 3')")
        .await;
    let cleared = target(&stack, &hostile).await;
    assert_eq!(
        (
            &cleared["max_in_flight"],
            &cleared["rate_per_second"],
            &cleared["penalty_pin"]
        ),
        (&Value::Null, &Value::Null, &Value::Null)
    );

    // The bulk replay says how many first. What it puts back waits, because the target is paused.
    shown.screen("failures").await;
    shown.click(&format!("replay {HOSTILE} http_status")).await;
    let asked = shown.confirm(&[]).await;
    assert!(
        asked.contains("Replay 3 jobs?") && asked.contains("http_status"),
        "{asked}"
    );
    shown.wait_text("replayed 3 jobs").await;
    shown.keep_picture("replayed").await;
    assert_eq!(target(&stack, &hostile).await["waiting"], 3);
    shown.screen("next").await;
    shown.wait_text("waits until it is resumed").await;

    shown.screen(&format!("job/{failed}")).await;
    shown.wait_text("Attempt 1: permanent").await;
    shown.click("body").await;
    shown.wait_text(PAYLOAD).await;
    shown.click("cancel").await;
    shown.wait_text("Retry job").await;
    assert_eq!(stack.job(&failed).await["status"], "cancelled");
    shown.click("retry").await;
    shown.wait_text("Cancel job").await;
    assert_eq!(stack.job(&failed).await["status"], "available");

    shown.screen(&format!("targets/{hostile}")).await;
    shown.click(&format!("pause {HOSTILE}")).await;
    shown
        .page
        .wait("!document.body.innerText.includes('paused by hand')")
        .await;
    stack.start_worker().await;
    let again = stack.wait_final(&failed, LIMIT).await;
    assert_eq!(attempts(&again).len(), 2, "{again}");
    // The page sees on its own that it has failed once more.
    shown.click(&format!("replay {HOSTILE}")).await;
    assert!(shown.confirm(&[]).await.contains("Replay"));
    shown.wait_text("replayed ").await;
    assert_eq!(shown.page.complaints(), [] as [String; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_is_held_says_why_and_is_probed_at_a_click() {
    let db = TestDb::new().await;
    let sink = Sink::start(500).await;
    let stack = Stack::builder(&db.url())
        .set("HOOK_HOLD_FAILURES", 3)
        .set("HOOK_HOLD_AFTER", "200ms")
        .set("HOOK_PROBE_INTERVAL_MIN", "30m")
        .set("HOOK_PROBE_INTERVAL_MAX", "30m")
        .set("HOOK_RETRY_SCHEDULE", "100ms")
        .set("HOOK_MAX_ATTEMPTS", 100)
        .start()
        .await;
    for _ in 0..5 {
        let job = json!({"url": sink.url("/"), "target": "down.test"});
        stack.enqueue_id(&job).await;
    }
    wait_state(&stack, "down.test", "held").await;
    let running = async || target(&stack, "down.test").await["running"].clone();
    wait_for(LIMIT, running, |running| *running == 0).await;
    let mut shown = Shown::open(&stack).await;
    for look in [Look::Phone, Look::Dark, Look::Light] {
        shown.page.look(look).await;
        shown.screen("targets/down.test").await;
        shown.wait_text("next probe").await;
        shown
            .keep_picture(&format!("held-{look:?}").to_lowercase())
            .await;
    }
    // The probe finds it as it was.
    let before = sink.request_count();
    let next = async || target(&stack, "down.test").await["next_probe_at"].to_string();
    let first = next().await;
    shown.click("probe down.test").await;
    sink.wait_requests(before + 1, LIMIT).await;
    // The worker says a second later when the next one goes out.
    wait_for(LIMIT, next, |next| *next > first).await;
    assert_eq!(sink.request_count(), before + 1);
    assert_eq!(target(&stack, "down.test").await["state"], "held");
    // It is well again, which the page sees on its own once a probe has.
    sink.set_script(200);
    let offered = |offered: bool| format!("!!({}) === {offered}", key("probe down.test"));
    shown.page.wait(&offered(true)).await;
    shown.click("probe down.test").await;
    shown.page.wait(&offered(false)).await;
    assert_ne!(target(&stack, "down.test").await["state"], "held");
    assert_eq!(shown.page.complaints(), [] as [String; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_lead_everywhere_and_a_fault_is_told() {
    let db = TestDb::new().await;
    let stack = Stack::builder(&db.url())
        .set("HOOK_API_TOKENS", "sesame")
        .set("HOOK_API_ENQUEUE_TOKENS", "only")
        .start()
        .await;
    let page = || {
        stack
            .client()
            .get(stack.api_url("/"))
            .header("accept", "text/html")
    };
    let refused = stack.send(page()).await;
    assert_eq!(refused.status, 401);
    let challenges = refused.headers.get_all("www-authenticate");
    let is_basic = challenges
        .iter()
        .any(|value| value.as_bytes().starts_with(b"Basic "));
    assert!(is_basic, "{:?}", refused.headers);
    assert_eq!(
        stack
            .send(page().basic_auth("me", Some("only")))
            .await
            .status,
        403
    );

    let mut shown = Shown::open(&stack).await;
    let password = BASE64_STANDARD.encode("me:sesame");
    shown
        .page
        .send_header("authorization", &format!("Basic {password}"))
        .await;
    shown.screen("targets").await;
    for (key, screen) in [
        ("2", "overview"),
        ("3", "failures"),
        ("4", "next"),
        ("5", "job"),
        ("1", "targets"),
    ] {
        shown.page.press(key).await;
        shown
            .page
            .wait(&format!("document.body.dataset.ready === '{screen}'"))
            .await;
    }
    // However long somebody looks, the page holds no more than what it shows.
    shown.page.eval("refresh()").await;
    let before = shown.page.eval("drawn.length").await;
    let often = "(async () => { for (let n = 0; n < 10; n++) await refresh(); })()";
    shown.page.eval(often).await;
    assert_eq!(shown.page.eval("drawn.length").await, before);
    // Return in a field of the dialog means yes, as everywhere.
    let default = "document.querySelector('dialog button:not([type=button])').id";
    assert_eq!(shown.page.eval(default).await, "dialog-ok");
    assert_eq!(shown.page.complaints(), [] as [String; 0]);
    shown
        .page
        .send_header("authorization", "Bearer wrong")
        .await;
    shown.page.press("r").await;
    shown.wait_text("send a valid token").await;
}
