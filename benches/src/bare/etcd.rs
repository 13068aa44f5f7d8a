//! A transaction that puts a key if it is not there, and `delete`; a watch for turns.

use std::any::Any;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, DeleteOptions, EventType, PutOptions, Txn, TxnOp,
    WatchOptions,
};
use lockkit::url::StoreUrl;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Bare, Contender, Fact, Words};
use crate::built_in;
use crate::counter::{self, Counter};
use crate::failure::{Failure, Outcome};
use crate::turns::Taken;

/// As many keys in one transaction: what a server takes by default.
const CHUNK: usize = 128;

pub(super) struct Cluster {
    client: Client,
    /// Before the keys of the lock store.
    root: String,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

impl Cluster {
    pub(super) async fn open(url: &StoreUrl) -> Outcome<Self> {
        if url.scheme() == "etcds" {
            return Err(Failure::new("the bare operations are not sent over TLS"));
        }
        let hosts = url.hosts().iter().map(|host| {
            let port = host.port().unwrap_or(2379);
            format!("http://{}:{port}", host.name())
        });
        let hosts: Vec<String> = hosts.collect();
        let mut options = ConnectOptions::new();
        if let (Some(user), Some(password)) = (url.user(), url.password()) {
            options = options.with_user(user, password);
        }
        let client = Client::connect(hosts, Some(options)).await?;
        let root = url.path().trim_matches('/').to_owned();
        Ok(Self { client, root })
    }

    /// Takes the key and returns `None`; or returns the revision at which it is already taken.
    async fn tried(&self, name: &str, lease: Option<i64>) -> Outcome<Option<i64>> {
        let options = lease.map(|lease| PutOptions::new().with_lease(lease));
        let put = Txn::new()
            .when([Compare::create_revision(name, CompareOp::Equal, 0)])
            .and_then([TxnOp::put(name, "bare", options)]);
        let answer = self.client.clone().txn(put).await?;
        let revision = answer.header().map_or(0, |header| header.revision());
        Ok((!answer.succeeded()).then_some(revision))
    }

    async fn freed(&self, name: &str) -> Outcome {
        self.client.clone().delete(name, None).await?;
        Ok(())
    }

    /// Waits for the deletion that comes after the revision at which it was seen.
    async fn gone(&self, name: &str, since: i64) -> Outcome {
        let options = WatchOptions::new().with_start_revision(since + 1);
        let mut watch = self.client.clone().watch(name, Some(options)).await?;
        while let Some(answer) = watch.message().await? {
            let mut events = answer.events().iter();
            if events.any(|event| event.event_type() == EventType::Delete) {
                return Ok(());
            }
        }
        Err(Failure::new("the watch ended"))
    }

    async fn taken(&self, name: &str) -> Outcome {
        while let Some(revision) = self.tried(name, None).await? {
            self.gone(name, revision).await?;
        }
        Ok(())
    }

    /// A lease, and the task that keeps it.
    async fn lease(&self, ttl: Duration) -> Outcome<(i64, JoinSet<Outcome>)> {
        let mut client = self.client.clone();
        let seconds = i64::try_from(ttl.as_secs().max(1))?;
        let lease = client.lease_grant(seconds, None).await?.id();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let (mut keeper, mut answers) = client.lease_keep_alive(lease).await?;
            loop {
                keeper.keep_alive().await?;
                answers.message().await?;
                sleep(ttl / 3).await;
            }
        });
        Ok((lease, task))
    }
}

#[async_trait]
impl Bare for Cluster {
    fn words(&self) -> Words {
        Words {
            cycle: "put if absent + delete",
            turn: "put if absent, a watch for the deletion, delete",
            recovery: "a key whose lease ends; a watch for its deletion",
            hold: "keys of one lease, and its keep-alive",
        }
    }

    async fn facts(&self) -> Outcome<Vec<Fact>> {
        let status = self.client.clone().status().await?;
        let members = self.client.clone().member_list().await?;
        Ok(vec![
            ("server".into(), format!("etcd {}", status.version())),
            built_in::ETCD.as_client(),
            ("members".into(), members.members().len().to_string()),
            (
                "durability".into(),
                "fsync of each write, unless it was started without".into(),
            ),
        ])
    }

    async fn cycle(&self, name: &str) -> Outcome {
        self.tried(name, None).await?;
        self.freed(name).await
    }

    async fn contender(&self, name: &str, _number: usize) -> Outcome<Box<dyn Contender>> {
        let (client, root) = (self.client.clone(), self.root.clone());
        let name = name.to_owned();
        Ok(Box::new(Turn {
            cluster: Self { client, root },
            name,
        }))
    }

    fn counter(&self, name: &str) -> Option<Box<dyn Counter>> {
        let client = self.client.clone();
        Some(Box::new(counter::etcd::Key::new(client, name)))
    }

    async fn take(&self, name: &str, ttl: Duration) -> Outcome<Box<dyn Any + Send + Sync>> {
        let (lease, task) = self.lease(ttl).await?;
        match self.tried(name, Some(lease)).await? {
            None => Ok(Box::new(task)),
            Some(_) => Err(Failure::new(format!("another program has the key {name}"))),
        }
    }

    async fn wait_for(&self, name: &str) -> Outcome {
        self.taken(name).await
    }

    async fn take_all(
        &self,
        names: &[String],
        ttl: Duration,
    ) -> Outcome<Vec<Box<dyn Any + Send + Sync>>> {
        let (lease, task) = self.lease(ttl).await?;
        for names in names.chunks(CHUNK) {
            let options = || Some(PutOptions::new().with_lease(lease));
            let puts: Vec<_> = names
                .iter()
                .map(|it| TxnOp::put(&**it, "bare", options()))
                .collect();
            self.client.clone().txn(Txn::new().and_then(puts)).await?;
        }
        Ok(vec![Box::new(task)])
    }

    /// Their lease is kept as a whole.
    async fn keep_all(&self, _names: &[String], _ttl: Duration) -> Outcome {
        Ok(())
    }

    async fn sweep(&self, prefix: &str) -> Outcome {
        let roots = [
            String::new(),
            format!("{}/", self.root),
            "lockkit/".to_owned(),
        ];
        for root in roots {
            let options = DeleteOptions::new().with_prefix();
            let key = format!("{root}{prefix}");
            self.client.clone().delete(key, Some(options)).await?;
        }
        Ok(())
    }
}

struct Turn {
    cluster: Cluster,
    name: String,
}

#[async_trait]
impl Contender for Turn {
    async fn turn(&mut self, taken: &mut Taken) -> Outcome {
        self.cluster.taken(&self.name).await?;
        taken.now();
        self.cluster.freed(&self.name).await
    }
}
