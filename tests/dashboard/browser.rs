//! A browser without a window, driven over two pipes: no port, no web socket.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

const PROGRAM: &str = "chromium-headless-shell";

/// How many times a condition is asked for; the page answers each time after it has drawn.
const FRAMES_MAX: usize = 3000;

/// Says something to those who run the tests.
pub(crate) fn say(line: &str) {
    // Nothing is left to say without a reader.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A page in a browser, which ends with it.
pub(crate) struct Browser {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    count: u64,
    session: Option<String>,
    /// Errors of scripts, and requests that the page's policy has refused.
    complaints: Vec<String>,
}

impl Browser {
    /// A browser with a dark or a light page, if the program is there. In CI it must be.
    pub(crate) fn start(scheme: &str) -> Option<Self> {
        if Command::new(PROGRAM)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_err()
        {
            assert!(std::env::var_os("CI").is_none(), "{PROGRAM} is missing: scripts/setup.sh installs it");
            say(&format!("skipped: {PROGRAM} is missing, and scripts/setup.sh installs it"));
            return None;
        }
        // The browser reads requests from descriptor 3 and answers on 4. As root it runs without its sandbox: it loads nothing but our page.
        let script = format!(
            "exec {PROGRAM} --no-sandbox --disable-gpu --hide-scrollbars --remote-debugging-pipe 3<&0 4>&1 0</dev/null >/dev/null 2>&1"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("the shell runs");
        let (requests, answers) = (process.stdin.take(), process.stdout.take());
        let mut browser = Self {
            process,
            requests: requests.expect("it is a pipe"),
            answers: BufReader::new(answers.expect("it is a pipe")),
            count: 0,
            session: None,
            complaints: Vec::new(),
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        browser.session =
            browser.call("Target.attachToTarget", attach)["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        let size = json!({ "width": 1440, "height": 760, "deviceScaleFactor": 1, "mobile": false });
        browser.call("Emulation.setDeviceMetricsOverride", size);
        let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser.call("Emulation.setEmulatedMedia", scheme);
        Some(browser)
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.count += 1;
        let mut request = json!({ "id": self.count, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        self.requests.write_all(format!("{request}\0").as_bytes()).expect("the browser is there");
        loop {
            let mut bytes = Vec::new();
            self.answers.read_until(0, &mut bytes).expect("the browser is there");
            bytes.pop();
            let message: Value = serde_json::from_slice(&bytes).expect("the browser speaks JSON");
            if message["id"] == self.count {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
            if message["method"] == "Runtime.exceptionThrown"
                || (message["method"] == "Log.entryAdded" && message["params"]["entry"]["level"] == "error")
            {
                self.complaints.push(message["params"].to_string());
            }
        }
    }

    pub(crate) fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
        self.wait("document.readyState === 'complete'");
    }

    /// The value of an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let request = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", request);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    pub(crate) fn text(&mut self, expression: &str) -> String {
        self.value(expression).as_str().unwrap_or_default().to_owned()
    }

    /// Lets the page go on until a condition holds.
    pub(crate) fn wait(&mut self, condition: &str) {
        let frame = format!("new Promise((done) => requestAnimationFrame(() => done(Boolean({condition}))))");
        if !(0..FRAMES_MAX).any(|_| self.value(&frame) == json!(true)) {
            let shown = self.text("document.body.innerText");
            panic!("it does not come to pass that {condition}\n{:?}\n{shown}", self.complaints);
        }
    }

    pub(crate) fn press(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            self.call("Input.dispatchKeyEvent", json!({ "type": kind, "key": key, "text": if key.len() == 1 && kind == "keyDown" { key } else { "" } }));
        }
    }

    pub(crate) fn click(&mut self, x: f64, y: f64) {
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Writes a picture of the page into a file.
    pub(crate) fn picture(&mut self, path: &Path) {
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let mut decoder = Command::new("base64");
        decoder.arg("-d").stdin(Stdio::piped()).stdout(File::create(path).expect("the file can be made"));
        let mut decoder = decoder.spawn().expect("base64 is there");
        let text = picture["data"].as_str().unwrap_or_default();
        decoder.stdin.take().expect("it is a pipe").write_all(text.as_bytes()).expect("it reads");
        assert!(decoder.wait().expect("it ends").success());
    }

    /// The complaints of the page so far.
    pub(crate) fn complaints(&mut self) -> &[String] {
        self.value("0"); // What came before it has been read then.
        &self.complaints
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
