//! The store in Redis behind Sentinels.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::store::lock;
use lockkit_core::{Capabilities, DistributedLock, LockName, Waiting};
use lockkit_redis::RedisStore;

use super::hooks_of_server;
use super::pool::ServerPool;
use super::redis::{PASSWORD, configuration, keys_of, lose_pushes, rights, set_user};
use crate::failure::Outcome;
use crate::foreign::missing;
use crate::namespace::{Hook, Namespace, Server};
use crate::servers::{FakeSentinel, MASTER, RedisServer, SentinelGroup};
use crate::setup::Setup;

/// No case of the suite makes a failover, and a busy machine must not.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest lease of stores without a quarantine.
const QUARANTINE: Duration = Duration::from_secs(86_400);

/// Opens a [`RedisStore`] at the master that Sentinels name: `redis-sentinel`.
#[derive(Debug)]
pub struct RedisSentinelSetup {
    pool: ServerPool<SentinelGroup>,
}

impl RedisSentinelSetup {
    #[expect(clippy::new_without_default, reason = "it is made in one place")]
    /// One master, one replica and three Sentinels.
    #[must_use]
    pub fn new() -> Self {
        Self {
            pool: ServerPool::new(),
        }
    }

    /// The servers know a user from their configuration: Redis does not replicate users.
    async fn start(&self, user: &str) -> Outcome<SentinelGroup> {
        SentinelGroup::start(&configuration(user, rights()), PATIENCE).await
    }
}

#[async_trait]
impl Setup for RedisSentinelSetup {
    fn name(&self) -> &str {
        "redis-sentinel"
    }

    fn capabilities(&self) -> Capabilities {
        RedisStore::builder().quarantine(QUARANTINE).capabilities()
    }

    fn hooks(&self) -> &[Hook] {
        hooks_of_server(Waiting::Push)
    }

    fn missing(&self) -> Option<String> {
        missing(RedisServer::PROGRAM)
    }

    async fn namespace(&self, alone: bool) -> Outcome<Box<dyn Namespace>> {
        let number = self.pool.number();
        let user = format!("site-{number}");
        let group = self.pool.server(alone, self.start(&user)).await?;
        for server in group.servers() {
            set_user(server, &user, &rights()).await?;
        }
        Ok(Box::new(SentinelNamespace {
            group,
            user,
            database: number,
            fakes: Mutex::default(),
        }))
    }
}

#[derive(Debug)]
struct SentinelNamespace {
    group: Arc<SentinelGroup>,
    user: String,
    database: u32,
    /// Those that name a proxy.
    fakes: Mutex<Vec<FakeSentinel>>,
}

impl SentinelNamespace {
    fn master(&self) -> &RedisServer {
        &self.group.servers()[0]
    }

    async fn open_by(&self, sentinels: Vec<u16>) -> Outcome<Arc<dyn DistributedLock>> {
        let hosts = sentinels.into_iter().map(|port| ("127.0.0.1", port));
        let builder = RedisStore::builder().sentinel(hosts, MASTER);
        let builder = builder.quarantine(QUARANTINE);
        let builder = builder.user(&self.user).password(PASSWORD);
        Ok(Arc::new(builder.database(self.database).connect().await?))
    }
}

#[async_trait]
impl Namespace for SentinelNamespace {
    async fn open(&self) -> Outcome<Arc<dyn DistributedLock>> {
        self.open_by(self.group.ports()).await
    }

    async fn open_at(&self, address: SocketAddr) -> Outcome<Arc<dyn DistributedLock>> {
        let fake = FakeSentinel::naming(address, 1, Duration::ZERO).await?;
        let port = fake.port();
        lock(&self.fakes).push(fake);
        self.open_by(vec![port]).await
    }

    fn url(&self) -> Option<String> {
        let (user, hosts, database) = (&self.user, self.group.hosts(), self.database);
        Some(format!(
            "redis+sentinel://{user}:{PASSWORD}@{hosts}/{MASTER}/{database}?quarantine=1d"
        ))
    }

    async fn wipe(&self) -> Outcome {
        self.master().ask(&["FLUSHALL"]).await?;
        self.master().has_lost_nothing().await
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&*self.group)
    }

    fn address(&self) -> Option<SocketAddr> {
        Some((Ipv4Addr::LOCALHOST, self.master().port()).into())
    }

    async fn lose_pushes(&self, lose: bool) -> Outcome {
        lose_pushes(self.master(), &self.user, lose).await
    }

    async fn residue(&self, name: &LockName) -> Outcome<Vec<String>> {
        keys_of(self.master(), self.database, name).await
    }
}
