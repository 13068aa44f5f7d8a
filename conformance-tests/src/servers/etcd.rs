//! etcd servers, alone or as a cluster, and requests to them that do not use the store under test.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Client, ConnectOptions};
use tokio::time::{Instant, sleep, timeout};

use super::{Processes, ServerCommand, ServerProcess, free_port};
use crate::failure::{Failure, Outcome};
use crate::storage::Storage;

/// A request of a test takes no longer than this.
const LIMIT: Duration = Duration::from_secs(5);

/// How to start a member: which program, with which options.
#[derive(Clone, Debug)]
pub struct EtcdCommand {
    program: PathBuf,
    options: Vec<String>,
    storage: Storage,
}

impl EtcdCommand {
    /// The system's server.
    #[must_use]
    pub fn system() -> Self {
        Self::of(EtcdCluster::PROGRAM)
    }

    /// A program that understands its options.
    #[must_use]
    pub fn of(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            options: Vec::new(),
            storage: Storage::default(),
        }
    }

    /// Adds options.
    #[must_use]
    pub fn options(mut self, options: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.extend(options.into_iter().map(Into::into));
        self
    }

    /// Where the data of its servers lie; otherwise [`Storage::Memory`].
    #[must_use]
    pub const fn storage(mut self, storage: Storage) -> Self {
        self.storage = storage;
        self
    }
}

/// An etcd cluster of one or more members on free ports of the loopback address.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<Member>,
}

/// A member of it.
#[derive(Debug)]
struct Member {
    process: ServerProcess,
    port: u16,
}

impl EtcdCluster {
    /// What the system calls the server.
    pub const PROGRAM: &'static str = "etcd";

    /// Starts `size` members below this program itself, whose `main` calls
    /// [`guardian::serve`](super::guardian::serve) first.
    ///
    /// # Errors
    /// - [`Failure`] if they cannot be started.
    pub async fn start(command: &EtcdCommand, size: usize) -> Outcome<Self> {
        let guard = std::env::current_exe()?;
        let mut ports = Vec::new();
        for _ in 0..size {
            ports.push((free_port()?, free_port()?));
        }
        let peer = |(number, (_, port)): (usize, &(u16, u16))| {
            format!("m{number}=http://127.0.0.1:{port}")
        };
        let peers: Vec<String> = ports.iter().enumerate().map(peer).collect();
        let mut members = Vec::new();
        for (number, (port, peer)) in ports.into_iter().enumerate() {
            let (client, peer) = (
                format!("http://127.0.0.1:{port}"),
                format!("http://127.0.0.1:{peer}"),
            );
            let name = format!("m{number}");
            let words = [
                ["--name", &name],
                ["--data-dir", "data"],
                ["--listen-client-urls", &client],
                ["--advertise-client-urls", &client],
                ["--listen-peer-urls", &peer],
                ["--initial-advertise-peer-urls", &peer],
                ["--initial-cluster", &peers.join(",")],
                // So that a leader that is gone is soon replaced.
                ["--heartbeat-interval", "50"],
                ["--election-timeout", "500"],
            ];
            let process = ServerCommand::new(&guard, &command.program)
                .args(words.into_iter().flatten())
                .args(&command.options)
                .storage(command.storage)
                .start()?;
            members.push(Member { process, port });
        }
        let cluster = Self { members };
        cluster.ready().await?;
        Ok(cluster)
    }

    /// Starts `size` members of the system's etcd.
    ///
    /// # Errors
    /// - [`Failure`] if they cannot be started.
    pub async fn of(size: usize) -> Outcome<Self> {
        Self::start(&EtcdCommand::system(), size).await
    }

    /// The ports of its members.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.members.iter().map(|member| member.port).collect()
    }

    /// Its members as a client in any language reads them: `127.0.0.1:2379,127.0.0.1:2380`.
    #[must_use]
    pub fn endpoints(&self) -> String {
        let endpoints = self.ports().into_iter();
        let endpoints: Vec<String> = endpoints.map(|port| format!("127.0.0.1:{port}")).collect();
        endpoints.join(",")
    }

    /// The processes of its members, to be frozen or killed.
    ///
    /// # Panics
    /// If the cluster has no such member.
    #[must_use]
    pub fn process(&self, member: usize) -> &ServerProcess {
        &self.members[member].process
    }

    /// The member that leads.
    ///
    /// # Errors
    /// - [`Failure`] if no member does.
    pub async fn leader(&self) -> Outcome<usize> {
        for _ in 0..500 {
            for (number, member) in self.members.iter().enumerate() {
                let asked = async {
                    let mut client = client(member.port).await?;
                    let status = client.status().await?;
                    let header = status.header().map_or(0, |header| header.member_id());
                    Ok::<_, etcd_client::Error>(status.leader() == header && header != 0)
                };
                let leads = timeout(Duration::from_secs(1), asked).await;
                if matches!(leads, Ok(Ok(true))) {
                    return Ok(number);
                }
            }
            sleep(Duration::from_millis(10)).await;
        }
        Err(Failure::new("no member leads"))
    }

    /// A plain client of the first member that answers, soon: while another leader is elected none does.
    ///
    /// # Errors
    /// - [`Failure`] if none answers.
    pub async fn client(&self) -> Outcome<Client> {
        let end = Instant::now() + LIMIT;
        loop {
            match self.first_client().await {
                Err(_) if Instant::now() < end => sleep(Duration::from_millis(20)).await,
                found => return found,
            }
        }
    }

    async fn first_client(&self) -> Outcome<Client> {
        let mut last = Failure::new("there are no members");
        for member in &self.members {
            let asked = async {
                let mut client = client(member.port).await?;
                client.get("ready", None).await?;
                Ok::<_, etcd_client::Error>(client)
            };
            match timeout(LIMIT, asked).await {
                Ok(Ok(client)) => return Ok(client),
                Ok(Err(error)) => last = Failure::from(error),
                Err(_) => last = Failure::new("no answer"),
            }
        }
        Err(last)
    }

    /// A client of the first member that authenticates as a user.
    ///
    /// # Errors
    /// - [`Failure`] if it is refused.
    pub async fn client_of(&self, user: &str, password: &str) -> Outcome<Client> {
        let options = ConnectOptions::new()
            .with_timeout(LIMIT)
            .with_user(user, password);
        let place = format!("127.0.0.1:{}", self.ports()[0]);
        Ok(Client::connect([place], Some(options)).await?)
    }
}

#[async_trait]
impl Processes for EtcdCluster {
    fn processes(&self) -> Vec<&ServerProcess> {
        self.members.iter().map(|member| &member.process).collect()
    }

    /// A member answers only when the cluster has a leader.
    async fn ready(&self) -> Outcome {
        for member in &self.members {
            member.process.ready(|| probe(member.port)).await?;
        }
        Ok(())
    }
}

async fn probe(port: u16) -> Result<(), etcd_client::Error> {
    let mut client = client(port).await?;
    client.get("ready", None).await.map(drop)
}

async fn client(port: u16) -> Result<Client, etcd_client::Error> {
    let options = ConnectOptions::new().with_timeout(LIMIT);
    Client::connect([format!("127.0.0.1:{port}")], Some(options)).await
}
