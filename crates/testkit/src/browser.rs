//! A headless Chromium, driven over the DevTools protocol.
//!
//! The browser reads commands from file descriptor 3 and responds on 4, so it needs no port and no client library.
//! Errors of a page, such as content security policy violations and exceptions of scripts, are recorded for tests to
//! check.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};

/// The timeout of any operation.
const DEADLINE: Duration = Duration::from_secs(120);
/// The names of the program; the first one found is used.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// A browser with one page. It is stopped on drop.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    commands: ChildStdin,
    answers: Receiver<Value>,
    session: String,
    last: u64,
    /// Errors of the page.
    problems: Vec<String>,
    profile: PathBuf,
}

impl Browser {
    /// Starts the browser with an empty page.
    ///
    /// # Panics
    ///
    /// Panics if Chromium is not installed; `tools/need.sh chromium` installs it.
    #[must_use]
    pub fn start(width: u32, height: u32) -> Self {
        let program = std::env::var("LOCKGATE_CHROMIUM").ok().or_else(installed);
        let program = program.expect(
            "the tests need Chromium: install it with `tools/need.sh chromium`, or set LOCKGATE_CHROMIUM",
        );
        let unique = format!("lockgate-browser-{}-{:p}", std::process::id(), &program);
        let profile = std::env::temp_dir().join(unique);
        // The shell passes its standard input and output to the browser as 3 and 4.
        let mut child = Command::new("sh")
            .args([
                "-c",
                "exec 3<&0 4>&1; exec \"$@\" </dev/null >/dev/null 2>&1",
                "sh",
            ])
            .args([
                program.as_str(),
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--window-size={width},{height}"))
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell starts the browser");
        let commands = child.stdin.take().expect("it is a pipe");
        let stdout = child.stdout.take().expect("it is a pipe");
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            let mut stdout: BufReader<ChildStdout> = BufReader::new(stdout);
            let mut message = Vec::new();
            while stdout
                .read_until(0, &mut message)
                .is_ok_and(|read| read > 0)
            {
                message.pop();
                let value = serde_json::from_slice(&message).unwrap_or_default();
                if sender.send(value).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let mut browser = Self {
            child,
            commands,
            answers,
            session: String::new(),
            last: 0,
            problems: Vec::new(),
            profile,
        };
        let made = browser.send("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": made["targetId"], "flatten": true});
        let attached = browser.send("Target.attachToTarget", attach);
        browser.session = attached["sessionId"]
            .as_str()
            .expect("a session")
            .to_owned();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.send(domain, json!({}));
        }
        browser.size(width, height);
        browser
    }

    /// Sends a command and waits for its result.
    ///
    /// # Panics
    ///
    /// Panics if the browser returns an error, or does not respond.
    pub fn send(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut command = json!({"id": self.last, "method": method, "params": params});
        if !self.session.is_empty() {
            command["sessionId"] = json!(self.session);
        }
        let mut bytes = command.to_string().into_bytes();
        bytes.push(0);
        self.commands
            .write_all(&bytes)
            .expect("the browser reads commands");
        loop {
            let answer = self.answers.recv_timeout(DEADLINE);
            let answer = answer.expect("the browser answers commands");
            if answer["id"] == self.last {
                assert!(
                    answer.get("error").is_none(),
                    "{method}: {}",
                    answer["error"]
                );
                return answer["result"].clone();
            }
            self.hear(&answer);
        }
    }

    fn hear(&mut self, event: &Value) {
        let params = &event["params"];
        match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.problems.push(params.to_string()),
            Some("Log.entryAdded") if params["entry"]["level"] == "error" => {
                self.problems.push(params["entry"]["text"].to_string());
            }
            _ => {}
        }
    }

    /// Sets the size of the page.
    pub fn size(&mut self, width: u32, height: u32) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.send("Emulation.setDeviceMetricsOverride", size);
    }

    /// Navigates to a page.
    pub fn open(&mut self, url: &str) {
        self.send("Page.navigate", json!({ "url": url }));
    }

    /// Evaluates an expression in the page; promises are awaited.
    ///
    /// # Panics
    ///
    /// Panics if the expression throws.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let result = self.send("Runtime.evaluate", params);
        let thrown = result.get("exceptionDetails");
        assert!(
            thrown.is_none(),
            "{expression}: {result}\n{:?}",
            self.problems
        );
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true, and returns its value.
    ///
    /// # Panics
    ///
    /// Panics on a timeout.
    pub fn wait(&mut self, expression: &str) -> Value {
        let waiting = format!(
            "new Promise((resolve, reject) => {{
                const end = Date.now() + 60000;
                const look = () => {{
                    let value;
                    try {{ value = ({expression}); }} catch (error) {{ value = null; }}
                    if (value) return resolve(value);
                    if (Date.now() > end) return reject(new Error('never: ' + document.body.innerText.slice(0, 2000)));
                    setTimeout(look, 20);
                }};
                look();
            }})"
        );
        self.evaluate(&waiting)
    }

    /// Clicks the center of the element that an expression returns, once it exists.
    pub fn click(&mut self, expression: &str) {
        // Only when the element is on top and its position is stable: during a layout the click would hit another
        // element.
        let place = self.wait(&format!(
            "(() => {{ const element = {expression}; if (!element) return null;
                element.scrollIntoView({{block: 'nearest'}});
                const box = element.getBoundingClientRect();
                const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
                const rests = window.restingPlace === `${{x}} ${{y}}`;
                window.restingPlace = `${{x}} ${{y}}`;
                return rests && box.width && element.contains(document.elementFromPoint(x, y)) && [x, y]; }})()"
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1});
            self.send("Input.dispatchMouseEvent", event);
        }
    }

    /// Presses a key by its name, such as `j` or `Enter`.
    pub fn press(&mut self, key: &str) {
        let mut event = json!({"type": "keyDown", "key": key});
        if key.chars().count() == 1 {
            event["text"] = json!(key);
        }
        self.send("Input.dispatchKeyEvent", event);
        self.send(
            "Input.dispatchKeyEvent",
            json!({"type": "keyUp", "key": key}),
        );
    }

    /// Types a text into the focused element.
    pub fn write(&mut self, text: &str) {
        self.send("Input.insertText", json!({ "text": text }));
    }

    /// The page as a PNG.
    ///
    /// # Panics
    ///
    /// Panics if the browser returns no image.
    pub fn screenshot(&mut self) -> Vec<u8> {
        let shot = self.send("Page.captureScreenshot", json!({"format": "png"}));
        let data = shot["data"].as_str().expect("a picture");
        let data = base64::engine::general_purpose::STANDARD.decode(data);
        data.expect("it is base64")
    }

    /// The errors of the page so far.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}

fn installed() -> Option<String> {
    let path = std::env::var_os("PATH")?;
    let mut names = NAMES.iter();
    names.find_map(|name| {
        let mut folders = std::env::split_paths(&path);
        let found = folders.find(|folder| folder.join(name).is_file())?;
        Some(found.join(name).display().to_string())
    })
}
