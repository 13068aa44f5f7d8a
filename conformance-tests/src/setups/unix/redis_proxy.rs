//! The store in Redis behind a real proxy, polling.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use lockkit_core::{Capabilities, DistributedLock, LockName};
use lockkit_redis::{RedisStore, RedisStoreBuilder};

use super::hooks_of_server;
use super::redis::keys_of;
use crate::failure::Outcome;
use crate::foreign::missing;
use crate::namespace::{Hook, Namespace, Server};
use crate::servers::{Nutcracker, RedisServer};
use crate::setup::Setup;
use crate::setups::pauses::{pauses, poll_option};

/// Opens a [`RedisStore`] through nutcracker: `redis-proxy`.
///
/// Each case has its own server and proxy: the proxy lets no client choose a database.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct RedisProxySetup;

impl RedisProxySetup {
    /// The only way there is.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }

    fn builder() -> RedisStoreBuilder {
        RedisStore::builder().poll(pauses())
    }
}

#[async_trait]
impl Setup for RedisProxySetup {
    fn name(&self) -> &str {
        "redis-proxy"
    }

    fn capabilities(&self) -> Capabilities {
        Self::builder().capabilities()
    }

    fn hooks(&self) -> &[Hook] {
        hooks_of_server(self.capabilities().waiting)
    }

    fn missing(&self) -> Option<String> {
        missing(RedisServer::PROGRAM).or_else(|| missing(Nutcracker::PROGRAM))
    }

    fn skips(&self, case: &str) -> Option<String> {
        let lists = case.starts_with("admin::list_");
        lists.then(|| "the proxy forbids to search for keys".to_owned())
    }

    async fn namespace(&self, alone: bool) -> Outcome<Box<dyn Namespace>> {
        let guard = std::env::current_exe()?;
        // Only cases that are alone restart it.
        let keeps = if alone { "yes" } else { "no" };
        let server = RedisServer::start(&guard, ["--appendonly", keeps]).await?;
        let proxy = Nutcracker::start(server.port()).await?;
        Ok(Box::new(RedisProxyNamespace { server, proxy }))
    }
}

#[derive(Debug)]
struct RedisProxyNamespace {
    server: RedisServer,
    proxy: Nutcracker,
}

#[async_trait]
impl Namespace for RedisProxyNamespace {
    async fn open(&self) -> Outcome<Arc<dyn DistributedLock>> {
        self.open_at(self.proxy.addr()).await
    }

    async fn open_at(&self, address: SocketAddr) -> Outcome<Arc<dyn DistributedLock>> {
        let builder = RedisProxySetup::builder().tcp("127.0.0.1", address.port());
        Ok(Arc::new(builder.connect().await?))
    }

    fn url(&self) -> Option<String> {
        let (address, poll) = (self.proxy.addr(), poll_option());
        Some(format!("redis://{address}/?wake=poll&{poll}"))
    }

    async fn wipe(&self) -> Outcome {
        self.server.ask(&["FLUSHALL"]).await.map(drop)
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&self.server)
    }

    fn address(&self) -> Option<SocketAddr> {
        Some(self.proxy.addr())
    }

    async fn residue(&self, name: &LockName) -> Outcome<Vec<String>> {
        keys_of(&self.server, 0, name).await
    }
}
