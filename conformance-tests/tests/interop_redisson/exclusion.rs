//! Never two holders.

use std::time::Duration;

use conformance_tests::task::{soon, spawn};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::Lock;
use redis::AsyncCommands;

use crate::world::{World, client};

pub(crate) async fn our_hold_excludes_redisson() -> Outcome {
    let mut world = World::new().await?;
    let lock = world.client().await?.lock("jobs")?;
    let guard = lock.acquire().await?;
    for kind in ["plain", "fenced"] {
        let redisson = &mut world.redisson;
        let tried = format!("a lock {kind} jobs 0 -1");
        redisson.expect(&tried, "missed").await?;
        let looked = format!("a is-locked {kind} jobs");
        redisson.expect(&looked, "true").await?;
        let mine = format!("a is-mine {kind} jobs");
        redisson.expect(&mine, "false").await?;
        let unlocked = redisson.ask(&format!("a unlock {kind} jobs")).await?;
        ensure(
            unlocked.contains("IllegalMonitorState"),
            format!("Redisson unlocks our hold: {unlocked}"),
        )?;
    }
    guard.check()?;
    guard.release().await?;
    world.redisson.expect("a lock plain jobs 0 -1", "got").await
}

pub(crate) async fn redissons_hold_excludes_us() -> Outcome {
    let mut world = World::new().await?;
    let lock = world.client().await?.lock("jobs")?;
    for kind in ["plain", "fenced"] {
        let taken = world
            .redisson
            .ask(&format!("a lock {kind} jobs 0 -1"))
            .await?;
        ensure(taken.starts_with("got"), taken)?;
        ensure(lock.try_acquire().await?.is_none(), "both hold the lock")?;
        let limit = Duration::from_millis(200);
        let waited = lock.acquire_timeout(limit).await;
        let timeout = matches!(waited, Err(lockkit_core::Error::Timeout { .. }));
        ensure(timeout, format!("it should have timed out: {waited:?}"))?;
        let unlock = format!("a unlock {kind} jobs");
        world.redisson.expect(&unlock, "done").await?;
        let guard = lock.try_acquire().await?;
        let guard = guard.ok_or_else(|| Failure::new("unlocked, but not for us"))?;
        guard.release().await?;
    }
    Ok(())
}

pub(crate) async fn redissons_watchdog_keeps_us_out() -> Outcome {
    let lease = Duration::from_secs(4);
    let mut world = World::with_watchdog(lease).await?;
    let lock = world.client().await?.lock("jobs")?;
    world
        .redisson
        .expect("a lock plain jobs 0 -1", "got")
        .await?;
    let waited = lock.acquire_timeout(lease * 2).await;
    ensure(waited.is_err(), "its lease ended although it was renewed")?;
    world.redisson.expect("a unlock plain jobs", "done").await
}

pub(crate) async fn our_renewals_keep_redisson_out() -> Outcome {
    let lease = Duration::from_secs(4);
    let mut world = World::new().await?;
    let client = client(world.store(), lease).await?;
    let guard = client.lock("jobs")?.acquire().await?;
    world
        .redisson
        .expect("a lock fenced jobs 8000 -1", "missed")
        .await?;
    guard.check()?;
    guard.release().await?;
    Ok(())
}

pub(crate) async fn reentrant_hold_of_redisson_lasts_until_its_last_unlock() -> Outcome {
    let mut world = World::new().await?;
    let lock = world.client().await?.lock("jobs")?;
    for _ in 0..2 {
        world
            .redisson
            .expect("a lock plain jobs 0 -1", "got")
            .await?;
    }
    ensure(lock.try_acquire().await?.is_none(), "taken while held")?;
    world.redisson.expect("a unlock plain jobs", "done").await?;
    ensure(lock.try_acquire().await?.is_none(), "one of two unlocks")?;
    world.redisson.expect("a unlock plain jobs", "done").await?;
    ensure(lock.try_acquire().await?.is_some(), "free but not for us")
}

/// Each side reads a number, waits a moment and writes one more: two at once lose a count.
pub(crate) async fn sections_of_both_never_overlap() -> Outcome {
    const TURNS: u64 = 40;
    let mut world = World::new().await?;
    let server = world.server.connect().await?;
    let mut ours = Vec::new();
    for (_, client) in world.waiting_clients().await? {
        let (lock, server) = (client.lock("jobs")?, server.clone());
        ours.push(spawn(count(lock, server, TURNS)));
    }
    for (thread, kind) in [("a", "plain"), ("b", "fenced")] {
        let turns = format!("{thread} count {kind} jobs {TURNS} sum");
        world.redisson.send(&turns).await?;
    }
    for task in ours {
        task.soon().await??;
    }
    for thread in ["a", "b"] {
        let answer = world.redisson.answer(thread).await?;
        ensure(answer == "done", answer)?;
    }
    let sum: u64 = soon(world.server.run(&["GET", "sum"])).await??;
    let expected = TURNS * 5;
    ensure(sum == expected, format!("{sum} of {expected} counts"))
}

async fn count(lock: Lock, mut server: redis::aio::MultiplexedConnection, turns: u64) -> Outcome {
    for _ in 0..turns {
        let guard = lock.acquire().await?;
        let sum: Option<u64> = server.get("sum").await?;
        tokio::task::yield_now().await;
        let _: () = server.set("sum", sum.unwrap_or(0) + 1).await?;
        guard.release().await?;
    }
    Ok(())
}
