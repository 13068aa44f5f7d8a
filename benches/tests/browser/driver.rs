//! A browser without a window, led by `chromedriver`: the `WebDriver` protocol, as much of it as is needed.

use std::path::Path;
use std::time::Duration;

use conformance_tests::servers::{ServerCommand, ServerProcess, free_port};
use conformance_tests::{Failure, Outcome};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Longer than a browser needs for anything here, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Browser {
    /// The driver and, in its process group, the browser.
    _process: ServerProcess,
    port: u16,
    session: String,
}

impl Browser {
    pub(crate) async fn start(profile: &Path) -> Outcome<Self> {
        let port = free_port()?;
        let guard = std::env::current_exe()?;
        let process = ServerCommand::new(guard, "chromedriver")
            .args([format!("--port={port}")])
            .start()?;
        for _ in 0..1000 {
            if TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
        let profile = format!("--user-data-dir={}", profile.display());
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--hide-scrollbars",
            "--window-size=1200,900",
            &profile,
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let made = ask(port, "POST", "/session", &wanted).await?;
        let session = made["sessionId"].as_str();
        let session = session.ok_or_else(|| Failure::new(format!("no session: {made}")))?;
        Ok(Self {
            _process: process,
            port,
            session: format!("/session/{session}"),
        })
    }

    async fn post(&self, path: &str, body: &Value) -> Outcome<Value> {
        ask(self.port, "POST", &format!("{}{path}", self.session), body).await
    }

    pub(crate) async fn open(&self, file: &Path) -> Outcome {
        let url = format!("file://{}", file.display());
        self.post("/url", &json!({ "url": url })).await.map(drop)
    }

    /// The result of a piece of JavaScript.
    pub(crate) async fn eval(&self, script: &str) -> Outcome<Value> {
        let body = json!({"script": format!("return {script}"), "args": []});
        self.post("/execute/sync", &body).await
    }

    /// Shows the page to a reader who prefers `scheme`, `light` or `dark`.
    pub(crate) async fn prefer(&self, scheme: &str) -> Outcome {
        let feature = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        let body = json!({"cmd": "Emulation.setEmulatedMedia", "params": {"features": feature}});
        self.post("/goog/cdp/execute", &body).await.map(drop)
    }

    /// The page in its whole length, as PNG in base64.
    pub(crate) async fn picture(&self) -> Outcome<String> {
        let params = json!({"format": "png", "captureBeyondViewport": true});
        let body = json!({"cmd": "Page.captureScreenshot", "params": params});
        let answer = self.post("/goog/cdp/execute", &body).await?;
        let data = answer["data"].as_str();
        Ok(data.ok_or_else(|| Failure::new("no picture"))?.to_owned())
    }

    /// What the page has written to the console, the browser's own complaints among it.
    pub(crate) async fn console(&self) -> Outcome<Vec<Value>> {
        let log = self.post("/se/log", &json!({"type": "browser"})).await?;
        Ok(log.as_array().cloned().unwrap_or_default())
    }

    /// Ends the browser, which else would be killed.
    pub(crate) async fn quit(self) -> Outcome {
        ask(self.port, "DELETE", &self.session, &json!({}))
            .await
            .map(drop)
    }
}

async fn ask(port: u16, verb: &str, path: &str, body: &Value) -> Outcome<Value> {
    timeout(PATIENCE, talk(port, verb, path, body)).await?
}

async fn talk(port: u16, verb: &str, path: &str, body: &Value) -> Outcome<Value> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).await?;
    let body = body.to_string();
    let head = format!(
        "{verb} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes()).await?;
    socket.write_all(body.as_bytes()).await?;
    let mut reader = BufReader::new(socket);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await?;
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(text) = line.strip_prefix("content-length:") {
            length = text.trim().parse()?;
        }
    }
    let mut answer = vec![0; length];
    reader.read_exact(&mut answer).await?;
    let mut answer: Value = serde_json::from_slice(&answer)?;
    let value = answer["value"].take();
    match value["error"].as_str() {
        Some(error) => {
            let message = value["message"].as_str().unwrap_or_default();
            Err(Failure::new(format!("{error}: {message}")))
        }
        None => Ok(value),
    }
}
