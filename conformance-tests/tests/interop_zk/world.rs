//! One server for all tests, and the waiters in a queue.

use std::time::Duration;

use conformance_tests::servers::{ZkCommand, ZkServer};
use conformance_tests::task::until;
use conformance_tests::{Failure, Outcome};
use lockkit_core::{ClientId, Election, Lease, Lock, LockClient, RwLock};
use lockkit_zk::{Dialect, Names, ZkStore};
use tokio::sync::OnceCell;
use zookeeper_client::{Client, Error};

/// A busy machine, another language.
pub(crate) const SOON: Duration = Duration::from_secs(10);
pub(crate) const SESSION: Duration = Duration::from_secs(6);
const NAME: &str = "orders/42";

async fn server() -> Outcome<&'static ZkServer> {
    static SERVER: OnceCell<ZkServer> = OnceCell::const_new();
    SERVER
        .get_or_try_init(async || ZkServer::start(&ZkCommand::system()).await)
        .await
}

/// A lock as both sides see it, in a part of the tree of its own.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) port: u16,
    root: String,
    bare: Client,
}

impl World {
    pub(crate) async fn new() -> Outcome<Self> {
        let server = server().await?;
        Ok(Self {
            port: server.port(),
            root: format!("/shared-{}", ClientId::random()),
            bare: server.client().await?,
        })
    }

    /// Where the other side finds the lock.
    pub(crate) fn path(&self) -> String {
        format!("{}/{NAME}", self.root)
    }

    pub(crate) async fn lock(&self, dialect: Dialect) -> Outcome<Lock> {
        Ok(self.client(dialect).await?.lock(NAME)?)
    }

    pub(crate) async fn rw_lock(&self, dialect: Dialect) -> Outcome<RwLock> {
        Ok(self.client(dialect).await?.rw_lock(NAME)?)
    }

    pub(crate) async fn election(&self) -> Outcome<Election> {
        Ok(self.client(Dialect::Curator).await?.election(NAME)?)
    }

    async fn client(&self, dialect: Dialect) -> Outcome<LockClient> {
        let store = ZkStore::builder()
            .host("127.0.0.1", self.port)
            .root(self.root.as_str())
            .names(Names::Raw)
            .dialect(dialect)
            .session(SESSION)
            .connect()
            .await?;
        let client = LockClient::builder(store).lease(Lease::renewed(SESSION));
        Ok(client.build()?)
    }

    pub(crate) async fn queued(&self, count: usize) -> Outcome {
        until(&format!("{count} wait in the queue"), async || {
            self.bare.sync("/").await?;
            match self.bare.list_children(&self.path()).await {
                Ok(children) => Ok(children.len() == count),
                Err(Error::NoNode) => Ok(count == 0),
                Err(error) => Err(Failure::from(error)),
            }
        })
        .await
    }
}
