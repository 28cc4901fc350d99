//! A real Chromium without a window, driven over its debugging pipe.
//!
//! Commands and answers are JSON ended by a NUL on two pipes (the `DevTools` protocol), so nothing
//! but the browser is needed. Whatever the page complains about is kept: [`Page::complaints`]. A
//! machine without Chromium fails the test and says what to install.

use std::{process::Stdio, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

/// What to install where the program is missing.
const PACKAGE: &str = "install Chromium: apt-get install --no-install-recommends chromium";

/// No command takes longer, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// How a page is shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Look {
    /// Dark letters on a wide screen.
    Light,
    /// Light letters on a wide screen.
    Dark,
    /// As on a phone.
    Phone,
}

/// A browser with one page; dropping it ends it and removes what it stored.
#[derive(Debug)]
pub struct Page {
    _child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    session: Option<String>,
    last_id: u64,
    complaints: Vec<String>,
    _directory: TempDir,
}

impl Page {
    /// Starts a browser with an empty page.
    ///
    /// # Panics
    /// When Chromium is not installed, or does not answer in time.
    pub async fn open() -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        // The browser reads commands from descriptor 3 and answers on 4. Tests may run as root,
        // where its sandbox does not start; it only ever shows our own page.
        let script = "exec chromium --headless --no-sandbox --disable-gpu --no-first-run \
            --disable-dev-shm-usage --remote-debugging-pipe --user-data-dir=\"$0\" 3<&0 4>&1 1>&2";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .arg(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("a shell");
        let mut page = Self {
            commands: child.stdin.take().expect("it is piped"),
            answers: BufReader::new(child.stdout.take().expect("it is piped")),
            _child: child,
            session: None,
            last_id: 0,
            complaints: Vec::new(),
            _directory: directory,
        };
        let made = page
            .call("Target.createTarget", json!({"url": "about:blank"}))
            .await;
        let attach = json!({"targetId": made["targetId"], "flatten": true});
        let attached = page.call("Target.attachToTarget", attach).await;
        page.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            page.call(&format!("{domain}.enable"), json!({})).await;
        }
        page
    }

    /// Sends this header with every request of the page.
    ///
    /// # Panics
    /// When the browser does not answer.
    pub async fn send_header(&mut self, name: &str, value: &str) {
        let headers = json!({"headers": {name: value}});
        self.call("Network.setExtraHTTPHeaders", headers).await;
    }

    /// Shows the page in another way.
    ///
    /// # Panics
    /// When the browser does not answer.
    pub async fn look(&mut self, look: Look) {
        let (width, height) = match look {
            Look::Light | Look::Dark => (1280, 800),
            Look::Phone => (390, 844),
        };
        let scheme = match look {
            Look::Light | Look::Phone => "light",
            Look::Dark => "dark",
        };
        let metrics = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": look == Look::Phone,
        });
        self.call("Emulation.setDeviceMetricsOverride", metrics)
            .await;
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}))
            .await;
    }

    /// Goes to a URL.
    ///
    /// # Panics
    /// When the URL cannot be loaded.
    pub async fn goto(&mut self, url: &str) {
        let went = self.call("Page.navigate", json!({"url": url})).await;
        assert!(went["errorText"].is_null(), "{url}: {went}");
    }

    /// Evaluates an expression in the page; a promise is waited for.
    ///
    /// # Panics
    /// When it throws.
    pub async fn eval(&mut self, expression: &str) -> Value {
        let what = json!({
            "expression": expression, "awaitPromise": true, "returnByValue": true,
            "userGesture": true,
        });
        let done = self.call("Runtime.evaluate", what).await;
        let thrown = &done["exceptionDetails"];
        assert!(thrown.is_null(), "{expression}: {thrown}");
        done["result"]["value"].clone()
    }

    /// Waits until an expression is true and gives its value.
    ///
    /// # Panics
    /// When it does not become true; the message shows the text of the page.
    pub async fn wait(&mut self, expression: &str) -> Value {
        let limit = LIMIT.as_millis() / 2;
        // What is not there yet may make the expression throw.
        let poll = format!(
            "new Promise((resolve) => {{ const begun = Date.now(); const look = () => {{
                let value; try {{ value = ({expression}); }} catch {{ value = null; }}
                if (value) resolve(value);
                else if (Date.now() - begun > {limit}) resolve(null);
                else setTimeout(look, 20); }}; look(); }})"
        );
        let value = self.eval(&poll).await;
        if value.is_null() {
            let text = self.eval("document.body.innerText").await;
            panic!("never true: {expression}\n{text}");
        }
        value
    }

    /// Presses a key.
    ///
    /// # Panics
    /// When the browser does not answer.
    pub async fn press(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" && key.len() == 1 {
                key
            } else {
                ""
            };
            let event = json!({"type": kind, "key": key, "text": text});
            self.call("Input.dispatchKeyEvent", event).await;
        }
    }

    /// A picture of what is shown, as PNG in base64.
    ///
    /// # Panics
    /// When the browser does not answer.
    pub async fn picture(&mut self) -> String {
        let taken = self
            .call("Page.captureScreenshot", json!({"format": "png"}))
            .await;
        taken["data"].as_str().expect("a picture").to_owned()
    }

    /// What the page complained about so far: exceptions, and errors and warnings on the console.
    #[must_use]
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    async fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let mut command = json!({"id": self.last_id, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            command["sessionId"] = session.clone().into();
        }
        let mut text = command.to_string().into_bytes();
        text.push(0);
        let sent = self.commands.write_all(&text).await;
        sent.unwrap_or_else(|error| panic!("Chromium is not there ({error}); {PACKAGE}"));
        let answered = timeout(LIMIT, self.answer()).await;
        let answer = answered.unwrap_or_else(|_| panic!("{method} is not answered in time"));
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Reads up to the answer to the last command, and keeps complaints that come before it.
    async fn answer(&mut self) -> Value {
        loop {
            let mut text = Vec::new();
            let read = self.answers.read_until(0, &mut text).await;
            assert!(
                read.is_ok() && text.pop().is_some(),
                "Chromium has ended; if it is missing, {PACKAGE}"
            );
            let message: Value = serde_json::from_slice(&text).expect("Chromium sends JSON");
            if message["id"] == self.last_id {
                return message;
            }
            let said = &message["params"];
            let is_complaint = match message["method"].as_str() {
                Some("Runtime.exceptionThrown") => true,
                Some("Runtime.consoleAPICalled") => said["type"] != "log",
                Some("Log.entryAdded") => {
                    matches!(said["entry"]["level"].as_str(), Some("error" | "warning"))
                }
                _ => false,
            };
            if is_complaint {
                self.complaints.push(said.to_string());
            }
        }
    }
}
