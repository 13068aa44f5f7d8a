//! ZooKeeper servers, alone and in ensembles, and requests to them that do not use the store under test.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use zookeeper_client::Client;

use super::{Processes, ServerCommand, ServerProcess, free_port};
use crate::failure::{Failure, Outcome, ensure};
use crate::proxy::Proxy;
use crate::storage::Storage;

/// The jars of the system's package.
const JARS: [&str; 2] = [
    "/usr/share/java/zookeeper.jar",
    "/usr/share/java/slf4j-simple.jar",
];

/// Small and quick to start; every command of four letters is answered, empty containers go soon, and
/// a write is answered when the system has it, which survives a killed process.
const OPTIONS: &str = "-Xms32m -Xmx192m -Xss256k -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
    -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Djava.net.preferIPv4Stack=true \
    -Dzookeeper.admin.enableServer=false -Dzookeeper.4lw.commands.whitelist=* \
    -Dzookeeper.forceSync=no -Dzookeeper.extendedTypesEnabled=true \
    -Dznode.container.checkIntervalMs=500";

/// Short ticks, for short sessions. A follower that hears nothing of the leader gives up after
/// `syncLimit` of them.
const CONFIGURATION: &str = "tickTime=200\ninitLimit=100\nsyncLimit=25\n\
    clientPortAddress=127.0.0.1\nmaxClientCnxns=0\nminSessionTimeout=400\n\
    maxSessionTimeout=60000\npreAllocSize=4096\nautopurge.purgeInterval=0\n\
    standaloneEnabled=true\n";

/// One server on a free port of the loopback address.
#[derive(Debug)]
pub struct ZkServer {
    process: ServerProcess,
    port: u16,
}

/// How to start a server: which jars, which options and which configuration.
#[derive(Clone, Debug)]
pub struct ZkCommand {
    jars: String,
    options: Vec<String>,
    configuration: String,
    storage: Storage,
}

impl ZkCommand {
    /// The system's server.
    #[must_use]
    pub fn system() -> Self {
        Self::of(JARS.join(":"))
    }

    /// The server whose jars lie in a directory.
    #[must_use]
    pub fn in_directory(jars: &Path) -> Self {
        Self::of(jars.join("*").to_string_lossy().into_owned())
    }

    fn of(jars: String) -> Self {
        Self {
            jars,
            options: Vec::new(),
            configuration: CONFIGURATION.to_owned(),
            storage: Storage::default(),
        }
    }

    /// Adds a jar.
    #[must_use]
    pub fn jar(mut self, path: &str) -> Self {
        self.jars = format!("{}:{path}", self.jars);
        self
    }

    /// Adds an option of the Java machine.
    #[must_use]
    pub fn option(mut self, option: impl Into<String>) -> Self {
        self.options.push(option.into());
        self
    }

    /// Adds a line to the configuration.
    #[must_use]
    pub fn line(mut self, line: impl AsRef<str>) -> Self {
        // Writing to a string cannot fail.
        let _ = writeln!(self.configuration, "{}", line.as_ref());
        self
    }

    /// Where the data of its servers lie; otherwise [`Storage::Memory`].
    #[must_use]
    pub const fn storage(mut self, storage: Storage) -> Self {
        self.storage = storage;
        self
    }

    /// Starts it below `guard`; it need not be ready yet. `id` is its number in an ensemble.
    fn start(&self, guard: &Path, port: u16, id: Option<usize>) -> Outcome<ZkServer> {
        let data = self.storage.directory()?;
        let configuration = format!(
            "{}clientPort={port}\ndataDir={}\n",
            self.configuration,
            data.path().display()
        );
        let file = data.path().join("zoo.cfg");
        fs::write(&file, configuration)?;
        if let Some(id) = id {
            fs::write(data.path().join("myid"), id.to_string())?;
        }
        let process = ServerCommand::new(guard, "java")
            .args(OPTIONS.split_whitespace())
            .args(&self.options)
            .args(["-cp", &self.jars])
            .args(["org.apache.zookeeper.server.quorum.QuorumPeerMain"])
            .args([file])
            .data(data)
            .start()?;
        Ok(ZkServer { process, port })
    }
}

impl ZkServer {
    /// Why the system's server cannot be used here.
    #[must_use]
    pub fn missing() -> Option<String> {
        let jar = JARS.iter().find(|jar| !Path::new(jar).is_file());
        let jar = jar.map(|jar| format!("no `{jar}` here; `cargo x setup` brings it"));
        crate::foreign::missing("java").or(jar)
    }

    /// Starts one that stands alone, below this program itself, whose `main` calls
    /// [`guardian::serve`](super::guardian::serve) first.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be started.
    pub async fn start(command: &ZkCommand) -> Outcome<Self> {
        let server = command.start(&std::env::current_exe()?, free_port()?, None)?;
        server.ready().await?;
        Ok(server)
    }

    /// Its part: `standalone`, `leader`, `follower`; `None` while it serves no clients.
    pub async fn mode(&self) -> Option<String> {
        let answer = self.four_letters("srvr").await.ok()?;
        let mode = answer.lines().find_map(|line| line.strip_prefix("Mode: "));
        mode.map(str::to_owned)
    }

    /// Its answer to a command of four letters.
    ///
    /// # Errors
    /// - [`Failure`] if it does not answer within a second: one that has half begun accepts and is silent.
    pub async fn four_letters(&self, command: &str) -> Outcome<String> {
        let asked = async {
            let mut socket = TcpStream::connect(("127.0.0.1", self.port)).await?;
            socket.write_all(command.as_bytes()).await?;
            let mut answer = String::new();
            socket.read_to_string(&mut answer).await?;
            Ok(answer)
        };
        let silent = |_| Failure::new(format!("no answer to `{command}`"));
        timeout(Duration::from_secs(1), asked)
            .await
            .map_err(silent)?
    }

    /// A client of its own, with a session of ten seconds.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be reached.
    pub async fn client(&self) -> Outcome<Client> {
        let connector = Client::connector().with_session_timeout(Duration::from_secs(10));
        Ok(connector
            .connect(&format!("127.0.0.1:{}", self.port))
            .await?)
    }

    /// Its port for clients.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its process, to be frozen or killed.
    #[must_use]
    pub const fn process(&self) -> &ServerProcess {
        &self.process
    }
}

#[async_trait]
impl Processes for ZkServer {
    fn processes(&self) -> Vec<&ServerProcess> {
        vec![&self.process]
    }

    async fn ready(&self) -> Outcome {
        let probe = || async { ensure(self.mode().await.is_some(), "it serves no clients") };
        self.process.ready(probe).await
    }
}

/// Several servers that agree on everything.
#[derive(Debug)]
pub struct ZkEnsemble {
    members: Vec<Arc<ZkServer>>,
    /// The links from one member to another, by their places; empty without proxies.
    links: Vec<(usize, usize, Proxy)>,
}

impl ZkEnsemble {
    /// Starts three of them.
    ///
    /// # Errors
    /// - [`Failure`] if one cannot be started.
    pub async fn start(command: &ZkCommand) -> Outcome<Self> {
        Self::build(command, false).await
    }

    /// Starts three of them, with a proxy on each link from a follower to a leader.
    ///
    /// # Errors
    /// - [`Failure`] if one cannot be started.
    pub async fn with_links(command: &ZkCommand) -> Outcome<Self> {
        Self::build(command, true).await
    }

    async fn build(command: &ZkCommand, proxied: bool) -> Outcome<Self> {
        const SIZE: usize = 3;
        let guard = std::env::current_exe()?;
        let mut ports = Vec::new();
        for _ in 0..SIZE {
            ports.push([free_port()?, free_port()?, free_port()?]);
        }
        let mut links = Vec::new();
        let mut members = Vec::new();
        for me in 0..SIZE {
            let mut mine = command.clone();
            for (other, [_, quorum, election]) in ports.iter().enumerate() {
                let mut quorum = *quorum;
                if proxied && other != me {
                    let link = Proxy::start(([127, 0, 0, 1], quorum).into()).await?;
                    quorum = link.addr().port();
                    links.push((me, other, link));
                }
                mine = mine.line(format!(
                    "server.{}=127.0.0.1:{quorum}:{election}",
                    other + 1
                ));
            }
            let [client, ..] = ports[me];
            members.push(Arc::new(mine.start(&guard, client, Some(me + 1))?));
        }
        for member in &members {
            member.ready().await?;
        }
        Ok(Self { members, links })
    }

    /// Its members.
    #[must_use]
    pub fn members(&self) -> &[Arc<ZkServer>] {
        &self.members
    }

    /// The place of the leader.
    ///
    /// # Errors
    /// - [`Failure`] if none comes up.
    pub async fn leader(&self) -> Outcome<usize> {
        for _ in 0..600 {
            for (place, member) in self.members.iter().enumerate() {
                if member.mode().await.as_deref() == Some("leader") {
                    return Ok(place);
                }
            }
            sleep(Duration::from_millis(50)).await;
        }
        Err(Failure::new("the ensemble has no leader"))
    }

    /// The link on which a member follows another one as its leader.
    #[must_use]
    pub fn link(&self, from: usize, to: usize) -> Option<&Proxy> {
        let link = self.links.iter().find(|(a, b, _)| (*a, *b) == (from, to));
        link.map(|(_, _, link)| link)
    }

    /// The addresses of all members, as clients write them.
    #[must_use]
    pub fn hosts(&self) -> String {
        let host = |member: &Arc<ZkServer>| format!("127.0.0.1:{}", member.port());
        let hosts: Vec<String> = self.members.iter().map(host).collect();
        hosts.join(",")
    }
}
