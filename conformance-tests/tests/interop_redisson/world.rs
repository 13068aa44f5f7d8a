//! One server, one Redisson, and clients of ours.

use std::time::Duration;

use conformance_tests::Outcome;
use conformance_tests::foreign::{Peer, Redisson};
use conformance_tests::servers::RedisServer;
use lockkit_core::{Lease, LockClient, Queueing};
use lockkit_redis::{Protocol, RedisStore, RedisStoreBuilder};

/// Longer than any test: no lease ends and no waiter polls before the end of a test.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A message has arrived after this time on the busiest machine.
pub(crate) const SOON: Duration = Duration::from_secs(5);

pub(crate) struct World {
    pub(crate) server: RedisServer,
    pub(crate) redisson: Peer,
}

impl World {
    /// Redisson's locks without a lease end `LONG` after its death.
    pub(crate) async fn new() -> Outcome<Self> {
        Self::with_watchdog(LONG).await
    }

    pub(crate) async fn with_watchdog(lease: Duration) -> Outcome<Self> {
        let server = RedisServer::forgetful().await?;
        let redisson = Redisson::start(&server, lease).await?;
        Ok(Self { server, redisson })
    }

    /// Options of a store whose waiters look by themselves only after a long time.
    pub(crate) fn store(&self) -> RedisStoreBuilder {
        RedisStore::builder()
            .tcp("127.0.0.1", self.server.port())
            .recheck(LONG)
    }

    /// A client of ours with a long lease.
    pub(crate) async fn client(&self) -> Outcome<LockClient> {
        client(self.store(), LONG).await
    }

    /// A client for each way in which ours wait for a push.
    pub(crate) async fn waiting_clients(&self) -> Outcome<Vec<(&'static str, LockClient)>> {
        let fifo = self.store();
        let barging = self.store().queueing(Queueing::Barging);
        let second = self.store().protocol(Protocol::Resp2);
        Ok(vec![
            ("fifo", client(fifo, LONG).await?),
            ("barging", client(barging, LONG).await?),
            ("resp2", client(second, LONG).await?),
        ])
    }
}

pub(crate) async fn client(store: RedisStoreBuilder, ttl: Duration) -> Outcome<LockClient> {
    let store = store.connect().await?;
    Ok(LockClient::builder(store)
        .lease(Lease::renewed(ttl))
        .build()?)
}
