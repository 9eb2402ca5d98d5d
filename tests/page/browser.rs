//! A headless Chromium: the `DevTools` protocol over a pipe, as JSON with a zero byte after each message.
//!
//! It has no port that another program could take, no WebSocket and no driver program: the tests need only a call and
//! its answer. Each test has its own browser, which ends with the test.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, timeout, timeout_at};

/// For any one answer. A browser that starts on a machine that does a lot else takes its time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two looks at a page, which reports nothing by itself.
pub(crate) const LOOK: Duration = Duration::from_millis(50);
/// The names of the browser's program.
const NAMES: [&str; 5] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];

/// The browser reads commands from descriptor 3 and answers on 4.
const ONTO_PIPES: &str = r#"exec 3<&0 4>&1 0</dev/null 1>&2; exec "$@""#;

/// A browser with one page.
pub(crate) struct Browser {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    calls: u64,
    session: Option<String>,
    /// The events that it sent, in order.
    events: Vec<Value>,
    _child: Child,
    _profile: TempDir,
}

/// The browser's program: `CHROMIUM`, or the first that is installed.
fn program() -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "the suite's own input")]
    let variable = |name: &str| -> Option<OsString> { std::env::var_os(name).filter(|value| !value.is_empty()) };
    if let Some(named) = variable("CHROMIUM") {
        return named.into();
    }
    let path = variable("PATH").unwrap_or_default();
    let found = NAMES.iter().flat_map(|name| std::env::split_paths(&path).map(move |folder| folder.join(name)));
    found
        .into_iter()
        .find(|file| file.is_file())
        .expect("no Chromium on PATH: install one (Debian: apt-get install chromium), or name it in CHROMIUM")
}

/// A page's size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) is_phone: bool,
}

pub(crate) const DESK: Screen = Screen { width: 1280, height: 900, is_phone: false };
pub(crate) const PHONE: Screen = Screen { width: 360, height: 740, is_phone: true };

impl Browser {
    /// Starts one with an empty page.
    pub(crate) async fn start() -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", ONTO_PIPES, "sh"]).arg(program());
        command.args(["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check"]);
        // A machine of a test has no graphics, and perhaps little shared memory. The pages are our own: root, who gets no
        // sandbox, needs none.
        command.args(["--disable-gpu", "--disable-dev-shm-usage", "--no-sandbox", "--hide-scrollbars"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg("about:blank");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser =
            Self { to, from, calls: 0, session: None, events: Vec::new(), _child: child, _profile: profile };
        let page = browser.call("Target.createTarget", json!({"url": "about:blank"})).await;
        let target = json!({"targetId": page["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", target).await;
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log", "Network", "Performance"] {
            browser.call(&format!("{domain}.enable"), json!({})).await;
        }
        browser
    }

    /// One call and its answer.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        self.ask(method, params).await.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// One call, and its answer or its error.
    async fn ask(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.calls += 1;
        let id = self.calls;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).await.unwrap();
        loop {
            let mut answer = self.next(method).await;
            if answer["id"] == id {
                return if answer.get("error").is_some() {
                    Err(answer["error"].take())
                } else {
                    Ok(answer["result"].take())
                };
            }
            self.events.push(answer);
        }
    }

    async fn next(&mut self, what: &str) -> Value {
        let mut message = Vec::new();
        let read = timeout(PATIENCE, self.from.read_until(0, &mut message)).await;
        let read = read.unwrap_or_else(|_| panic!("the browser is silent: {what}")).unwrap();
        assert!(read > 0, "the browser has ended: {what}");
        message.pop();
        serde_json::from_slice(&message).unwrap()
    }

    /// Waits for the next event of this kind that comes from now on.
    pub(crate) async fn event(&mut self, method: &str) -> Value {
        let limit = Instant::now() + PATIENCE;
        loop {
            let message = timeout_at(limit, self.next(method)).await.unwrap_or_else(|_| panic!("no {method}"));
            self.events.push(message.clone());
            if message["method"] == method {
                return message["params"].clone();
            }
        }
    }

    /// The parameters of all events of this kind so far.
    pub(crate) fn events(&self, method: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["method"] == method).map(|event| &event["params"]).collect()
    }

    /// The screen to draw for, and whether the reader likes it dark.
    pub(crate) async fn look_on(&mut self, screen: Screen, scheme: &str) {
        let metrics = json!({"width": screen.width, "height": screen.height, "deviceScaleFactor": 1,
            "mobile": screen.is_phone});
        self.call("Emulation.setDeviceMetricsOverride", metrics).await;
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features).await;
    }

    /// Opens a page, until it is loaded.
    pub(crate) async fn open(&mut self, url: &str) {
        let opened = self.call("Page.navigate", json!({"url": url})).await;
        assert!(opened.get("errorText").is_none(), "{url}: {opened}");
        self.until("the page is loaded", "document.readyState === 'complete' && location.href !== 'about:blank'").await;
    }

    /// The result of an expression in the page; a promise is awaited.
    pub(crate) async fn tell(&mut self, expression: &str) -> Value {
        self.look(expression).await.unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    async fn look(&mut self, expression: &str) -> Result<Value, Value> {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut told = self.ask("Runtime.evaluate", params).await?;
        assert!(told.get("exceptionDetails").is_none(), "{expression}: {}", told["exceptionDetails"]);
        Ok(told["result"]["value"].take())
    }

    /// Looks until an expression is true. A page that goes away at this moment, because another one is opened, can't say so yet.
    pub(crate) async fn until(&mut self, what: &str, expression: &str) {
        let limit = Instant::now() + PATIENCE;
        let mut ticks = tokio::time::interval(LOOK);
        loop {
            let seen = self.look(expression).await;
            if seen == Ok(Value::Bool(true)) {
                return;
            }
            assert!(Instant::now() < limit, "waited in vain: {what}: {seen:?}");
            ticks.tick().await;
        }
    }

    /// What went wrong in the page, in the words of its console; and what it fetched from elsewhere.
    pub(crate) fn complaints(&self, origin: &str) -> Vec<String> {
        let text = |value: &Value| value.to_string();
        let mut all: Vec<String> = self.events("Runtime.exceptionThrown").into_iter().map(text).collect();
        all.extend(self.events("Log.entryAdded").into_iter().map(text));
        all.extend(self.events("Runtime.consoleAPICalled").into_iter().map(text));
        let requests = self.events("Network.requestWillBeSent").into_iter();
        let urls = requests.filter_map(|request| request["request"]["url"].as_str());
        let is_foreign = |url: &&str| !url.starts_with(origin) && !url.starts_with("data:") && *url != "about:blank";
        all.extend(urls.filter(is_foreign).map(|url| format!("fetched {url}")));
        all
    }

    /// A picture of the screen.
    pub(crate) async fn picture(&mut self) -> Vec<u8> {
        let shot = self.call("Page.captureScreenshot", json!({"format": "png"})).await;
        base64::engine::general_purpose::STANDARD.decode(shot["data"].as_str().unwrap()).unwrap()
    }
}
