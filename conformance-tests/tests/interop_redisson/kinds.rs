//! Locks of other kinds under the same name.

use std::collections::BTreeMap;
use std::time::Duration;

use conformance_tests::task::within;
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::{Error, Lock, LockClient};
use tokio::time::sleep;

use crate::world::{SOON, World};

/// Of Redisson's locks.
const KINDS: [&str; 3] = ["plain", "read", "write"];

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

/// Our readers, writers and permits under the name.
fn shared(client: &LockClient) -> Outcome<[Lock; 3]> {
    let lock = client.rw_lock("jobs")?;
    Ok([lock.read(), lock.write(), client.semaphore("jobs", 2)?])
}

/// Redisson sees a lock that is held, whatever kind of its own it takes, and cannot unlock it.
pub(crate) async fn our_shared_holds_exclude_all_kinds_of_redisson() -> Outcome {
    let mut world = World::new().await?;
    let (client, redisson) = (world.client().await?, &mut world.redisson);
    for lock in shared(&client)? {
        for kind in KINDS {
            let guard = lock.acquire().await?;
            let tried = format!("a lock {kind} jobs 0 -1");
            redisson.expect(&tried, "missed").await?;
            let unlocked = redisson.ask(&format!("a unlock {kind} jobs")).await?;
            ensure(unlocked.contains("IllegalMonitorState"), unlocked)?;
            guard.check()?;
            // It waits, and our release wakes it.
            redisson.send(&format!("b lock {kind} jobs -1 -1")).await?;
            sleep(Duration::from_millis(300)).await;
            guard.release().await?;
            let got = within(SOON, redisson.answer("b")).await??;
            ensure(got.starts_with("got"), got)?;
            let unlock = format!("b unlock {kind} jobs");
            redisson.expect(&unlock, "done").await?;
        }
    }
    Ok(())
}

/// None of ours is held beside a lock of Redisson, of any kind.
pub(crate) async fn all_kinds_of_redisson_exclude_our_shared_holds() -> Outcome {
    let mut world = World::new().await?;
    let client = world.client().await?;
    for kind in KINDS {
        let taken = world
            .redisson
            .ask(&format!("a lock {kind} jobs 0 -1"))
            .await?;
        ensure(taken.starts_with("got"), taken)?;
        let before = fields(&world).await?;
        for lock in shared(&client)? {
            ensure(lock.try_acquire().await?.is_none(), "both hold the lock")?;
            let waited = lock.acquire_timeout(Duration::from_millis(200)).await;
            let timeout = matches!(waited, Err(Error::Timeout { .. }));
            ensure(timeout, format!("it should have timed out: {waited:?}"))?;
        }
        ensure(fields(&world).await? == before, "the hash has changed")?;
        let unlock = format!("a unlock {kind} jobs");
        world.redisson.expect(&unlock, "done").await?;
        for lock in shared(&client)? {
            let guard = lock.try_acquire().await?;
            let guard = guard.ok_or_else(|| Failure::new("unlocked, but not for us"))?;
            guard.release().await?;
        }
    }
    Ok(())
}

async fn fields(world: &World) -> Outcome<BTreeMap<String, String>> {
    Ok(world.server.run(&["HGETALL", "jobs"]).await?)
}
