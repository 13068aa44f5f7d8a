//! A Redis master with a replica and three Sentinels.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::sleep;

use super::port::local_hosts;
use super::{Certificates, Processes, RedisServer, ServerCommand, ServerProcess, free_port};
use crate::failure::{Failure, Outcome, ensure};
use crate::namespace::Server;
use crate::storage::Storage;

/// The name of the master.
pub const MASTER: &str = "locks";

/// A Redis master, a replica, and three Sentinels that promote the replica when the master has not
/// replied for some time.
#[derive(Debug)]
pub struct SentinelGroup {
    servers: [RedisServer; 2],
    sentinels: Vec<Sentinel>,
}

#[derive(Debug)]
struct Sentinel {
    process: ServerProcess,
    port: u16,
    secure_port: Option<u16>,
}

impl SentinelGroup {
    /// Starts them below this program itself, whose `main` calls
    /// [`guardian::serve`](super::guardian::serve) first. `words` is further configuration of the servers; the
    /// Sentinels promote the replica when the master has not replied for `down_after`.
    ///
    /// # Errors
    /// - [`Failure`] if they cannot be started.
    pub async fn start(words: &[String], down_after: Duration) -> Outcome<Self> {
        Self::start_with(words, down_after, None).await
    }

    async fn start_with(
        words: &[String],
        down_after: Duration,
        certificates: Option<&Certificates>,
    ) -> Outcome<Self> {
        let guard = std::env::current_exe()?;
        let secure = || -> Outcome<_> {
            let Some(certificates) = certificates else {
                return Ok((None, Vec::new()));
            };
            let port = free_port()?;
            let words = certificates.of_redis(port).into_iter();
            let words = words.flat_map(|[name, value]| [format!("--{name}"), value]);
            Ok((Some(port), words.collect()))
        };
        let (port, tls) = secure()?;
        let master = RedisServer::start(&guard, words.iter().chain(&tls)).await?;
        let port = port.unwrap_or(master.port());
        master.has_lost_nothing().await?;
        let of_replica = [
            "--replicaof",
            &format!("127.0.0.1 {port}"),
            "--repl-diskless-sync-delay",
            "0",
        ]
        .map(str::to_owned);
        let (_, tls) = secure()?;
        let words = words.iter().chain(&of_replica).chain(&tls);
        let replica = RedisServer::start(&guard, words).await?;
        let mut sentinels = Vec::new();
        for _ in 0..3 {
            sentinels.push(Sentinel::start(&guard, port, down_after, certificates)?);
        }
        let group = Self {
            servers: [master, replica],
            sentinels,
        };
        group.ready().await?;
        Ok(group)
    }

    /// Starts servers that forget everything when they end, and Sentinels that wait for half a second.
    ///
    /// # Errors
    /// - [`Failure`] if they cannot be started.
    pub async fn forgetful() -> Outcome<Self> {
        Self::forgetful_with(None).await
    }

    /// Starts the same with TLS, which clients, Sentinels and replicas use.
    ///
    /// # Errors
    /// - [`Failure`] if they cannot be started.
    pub async fn secure(certificates: &Certificates) -> Outcome<Self> {
        Self::forgetful_with(Some(certificates)).await
    }

    async fn forgetful_with(certificates: Option<&Certificates>) -> Outcome<Self> {
        let words = ["--appendonly", "no"].map(str::to_owned);
        Self::start_with(&words, Duration::from_millis(500), certificates).await
    }

    /// Its address with TLS.
    #[must_use]
    pub fn secure_url(&self) -> String {
        let hosts = local_hosts(self.sentinels.iter().filter_map(|it| it.secure_port));
        format!("rediss+sentinel://{hosts}/{MASTER}")
    }

    /// The ports of the Sentinels.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.sentinels.iter().map(|it| it.port).collect()
    }

    /// Its address as the store reads it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis+sentinel://{}/{MASTER}", self.hosts())
    }

    /// The hosts in its URL.
    #[must_use]
    pub fn hosts(&self) -> String {
        local_hosts(self.ports())
    }

    /// The server that is the master at the start, and the one that is its replica.
    #[must_use]
    pub const fn servers(&self) -> &[RedisServer; 2] {
        &self.servers
    }

    /// The processes of the Sentinels, to be killed or frozen.
    #[must_use]
    pub fn sentinels(&self) -> Vec<&ServerProcess> {
        self.sentinels.iter().map(|it| &it.process).collect()
    }

    /// Asks one of the Sentinels.
    ///
    /// # Errors
    /// - [`Failure`] if it does not answer, or with an error.
    ///
    /// # Panics
    /// If there is no such Sentinel.
    pub async fn ask(&self, sentinel: usize, words: &[&str]) -> Outcome<Vec<String>> {
        RedisServer::ask_at(self.sentinels[sentinel].port, words).await
    }

    /// Waits until all Sentinels know each other and the replica.
    ///
    /// # Errors
    /// - [`Failure`] with the end of a log if that takes too long.
    pub async fn ready(&self) -> Outcome {
        for server in &self.servers {
            Processes::ready(server).await?;
        }
        for Sentinel { process, port, .. } in &self.sentinels {
            let probe = || async {
                let quorum = ["SENTINEL", "CKQUORUM", MASTER];
                let quorum = RedisServer::ask_at(*port, &quorum).await?.join(" ");
                ensure(quorum.starts_with("OK 3 usable"), quorum)?;
                let state = RedisServer::ask_at(*port, &["SENTINEL", "MASTER", MASTER]).await?;
                let field = |name: &str| {
                    let mut pairs = state.chunks_exact(2);
                    let pair = pairs.find(|pair| pair[0] == name);
                    pair.map(|pair| pair[1].clone())
                };
                let replicas = field("num-slaves");
                ensure(
                    replicas.as_deref() == Some("1"),
                    format!("{replicas:?} replicas"),
                )?;
                let flags = field("flags");
                ensure(flags.as_deref() == Some("master"), format!("{flags:?}"))
            };
            process.ready(probe).await?;
        }
        Ok(())
    }

    /// The present master and its replica.
    ///
    /// # Errors
    /// - [`Failure`] if there is no such pair.
    pub async fn roles(&self) -> Outcome<[&RedisServer; 2]> {
        let [one, other] = &self.servers;
        match (is_master(one).await?, is_master(other).await?) {
            (true, false) => Ok([one, other]),
            (false, true) => Ok([other, one]),
            _ => Err(Failure::new("there is not one master")),
        }
    }

    /// Freezes the replica. What the master does from now on is lost if the replica is promoted: without its
    /// connection, nothing of it waits there.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be done.
    pub async fn freeze_replica(&self) -> Outcome {
        self.replicates().await?;
        let [master, replica] = self.roles().await?;
        replica.process().stop()?;
        let kill = ["CLIENT", "KILL", "TYPE", "replica"];
        master.ask(&kill).await.map(drop)
    }

    /// Kills the master, and lets the frozen replica run on, to be promoted.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be done.
    pub fn fail_over(&self) -> Outcome {
        let [master, replica] = &self.servers;
        master.process().kill();
        replica.process().resume()
    }

    /// Promotes the replica without the last writes, and waits until the former master is its replica.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be done.
    pub async fn lose_writes_and_fail_over(&self) -> Outcome {
        let [master, replica] = self.roles().await?;
        self.freeze_replica().await?;
        sleep(Duration::from_millis(300)).await;
        master.process().kill();
        replica.process().resume()?;
        let promoted = || async { ensure(is_master(replica).await?, "it is not promoted") };
        replica.process().ready(promoted).await?;
        master.process().restart()?;
        Processes::ready(master).await?;
        self.replicates().await
    }

    /// Lets the Sentinels make a planned failover, and waits until the former master is the replica.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be done.
    pub async fn fail_over_as_planned(&self) -> Outcome {
        let [master, replica] = self.roles().await?;
        // They refuse while they do not know the replica well enough.
        let begun = || self.ask(0, &["SENTINEL", "FAILOVER", MASTER]);
        self.sentinels[0]
            .process
            .ready(|| async { begun().await.map(drop) })
            .await?;
        let demoted = || async { ensure(!is_master(master).await?, "it is still a master") };
        master.process().ready(demoted).await?;
        let promoted = || async { ensure(is_master(replica).await?, "it is not promoted") };
        replica.process().ready(promoted).await?;
        self.replicates().await
    }

    /// Waits until one of the servers is the replica of the other.
    ///
    /// # Errors
    /// - [`Failure`] if none is.
    pub async fn replicates(&self) -> Outcome {
        let follows = || async {
            let [_, replica] = self.roles().await?;
            let state = replica.ask(&["INFO", "replication"]).await?.concat();
            let up = state.contains("master_link_status:up");
            ensure(up, "the replica does not follow")
        };
        self.servers[0].process().ready(follows).await
    }
}

async fn is_master(server: &RedisServer) -> Outcome<bool> {
    let state = server.ask(&["INFO", "replication"]).await?.concat();
    Ok(state.contains("role:master"))
}

impl Sentinel {
    fn start(
        guard: &Path,
        master: u16,
        down_after: Duration,
        certificates: Option<&Certificates>,
    ) -> Outcome<Self> {
        let (port, data) = (free_port()?, Storage::Memory.directory()?);
        let secure_port = certificates.map(|_| free_port()).transpose()?;
        let mut lines = vec![
            format!("port {port}"),
            "bind 127.0.0.1".to_owned(),
            format!("sentinel monitor {MASTER} 127.0.0.1 {master} 2"),
            format!(
                "sentinel down-after-milliseconds {MASTER} {}",
                down_after.as_millis()
            ),
            format!("sentinel failover-timeout {MASTER} 3000\n"),
        ];
        if let (Some(certificates), Some(port)) = (certificates, secure_port) {
            let options = certificates.of_redis(port).into_iter();
            lines.splice(0..0, options.map(|option| option.join(" ")));
        }
        std::fs::write(data.path().join("sentinel.conf"), lines.join("\n"))?;
        let command = ServerCommand::new(guard, RedisServer::PROGRAM);
        let command = command.args(["sentinel.conf", "--sentinel"]).data(data);
        let process = command.start()?;
        Ok(Self {
            process,
            port,
            secure_port,
        })
    }
}

/// The Sentinels go first and come back last, so that they do not see the servers away.
#[async_trait]
impl Server for SentinelGroup {
    async fn restart(&self) -> Outcome {
        self.sentinels().into_iter().for_each(ServerProcess::kill);
        let servers = || self.servers.iter().map(RedisServer::process);
        servers().for_each(ServerProcess::kill);
        servers().try_for_each(ServerProcess::restart)?;
        for server in &self.servers {
            Processes::ready(server).await?;
        }
        self.servers[0].has_lost_nothing().await?;
        self.sentinels()
            .into_iter()
            .try_for_each(ServerProcess::restart)?;
        self.ready().await
    }

    fn pids(&self) -> Vec<u32> {
        let servers = self.servers.iter().map(RedisServer::process);
        let all = servers.chain(self.sentinels());
        all.filter_map(ServerProcess::pid).collect()
    }

    fn freeze(&self) -> Outcome {
        let servers = self.servers.iter().map(RedisServer::process);
        let mut all = self.sentinels().into_iter().chain(servers);
        all.try_for_each(ServerProcess::stop)
    }

    fn thaw(&self) -> Outcome {
        let servers = self.servers.iter().map(RedisServer::process);
        let mut all = servers.chain(self.sentinels());
        all.try_for_each(ServerProcess::resume)
    }
}
