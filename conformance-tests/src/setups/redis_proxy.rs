//! The store in Redis behind a real proxy, polling.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::{Capabilities, DistributedLock, LockName, PollRange};
use lockkit_redis::{RedisStore, RedisStoreBuilder};

use crate::case::Case;
use crate::failure::Outcome;
use crate::foreign::missing;
use crate::proxy::Proxy;
use crate::servers::{Nutcracker, RedisServer};
use crate::setup::{Hook, Setup, Site};

/// Opens a [`RedisStore`] through nutcracker: `redis-proxy`.
///
/// Each case has a server and a proxy of its own: behind the proxy nobody can choose a database.
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
        RedisStore::builder().poll(PollRange::new(
            Duration::from_millis(5),
            Duration::from_millis(100),
        ))
    }
}

/// The same options.
const QUERY: &str = "?wake=poll&poll=5ms..100ms";

#[async_trait]
impl Setup for RedisProxySetup {
    fn name(&self) -> &str {
        "redis-proxy"
    }

    fn capabilities(&self) -> Capabilities {
        Self::builder().capabilities()
    }

    fn hooks(&self) -> &[Hook] {
        &[
            Hook::Url,
            Hook::Wipe,
            Hook::Restart,
            Hook::Freeze,
            Hook::Proxy,
            Hook::Residue,
        ]
    }

    fn missing(&self) -> Option<String> {
        missing(RedisServer::PROGRAM).or_else(|| missing(Nutcracker::PROGRAM))
    }

    fn skips(&self, case: &Case) -> Option<String> {
        let lists = case.name().starts_with("admin::list_");
        lists.then(|| "the proxy lets nobody look for keys".to_owned())
    }

    async fn site(&self, alone: bool) -> Outcome<Box<dyn Site>> {
        let guard = std::env::current_exe()?;
        // Only cases that are alone restart it.
        let keeps = if alone { "yes" } else { "no" };
        let server = RedisServer::start(&guard, ["--appendonly", keeps]).await?;
        let proxy = Nutcracker::start(server.port()).await?;
        Ok(Box::new(RedisProxySite { server, proxy }))
    }
}

#[derive(Debug)]
struct RedisProxySite {
    server: RedisServer,
    proxy: Nutcracker,
}

impl RedisProxySite {
    async fn open_at(&self, port: u16) -> Outcome<Arc<dyn DistributedLock>> {
        let builder = RedisProxySetup::builder().tcp("127.0.0.1", port);
        Ok(Arc::new(builder.connect().await?))
    }
}

#[async_trait]
impl Site for RedisProxySite {
    async fn open(&self) -> Outcome<Arc<dyn DistributedLock>> {
        self.open_at(self.proxy.addr().port()).await
    }

    fn url(&self) -> Option<String> {
        Some(format!("redis://{}/{QUERY}", self.proxy.addr()))
    }

    async fn wipe(&self) -> Outcome {
        self.server.ask(&["FLUSHALL"]).await.map(drop)
    }

    async fn restart(&self) -> Outcome {
        self.server.restart().await
    }

    async fn freeze(&self) -> Outcome {
        self.server.process().stop()
    }

    async fn thaw(&self) -> Outcome {
        self.server.process().resume()
    }

    async fn open_through_proxy(&self) -> Outcome<(Arc<dyn DistributedLock>, Proxy)> {
        let proxy = Proxy::start(self.proxy.addr()).await?;
        let store = self.open_at(proxy.addr().port()).await?;
        Ok((store, proxy))
    }

    async fn residue(&self, name: &LockName) -> Outcome<Vec<String>> {
        let keys = self.server.ask(&["KEYS", "*"]).await?;
        let token = |key: &String| key.starts_with("redisson_lock_token:");
        let here = |key: &String| key.contains(name.as_str());
        let left = keys.into_iter().filter(here);
        Ok(left.filter(|key| !token(key)).collect())
    }
}
