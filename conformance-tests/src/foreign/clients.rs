//! Locks of other libraries, each in a small program of its own in Java, Python or Go.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use super::{HOW, Peer, directory, is_built_from, java, missing};
use crate::failure::Outcome;
use crate::servers::{
    EtcdCluster, MASTER, RedisCluster, RedisServer, RedlockServers, SentinelGroup,
};

/// A program with a foreign client.
struct Program {
    /// Below the directory of foreign programs.
    directory: &'static str,
    /// What it needs of the system.
    needs: Option<&'static str>,
    /// The files that it was built from. Copies of them lie beside the program.
    sources: &'static [(&'static str, &'static str)],
    /// What to say if it is not there.
    absent: &'static str,
}

impl Program {
    fn directory(&self) -> PathBuf {
        directory().join(self.directory)
    }

    fn missing(&self) -> Option<String> {
        let built = is_built_from(&self.directory(), self.sources);
        let absent = (!built).then(|| format!("{}; {HOW}", self.absent));
        self.needs.and_then(missing).or(absent)
    }

    fn java(&self) -> Command {
        java(&self.directory())
    }

    fn python(&self, script: &str) -> Command {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut python = Command::new("python3");
        python
            .arg(here.join(script))
            .env("PYTHONPATH", self.directory())
            .env("PYTHONDONTWRITEBYTECODE", "1");
        python
    }

    fn go(&self) -> Command {
        Command::new(self.directory().join("peer"))
    }
}

const CURATOR: Program = Program {
    directory: "curator",
    needs: Some("java"),
    sources: &[
        ("pom.xml", include_str!("../../interop/curator/pom.xml")),
        (
            "Peer.java",
            include_str!("../../interop/curator/src/Peer.java"),
        ),
    ],
    absent: "the Java program with Curator is not built",
};
const REDISSON: Program = Program {
    directory: "redisson",
    needs: Some("java"),
    sources: &[
        ("pom.xml", include_str!("../../interop/redisson/pom.xml")),
        (
            "Peer.java",
            include_str!("../../interop/redisson/src/Peer.java"),
        ),
    ],
    absent: "the Java program with Redisson is not built",
};
const JETCD: Program = Program {
    directory: "jetcd",
    needs: Some("java"),
    sources: &[
        ("pom.xml", include_str!("../../interop/jetcd/pom.xml")),
        (
            "Peer.java",
            include_str!("../../interop/jetcd/src/Peer.java"),
        ),
    ],
    absent: "the Java program with jetcd is not built",
};
const KAZOO: Program = Program {
    directory: "kazoo",
    needs: Some("python3"),
    sources: &[(
        "requirements.txt",
        include_str!("../../interop/kazoo/requirements.txt"),
    )],
    absent: "kazoo is not installed",
};
const GO_ZK: Program = Program {
    directory: "gozk",
    needs: None,
    sources: &[
        ("main.go", include_str!("../../interop/gozk/main.go")),
        ("go.mod", include_str!("../../interop/gozk/go.mod")),
        ("go.sum", include_str!("../../interop/gozk/go.sum")),
    ],
    absent: "the program with go-zookeeper is not built (it needs Go)",
};
const GO_ETCD: Program = Program {
    directory: "etcd-go",
    needs: None,
    sources: &[
        ("go.sum", include_str!("../../interop/etcd_go/go.sum")),
        ("main.go", include_str!("../../interop/etcd_go/main.go")),
    ],
    absent: "the Go program with etcd's client is not built",
};
const REDIS_PY: Program = Program {
    directory: "redis-py",
    needs: Some("python3"),
    sources: &[(
        "requirements.txt",
        include_str!("../../interop/redis_py/requirements.txt"),
    )],
    absent: "redis-py is not installed",
};

/// The `InterProcessMutex` of Curator.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Curator;

impl Curator {
    /// Why it cannot be used here.
    #[must_use]
    pub fn missing() -> Option<String> {
        CURATOR.missing()
    }

    /// Starts a client of the server on a port of this machine. Its session ends `session` after its
    /// death.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if it does not start.
    pub async fn start(port: u16, session: Duration) -> Outcome<Peer> {
        let arguments = [format!("127.0.0.1:{port}"), session.as_millis().to_string()];
        Peer::start(CURATOR.java().args(arguments)).await
    }
}

/// The lock of Redisson.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Redisson;

impl Redisson {
    /// Why it cannot be used here.
    #[must_use]
    pub fn missing() -> Option<String> {
        REDISSON.missing()
    }

    /// Starts a client of `server` that renews its locks without a lease. They end `watchdog` after its
    /// death.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if it does not start.
    pub async fn start(server: &RedisServer, watchdog: Duration) -> Outcome<Peer> {
        Self::start_at(server.url(), watchdog).await
    }

    /// Starts the same in a cluster.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if it does not start.
    pub async fn start_in(cluster: &RedisCluster, watchdog: Duration) -> Outcome<Peer> {
        let urls: Vec<String> = cluster.nodes().iter().map(RedisServer::url).collect();
        Self::start_at(urls.join(","), watchdog).await
    }

    /// Starts one of several servers that know nothing of each other.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if it does not start.
    pub async fn start_with_all(servers: &RedlockServers, watchdog: Duration) -> Outcome<Peer> {
        let urls: Vec<String> = servers.nodes().iter().map(RedisServer::url).collect();
        Self::start_at(urls.join("+"), watchdog).await
    }

    /// Starts one that asks Sentinels for the master.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if it does not start.
    pub async fn start_behind(group: &SentinelGroup, watchdog: Duration) -> Outcome<Peer> {
        let sentinels = group.ports().into_iter();
        let urls: Vec<_> = sentinels
            .map(|it| format!("redis://127.0.0.1:{it}"))
            .collect();
        Self::start_at(format!("{MASTER}@{}", urls.join(",")), watchdog).await
    }

    async fn start_at(addresses: String, watchdog: Duration) -> Outcome<Peer> {
        let arguments = [addresses, watchdog.as_millis().to_string()];
        Peer::start(REDISSON.java().args(arguments)).await
    }
}

/// The lock of jetcd.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Jetcd;

impl Jetcd {
    /// Why it cannot be used here.
    #[must_use]
    pub fn missing() -> Option<String> {
        JETCD.missing()
    }

    /// Starts a client of the cluster's first member.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if it does not start.
    pub async fn start(cluster: &EtcdCluster) -> Outcome<Peer> {
        let first = format!("http://127.0.0.1:{}", cluster.ports()[0]);
        Peer::start(JETCD.java().arg(first)).await
    }
}

/// The mutex of etcd's own client in Go.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct GoEtcd;

impl GoEtcd {
    /// Why it cannot be used here.
    #[must_use]
    pub fn missing() -> Option<String> {
        GO_ETCD.missing()
    }

    /// Starts a client of the cluster's first member.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if it does not start.
    pub async fn start(cluster: &EtcdCluster) -> Outcome<Peer> {
        let first = format!("127.0.0.1:{}", cluster.ports()[0]);
        Peer::start(GO_ETCD.go().arg(first)).await
    }
}

/// The lock of kazoo.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Kazoo;

impl Kazoo {
    /// Why it cannot be used here.
    #[must_use]
    pub fn missing() -> Option<String> {
        KAZOO.missing()
    }

    /// Starts a client of the server on a port of this machine. Its locks respect its own nodes, and those
    /// with one of `patterns` before the number.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if it does not start.
    pub async fn start(port: u16, patterns: &[&str]) -> Outcome<Peer> {
        let arguments = [format!("127.0.0.1:{port}"), patterns.join(",")];
        let mut python = KAZOO.python("interop/kazoo/peer.py");
        Peer::start(python.args(arguments)).await
    }
}

/// The lock of go-zookeeper.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct GoZk;

impl GoZk {
    /// Why it cannot be used here.
    #[must_use]
    pub fn missing() -> Option<String> {
        GO_ZK.missing()
    }

    /// Starts a client of the server on a port of this machine.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if it does not start.
    pub async fn start(port: u16) -> Outcome<Peer> {
        Peer::start(GO_ZK.go().arg(format!("127.0.0.1:{port}"))).await
    }
}

/// The lock of redis-py.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RedisPy;

impl RedisPy {
    /// Why it cannot be used here.
    #[must_use]
    pub fn missing() -> Option<String> {
        REDIS_PY.missing()
    }

    /// Starts a client of `server`.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if it does not start.
    pub async fn start(server: &RedisServer) -> Outcome<Peer> {
        let mut python = REDIS_PY.python("interop/redis_py/peer.py");
        Peer::start(python.args(["127.0.0.1", &server.port().to_string()])).await
    }
}
