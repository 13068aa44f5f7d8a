//! A Redis server for the time of an example.

use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::sleep;

use crate::Outcome;

/// Where the server of an example is: at the URL that was given, or a child process that ends with
/// this and forgets everything.
#[derive(Debug)]
pub struct Server {
    url: String,
    _own: Option<(Child, TempDir)>,
}

impl Server {
    /// The server at `url`, or one of its own, for which `redis-server` must be installed.
    ///
    /// # Errors
    /// - If none can be started.
    pub async fn at_or_own(url: Option<String>) -> Outcome<Self> {
        match url {
            Some(url) => Ok(Self { url, _own: None }),
            None => Self::own().await,
        }
    }

    /// A server of its own.
    ///
    /// # Errors
    /// - If none can be started.
    pub async fn own() -> Outcome<Self> {
        let port = free_port()?;
        let directory = tempfile::tempdir()?;
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(directory.path())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("`redis-server` cannot be run: {error}"))?;
        let server = Self {
            url: format!("redis://127.0.0.1:{port}"),
            _own: Some((child, directory)),
        };
        for _ in 0..500 {
            if server.connect().await.is_ok() {
                return Ok(server);
            }
            // There is no event to wait for: servers do not tell when they listen.
            sleep(Duration::from_millis(10)).await;
        }
        Err("the server does not answer".into())
    }

    /// Its URL, which both lockkit and the client library read.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A connection for data: nothing of lockkit.
    ///
    /// # Errors
    /// - If the server cannot be reached.
    pub async fn connect(&self) -> Outcome<crate::cas::Db> {
        let client = redis::Client::open(self.url.as_str())?;
        Ok(client.get_multiplexed_async_connection().await?)
    }
}

/// Below the ports of outgoing connections.
fn free_port() -> Outcome<u16> {
    let start = fastrand::u16(..1000);
    let mut ports = (0..1000).map(|n| 26_000 + (start + n) % 1000);
    let free = ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.ok_or_else(|| "no port is free".into())
}
