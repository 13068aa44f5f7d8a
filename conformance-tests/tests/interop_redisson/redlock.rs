//! Redisson's `RedissonRedLock` beside ours, on the same servers.

use std::time::Duration;

use conformance_tests::foreign::Redisson;
use conformance_tests::servers::RedlockServers;
use conformance_tests::task::{acquire, within};
use conformance_tests::{Outcome, ensure};
use lockkit_core::LockClient;
use lockkit_redis::RedlockStore;

use crate::world::{LONG, SOON};

const NAME: &str = "jobs/red";

pub(crate) async fn both_exclude_each_other_on_a_majority() -> Outcome {
    let servers = RedlockServers::start(3, &["--appendonly", "no"]).await?;
    let mut redisson = Redisson::start_with_all(&servers, LONG).await?;
    let store = RedlockStore::builder(servers.hosts()).connect().await?;
    let client = LockClient::new(store)?;
    let lock = client.lock(NAME)?;
    for dead in [None, Some(2)] {
        if let Some(node) = dead {
            servers.nodes()[node].process().kill();
        }
        let guard = within(SOON, lock.acquire()).await??;
        let tried = format!("a lock red {NAME} 0 -1");
        redisson.expect(&tried, "missed").await?;
        guard.release().await?;
        let waits = format!("a lock red {NAME} {} -1", SOON.as_millis());
        redisson.expect(&waits, "got").await?;

        ensure(lock.try_acquire().await?.is_none(), "both hold the lock")?;
        let mut waiter = acquire(&lock);
        waiter.waits_for(Duration::from_millis(300)).await?;
        redisson
            .expect(&format!("a unlock red {NAME}"), "done")
            .await?;
        within(SOON, waiter.soon()).await???.release().await?;
    }
    Ok(())
}
