//! One server for all tests, and the waiters in a queue.

use std::time::Duration;

use conformance_tests::foreign::Peer;
use conformance_tests::servers::{ZkCommand, ZkServer};
use conformance_tests::task::{acquire, until, within};
use conformance_tests::{Failure, Outcome, ensure};
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

    /// Two of theirs and three of ours, one behind the other, are served in that order. `wait`: how long theirs waits, as
    /// it is told.
    pub(crate) async fn serves_in_order(&self, theirs: &mut Peer, wait: &str) -> Outcome {
        let path = self.path();
        let (first, second) = (
            self.lock(Dialect::Curator).await?,
            self.lock(Dialect::Curator).await?,
        );
        let held = first.acquire().await?;
        theirs.send(&format!("a lock {path} {wait}")).await?;
        self.queued(2).await?;
        let early = within(Duration::from_millis(300), theirs.answer("a")).await;
        ensure(early.is_err(), "both hold the lock")?;
        let ours = acquire(&second);
        self.queued(3).await?;
        theirs.send(&format!("b lock {path} {wait}")).await?;
        self.queued(4).await?;
        held.release().await?;
        ensure(theirs.answer("a").await? == "got", "not granted")?;
        ensure(first.try_acquire().await?.is_none(), "both hold the lock")?;
        let again = acquire(&first);
        self.queued(4).await?;
        theirs.expect(&format!("a unlock {path}"), "done").await?;
        let guard = within(SOON, ours.soon()).await???;
        self.queued(3).await?;
        guard.release().await?;
        ensure(theirs.answer("b").await? == "got", "not granted")?;
        theirs.expect(&format!("b unlock {path}"), "done").await?;
        within(SOON, again.soon()).await???.release().await?;
        self.queued(0).await
    }
}
