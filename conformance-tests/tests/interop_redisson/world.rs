//! One server, one Redisson, and clients of ours.

use std::time::Duration;

use conformance_tests::foreign::{Peer, Redisson};
use conformance_tests::servers::RedisServer;
use conformance_tests::task::{acquire, until, within};
use conformance_tests::{Outcome, ensure};
use lockkit_core::{Lease, Lock, LockClient, Queueing};
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

/// Each side holds, misses and waits for the lock of the other, which wakes it. `count` is the command that counts those
/// who listen at the server of the lock.
pub(crate) async fn take_turns(
    lock: &Lock,
    redisson: &mut Peer,
    kind: &str,
    server: &RedisServer,
    count: &str,
) -> Outcome {
    let name = lock.name();
    let channel = format!("redisson_lock__channel:{{{name}}}");
    let listens = async || {
        let listeners = server.ask(&["PUBSUB", count, &channel]).await?;
        Ok(listeners[1] == "1")
    };
    let guard = lock.acquire().await?;
    let tried = format!("a lock {kind} {name} 0 -1");
    redisson.expect(&tried, "missed").await?;
    redisson
        .send(&format!("a lock {kind} {name} -1 -1"))
        .await?;
    until("Redisson listens", listens).await?;
    guard.release().await?;
    let answer = within(SOON, redisson.answer("a")).await??;
    ensure(answer.starts_with("got"), answer)?;

    ensure(lock.try_acquire().await?.is_none(), "both hold the lock")?;
    let mut waiter = acquire(lock);
    until("we listen", listens).await?;
    waiter.waits_for(Duration::from_millis(50)).await?;
    let unlock = format!("a unlock {kind} {name}");
    redisson.expect(&unlock, "done").await?;
    Ok(within(SOON, waiter.soon()).await???.release().await?)
}
