//! A Redis server for one test, as a child process on a free port.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use lockkit_redis::{RedisStore, RedisStoreBuilder};

pub(crate) struct Server {
    pub(crate) process: Child,
    pub(crate) port: u16,
    pub(crate) directory: PathBuf,
    options: Vec<String>,
}

/// Below the ports of outgoing connections, one of which could take it before the server does, also
/// while the server is restarted.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 2000).unwrap();
    (0..2000)
        .map(|_| 30_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 2000)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .unwrap()
}

impl Server {
    pub(crate) async fn start(options: &[&str]) -> Self {
        let port = free_port();
        let directory =
            std::env::temp_dir().join(format!("lockkit-redis-{port}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        let server = Self {
            process: spawn(port, &directory, &options),
            port,
            directory,
            options,
        };
        server.ready().await;
        server
    }

    /// A node of a cluster. By itself it takes a port for the other nodes that may be that of an outgoing
    /// connection.
    pub(crate) async fn start_node() -> Self {
        let others = free_port().to_string();
        Self::start(&["--cluster-enabled", "yes", "--cluster-port", &others]).await
    }

    async fn ready(&self) {
        for _ in 0..200 {
            if self.cli(&["PING"]) == "PONG" {
                return;
            }
            // There is no event to wait for: servers do not tell when they listen.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the server on port {} does not answer", self.port);
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(crate) async fn restart(&mut self) {
        self.kill();
        self.process = spawn(self.port, &self.directory, &self.options);
        self.ready().await;
    }

    pub(crate) fn cli(&self, words: &[&str]) -> String {
        let port = self.port.to_string();
        let output = Command::new("redis-cli")
            .args(["-p", &port])
            .args(words)
            .output()
            .unwrap();
        String::from_utf8(output.stdout)
            .unwrap()
            .trim_end()
            .to_owned()
    }

    /// How often a command was carried out.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        let stats = self.cli(&["INFO", "commandstats"]);
        let prefix = format!("cmdstat_{command}:calls=");
        let line = stats.lines().find_map(|line| line.strip_prefix(&prefix));
        line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self
            .cli(&["KEYS", "*"])
            .lines()
            .map(ToOwned::to_owned)
            .collect();
        keys.sort();
        keys
    }

    pub(crate) fn builder(&self) -> RedisStoreBuilder {
        RedisStore::builder().tcp("127.0.0.1", self.port)
    }

    pub(crate) async fn open(&self) -> RedisStore {
        self.builder().connect().await.unwrap()
    }
}

fn spawn(port: u16, directory: &PathBuf, options: &[String]) -> Child {
    Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--dir"])
        .arg(directory)
        .args(options)
        .stdout(Stdio::null())
        .spawn()
        .expect("these tests need `redis-server`: apt-get install redis-server")
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
        drop(fs::remove_dir_all(&self.directory));
    }
}
