//! The servers, and clients of them.

use std::sync::Arc;
use std::time::Duration;

use conformance_tests::servers::{ZkCommand, ZkServer};
use conformance_tests::task::until;
use conformance_tests::{Failure, Outcome};
use lockkit_core::{ClientId, Lease, Lock, LockClient};
use lockkit_zk::{ZkStore, ZkStoreBuilder};
use tokio::sync::OnceCell;
use zookeeper_client::{Client, Error};

/// The session of the tests in which one ends.
pub(crate) const TTL: Duration = Duration::from_secs(3);
/// The session of those in which none may end.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// The time that a busy machine or a new connection adds.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// One server for all tests that neither stop nor configure it. A virtual machine is dear.
pub(crate) async fn shared() -> Outcome<&'static ZkServer> {
    static SERVER: OnceCell<ZkServer> = OnceCell::const_new();
    SERVER
        .get_or_try_init(async || ZkServer::start(&ZkCommand::system()).await)
        .await
}

/// A part of the tree that no other test uses, and a plain client of the server.
#[derive(Debug)]
pub(crate) struct Plot {
    pub(crate) root: String,
    pub(crate) bare: Client,
    pub(crate) port: u16,
}

impl Plot {
    pub(crate) async fn new() -> Outcome<Self> {
        Self::on(shared().await?).await
    }

    pub(crate) async fn on(server: &ZkServer) -> Outcome<Self> {
        Ok(Self {
            root: format!("/plot-{}", ClientId::random()),
            bare: server.client().await?,
            port: server.port(),
        })
    }

    pub(crate) fn builder(&self) -> ZkStoreBuilder {
        self.builder_at(self.port)
    }

    /// As through a proxy.
    pub(crate) fn builder_at(&self, port: u16) -> ZkStoreBuilder {
        ZkStore::builder()
            .host("127.0.0.1", port)
            .root(self.root.as_str())
            .session(TTL)
    }

    pub(crate) async fn lock(&self) -> Outcome<Lock> {
        Ok(client(self.builder()).await?.lock("jobs")?)
    }

    /// The node of the lock.
    pub(crate) fn dir(&self) -> String {
        format!("{}/jobs", self.root)
    }

    /// The nodes in the queue, in their order.
    pub(crate) async fn queue(&self) -> Outcome<Vec<String>> {
        self.bare.sync("/").await?;
        match self.bare.list_children(&self.dir()).await {
            Ok(mut children) => {
                children.sort_by_key(|child| child[child.len() - 10..].to_owned());
                Ok(children)
            }
            Err(Error::NoNode) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn queued(&self, count: usize) -> Outcome {
        let there = async || Ok(self.queue().await?.len() == count);
        until(&format!("{count} stand in the queue"), there).await
    }

    /// Deletes the node at a place of the queue.
    pub(crate) async fn delete(&self, place: usize) -> Outcome {
        let queue = self.queue().await?;
        let node = queue
            .get(place)
            .ok_or_else(|| Failure::new("no node is there"))?;
        Ok(self
            .bare
            .delete(&format!("{}/{node}", self.dir()), None)
            .await?)
    }
}

pub(crate) async fn client(builder: ZkStoreBuilder) -> Outcome<LockClient> {
    let store = builder.connect().await?;
    let ttl = lockkit_core::DistributedLock::capabilities(&store).max_ttl;
    Ok(client_of(Arc::new(store), ttl)?)
}

pub(crate) fn client_of(store: Arc<ZkStore>, ttl: Duration) -> lockkit_core::Result<LockClient> {
    LockClient::builder_arc(store)
        .lease(Lease::renewed(ttl))
        .build()
}
