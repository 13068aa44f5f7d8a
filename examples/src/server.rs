//! A Redis server for the time of an example.

use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use redis::IntoConnectionInfo as _;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::Outcome;

/// The server of an example: the one at a given URL, or a child process that ends with this value and
/// keeps no data.
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
        let port = free_port()?.local_addr()?.port();
        let directory = tempfile::tempdir()?;
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(directory.path())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("`redis-server` cannot be run: {error}"))?;
        Self::ready(port, child, directory).await
    }

    async fn ready(port: u16, child: Child, directory: TempDir) -> Outcome<Self> {
        let server = Self {
            url: format!("redis://127.0.0.1:{port}"),
            _own: Some((child, directory)),
        };
        // There is no event to wait for: the server does not report that it listens.
        let responds = async {
            while server.ping().await.is_err() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(60), responds).await?;
        Ok(server)
    }

    /// A proxy in front of it, which lets few commands pass; `nutcracker` must be installed.
    ///
    /// # Errors
    /// - If it cannot be started.
    pub async fn behind_nutcracker(&self) -> Outcome<Self> {
        // Both are kept until both are chosen, so that they differ.
        let kept = [free_port()?, free_port()?];
        let [port, statistics] = [kept[0].local_addr()?.port(), kept[1].local_addr()?.port()];
        drop(kept);
        let directory = tempfile::tempdir()?;
        let server = self.url.trim_start_matches("redis://");
        let pool = format!(
            "pool:\n  listen: 127.0.0.1:{port}\n  redis: true\n  hash: fnv1a_64\n  \
             distribution: ketama\n  servers:\n   - {server}:1\n"
        );
        let file = directory.path().join("pool.yml");
        std::fs::write(&file, pool)?;
        let child = Command::new("nutcracker")
            .arg("-c")
            .arg(&file)
            .arg("-o")
            .arg(directory.path().join("log"))
            .args(["-a", "127.0.0.1", "-s", &statistics.to_string()])
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("`nutcracker` cannot be run: {error}"))?;
        Self::ready(port, child, directory).await
    }

    /// Its URL, which both lockkit and the client library read.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    async fn ping(&self) -> Outcome {
        let mut db = self.connect().await?;
        Ok(redis::cmd("PING").exec_async(&mut db).await?)
    }

    /// A connection for data: nothing of lockkit.
    ///
    /// # Errors
    /// - If the server cannot be reached.
    pub async fn connect(&self) -> Outcome<crate::cas::Db> {
        let info = self.url.as_str().into_connection_info()?;
        // The library would send its name first, which makes a proxy close the connection.
        let settings = info.redis_settings().clone().set_skip_set_lib_name();
        let client = redis::Client::open(info.set_redis_settings(settings))?;
        Ok(client.get_multiplexed_async_connection().await?)
    }
}

/// Below the ports of outgoing connections.
fn free_port() -> Outcome<TcpListener> {
    let start = fastrand::u16(..1000);
    let mut ports = (0..1000).map(|n| 26_000 + (start + n) % 1000);
    let free = ports.find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok());
    free.ok_or_else(|| "no port is free".into())
}
