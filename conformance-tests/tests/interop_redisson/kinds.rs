//! Locks of other kinds under the same name.

use std::collections::BTreeMap;
use std::time::Duration;

use conformance_tests::{Outcome, ensure};
use lockkit_core::Error;

use crate::world::World;

pub(crate) async fn read_write_lock_counts_as_held_and_is_not_changed() -> Outcome {
    let mut world = World::new().await?;
    let client = world.client().await?;
    let lock = client.lock("jobs")?;
    for kind in ["read", "write"] {
        let take = format!("a lock {kind} jobs 0 -1");
        world.redisson.expect(&take, "got").await?;
        let before = fields(&world).await?;
        ensure(before.contains_key("mode"), "that is no read-write lock")?;
        ensure(lock.try_acquire().await?.is_none(), "both hold the lock")?;
        let limit = Duration::from_millis(200);
        let waited = lock.acquire_timeout(limit).await;
        let timeout = matches!(waited, Err(Error::Timeout { .. }));
        ensure(timeout, format!("it should have timed out: {waited:?}"))?;
        let broken = lock.break_lock().await;
        let refused = matches!(broken, Err(Error::Backend(_)));
        ensure(refused, format!("break returns {broken:?}"))?;
        client.list("").await?;
        ensure(fields(&world).await? == before, "the hash has changed")?;
        let unlock = format!("a unlock {kind} jobs");
        world.redisson.expect(&unlock, "done").await?;
        let guard = lock.try_acquire().await?;
        ensure(guard.is_some(), "unlocked, but not for us")?;
        drop(guard);
        client.drain().await;
    }
    Ok(())
}

async fn fields(world: &World) -> Outcome<BTreeMap<String, String>> {
    Ok(world.server.run(&["HGETALL", "jobs"]).await?)
}
