//! The store in several Redis servers.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::{Capabilities, DistributedLock, LockName};
use lockkit_redis::{RedisStore, RedlockStore, RedlockStoreBuilder};

use super::pool::{NAMESPACES, ServerPool};
use super::redis::keys_of;
use crate::failure::Outcome;
use crate::foreign::missing;
use crate::namespace::{Hook, Namespace, Server};
use crate::servers::{RedisServer, RedlockServers};
use crate::setup::Setup;

/// The longest lease of stores without a quarantine.
const QUARANTINE: Duration = Duration::from_secs(86_400);

/// Opens a [`RedlockStore`] in five servers: `redlock`.
#[derive(Debug)]
pub struct RedlockSetup {
    pool: ServerPool<RedlockServers>,
}

impl RedlockSetup {
    #[expect(clippy::new_without_default, reason = "it is made in one place")]
    /// Five servers that keep every write.
    #[must_use]
    pub fn new() -> Self {
        Self {
            pool: ServerPool::new(),
        }
    }

    async fn start() -> Outcome<RedlockServers> {
        RedlockServers::start(5, &["--databases", &NAMESPACES.to_string()]).await
    }
}

fn builder(hosts: impl Iterator<Item = (&'static str, u16)>, database: u32) -> RedlockStoreBuilder {
    let node = RedisStore::builder().database(database);
    RedlockStore::builder(hosts).options(node.quarantine(QUARANTINE))
}

#[async_trait]
impl Setup for RedlockSetup {
    fn name(&self) -> &str {
        "redlock"
    }

    fn capabilities(&self) -> Capabilities {
        builder(std::iter::empty(), 0).capabilities()
    }

    fn hooks(&self) -> &[Hook] {
        // A proxy in front of one of five would show little: tests of their own have one for each.
        &[
            Hook::Url,
            Hook::Wipe,
            Hook::Restart,
            Hook::Freeze,
            Hook::Residue,
        ]
    }

    fn missing(&self) -> Option<String> {
        missing(RedisServer::PROGRAM)
    }

    async fn namespace(&self, alone: bool) -> Outcome<Box<dyn Namespace>> {
        Ok(Box::new(RedlockNamespace {
            database: self.pool.number(),
            servers: self.pool.server(alone, Self::start()).await?,
        }))
    }
}

#[derive(Debug)]
struct RedlockNamespace {
    servers: Arc<RedlockServers>,
    database: u32,
}

#[async_trait]
impl Namespace for RedlockNamespace {
    async fn open(&self) -> Outcome<Arc<dyn DistributedLock>> {
        let builder = builder(self.servers.hosts(), self.database);
        Ok(Arc::new(builder.connect().await?))
    }

    fn url(&self) -> Option<String> {
        let (hosts, database) = (self.servers.authority(), self.database);
        Some(format!("redlock://{hosts}/{database}?quarantine=1d"))
    }

    async fn wipe(&self) -> Outcome {
        for node in self.servers.nodes() {
            node.ask(&["FLUSHALL"]).await?;
            node.has_lost_nothing().await?;
        }
        Ok(())
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&*self.servers)
    }

    async fn residue(&self, name: &LockName) -> Outcome<Vec<String>> {
        let mut left = Vec::new();
        for node in self.servers.nodes() {
            left.extend(keys_of(node, self.database, name).await?);
        }
        Ok(left)
    }
}
