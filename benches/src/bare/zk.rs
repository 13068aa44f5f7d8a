//! An ephemeral node, made and deleted; a watch on it for turns.

use std::any::Any;
use std::time::Duration;

use async_trait::async_trait;
use lockkit::url::StoreUrl;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode, Error, EventType};

use super::{Bare, Contender, Fact, UNKNOWN, Words};
use crate::built_in;
use crate::counter::{self, Counter};
use crate::failure::{Failure, Outcome};
use crate::turns::Taken;

/// How many requests are on their way at the same time.
const AHEAD: usize = 256;

pub(super) struct Ensemble {
    client: Client,
    hosts: String,
    session: Duration,
}

impl std::fmt::Debug for Ensemble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ensemble").finish_non_exhaustive()
    }
}

impl Ensemble {
    pub(super) async fn open(url: &StoreUrl) -> Outcome<Self> {
        if url.scheme() == "zks" {
            return Err(Failure::new("the bare operations are not sent over TLS"));
        }
        let hosts = url.hosts().iter().map(|host| {
            let port = host.port().unwrap_or(2181);
            format!("{}:{port}", host.name())
        });
        let hosts = hosts.collect::<Vec<_>>().join(",");
        let session = url.options.clone().duration("ttl").ok().flatten();
        let session = session.unwrap_or(Duration::from_secs(30));
        let client = Self::connect(&hosts, session).await?;
        Ok(Self {
            client,
            hosts,
            session,
        })
    }

    async fn connect(hosts: &str, session: Duration) -> Outcome<Client> {
        let connector = Client::connector().with_session_timeout(session);
        Ok(connector.connect(hosts).await?)
    }

    /// What a server says of itself, where that is allowed.
    async fn told(&self) -> Option<String> {
        let first = self.hosts.split(',').next()?;
        let mut socket = TcpStream::connect(first).await.ok()?;
        socket.write_all(b"srvr").await.ok()?;
        let mut answer = String::new();
        let read = socket.read_to_string(&mut answer);
        timeout(Duration::from_secs(1), read).await.ok()?.ok()?;
        let line = answer
            .lines()
            .find_map(|line| line.strip_prefix("Zookeeper version: "))?;
        Some(line.split('-').next()?.to_owned())
    }
}

fn path(name: &str) -> String {
    format!("/{name}")
}

async fn made(client: &Client, path: &str) -> Outcome<bool> {
    let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    match client.create(path, b"bare", &options).await {
        Ok(_) => Ok(true),
        Err(Error::NodeExists) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Makes the node, after everybody else's.
async fn taken(client: &Client, path: &str) -> Outcome {
    while !made(client, path).await? {
        let (stat, watch) = client.check_and_watch_stat(path).await?;
        if stat.is_none() {
            continue;
        }
        let event = watch.changed().await;
        if event.event_type == EventType::Session {
            return Err(Failure::new("the session has ended"));
        }
    }
    Ok(())
}

#[async_trait]
impl Bare for Ensemble {
    fn words(&self) -> Words {
        Words {
            cycle: "create an ephemeral node + delete",
            turn: "create, a watch on the node that is there, delete",
            recovery: "an ephemeral node whose session ends; a watch on it",
            hold: "ephemeral nodes of one session",
        }
    }

    async fn facts(&self) -> Outcome<Vec<Fact>> {
        let version = self.told().await.unwrap_or_else(|| UNKNOWN.into());
        let timeout = self.client.session_timeout();
        Ok(vec![
            ("server".into(), format!("ZooKeeper {version}")),
            built_in::ZOOKEEPER.as_client(),
            ("session".into(), format!("{timeout:?}")),
            (
                "durability".into(),
                "fsync of each write, unless `forceSync=no`".into(),
            ),
        ])
    }

    async fn cycle(&self, name: &str) -> Outcome {
        let path = path(name);
        made(&self.client, &path).await?;
        Ok(self.client.delete(&path, None).await?)
    }

    async fn contender(&self, name: &str, _number: usize) -> Outcome<Box<dyn Contender>> {
        // Watches on one node of one session are one: each contender has its own.
        let client = Self::connect(&self.hosts, self.session).await?;
        Ok(Box::new(Turn {
            client,
            path: path(name),
        }))
    }

    fn counter(&self, name: &str) -> Option<Box<dyn Counter>> {
        let client = self.client.clone();
        Some(Box::new(counter::zk::Node::new(client, &path(name))))
    }

    async fn take(&self, name: &str, ttl: Duration) -> Outcome<Box<dyn Any + Send + Sync>> {
        let client = Self::connect(&self.hosts, ttl).await?;
        if made(&client, &path(name)).await? {
            return Ok(Box::new(client));
        }
        Err(Failure::new(format!("another program has the node {name}")))
    }

    async fn wait_for(&self, name: &str) -> Outcome {
        taken(&self.client, &path(name)).await
    }

    async fn take_all(
        &self,
        names: &[String],
        _ttl: Duration,
    ) -> Outcome<Vec<Box<dyn Any + Send + Sync>>> {
        let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        for names in names.chunks(AHEAD) {
            let paths: Vec<String> = names.iter().map(|name| path(name)).collect();
            let creates = paths
                .iter()
                .map(|path| self.client.create(path, b"bare", &options));
            // The requests are sent when they are made; only the responses are awaited.
            for create in creates.collect::<Vec<_>>() {
                create.await?;
            }
        }
        Ok(Vec::new())
    }

    /// The session keeps them.
    async fn keep_all(&self, _names: &[String], _ttl: Duration) -> Outcome {
        Ok(())
    }

    /// Nodes go with their sessions; the lock store's own parents are containers, which the server removes.
    /// Those of others are not.
    async fn sweep(&self, prefix: &str) -> Outcome {
        for name in self.client.list_children("/").await? {
            if name.starts_with(prefix) {
                match self.client.delete(&path(&name), None).await {
                    // Another program was faster, or a session has not ended yet.
                    Ok(()) | Err(Error::NoNode | Error::NotEmpty) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }
}

struct Turn {
    client: Client,
    path: String,
}

#[async_trait]
impl Contender for Turn {
    async fn turn(&mut self, turns: &mut Taken) -> Outcome {
        taken(&self.client, &self.path).await?;
        turns.now();
        Ok(self.client.delete(&self.path, None).await?)
    }
}
