//! Curator's `InterProcessMutex`.

use std::time::Duration;

use conformance_tests::foreign::Curator;
use conformance_tests::task::{acquire, spawn, within};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_zk::Dialect;

use crate::world::{SESSION, SOON, World};

pub(crate) async fn each_side_excludes_the_other() -> Outcome {
    let world = World::new().await?;
    let (lock, path) = (world.lock(Dialect::Curator).await?, world.path());
    let mut java = Curator::start(world.port, SESSION).await?;
    for _ in 0..2 {
        java.expect(&format!("a lock {path} 5000"), "got").await?;
        ensure(lock.try_acquire().await?.is_none(), "both hold the lock")?;
        let waited = lock.acquire_timeout(Duration::from_millis(200)).await;
        ensure(waited.is_err(), "both hold the lock")?;
        let state = lock
            .inspect()
            .await?
            .ok_or_else(|| Failure::new("it looks free"))?;
        ensure(state.token.is_some(), format!("{state:?}"))?;
        java.expect(&format!("a unlock {path}"), "done").await?;
        let guard = within(SOON, lock.acquire()).await??;
        java.expect(&format!("a lock {path} 200"), "missed").await?;
        guard.release().await?;
        world.queued(0).await?;
    }
    Ok(())
}

pub(crate) async fn each_side_wakes_the_other_in_one_queue() -> Outcome {
    let world = World::new().await?;
    let mut java = Curator::start(world.port, SESSION).await?;
    world.serves_in_order(&mut java, "-1").await
}

/// Two of theirs and two of ours, for many turns: never two at once by the tokens of ours.
pub(crate) async fn both_work_at_once_and_tokens_grow() -> Outcome {
    const TURNS: u32 = 15;
    let world = World::new().await?;
    let path = world.path();
    let mut java = Curator::start(world.port, SESSION).await?;
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let lock = world.lock(Dialect::Curator).await?;
        tasks.push(spawn(async move {
            let mut last = None;
            for _ in 0..TURNS {
                let guard = lock.acquire().await?;
                let grown = last < Some(guard.token());
                last = Some(guard.token());
                let seen = lock.inspect().await?.and_then(|state| state.token);
                ensure(grown && seen == last, format!("{seen:?} is not {last:?}"))?;
                guard.release().await?;
            }
            Outcome::Ok(())
        }));
    }
    for _ in 0..TURNS {
        for thread in ["a", "b"] {
            java.send(&format!("{thread} lock {path} -1")).await?;
            java.send(&format!("{thread} unlock {path}")).await?;
        }
    }
    for task in tasks {
        within(SOON * 3, task.soon()).await???;
    }
    for _ in 0..TURNS {
        for thread in ["a", "b"] {
            ensure(java.answer(thread).await? == "got", "not granted")?;
            ensure(java.answer(thread).await? == "done", "not released")?;
        }
    }
    world.queued(0).await
}

pub(crate) async fn killed_program_frees_its_lock() -> Outcome {
    let world = World::new().await?;
    let (lock, path) = (world.lock(Dialect::Curator).await?, world.path());
    let mut java = Curator::start(world.port, Duration::from_secs(2)).await?;
    java.expect(&format!("a lock {path} 5000"), "got").await?;
    let waiter = acquire(&lock);
    world.queued(2).await?;
    java.kill().await?;
    within(SOON, waiter.soon()).await???.release().await?;
    Ok(())
}

pub(crate) async fn broken_hold_of_curator_passes_to_our_waiter() -> Outcome {
    let world = World::new().await?;
    let (lock, path) = (world.lock(Dialect::Curator).await?, world.path());
    let mut java = Curator::start(world.port, SESSION).await?;
    java.expect(&format!("a lock {path} 5000"), "got").await?;
    let waiter = acquire(&lock);
    world.queued(2).await?;
    let broken = lock
        .break_lock()
        .await?
        .ok_or_else(|| Failure::new("nothing was broken"))?;
    let guard = within(SOON, waiter.soon()).await???;
    ensure(broken.token < Some(guard.token()), format!("{broken:?}"))?;
    guard.release().await?;
    Ok(())
}

/// A writer of their read-write lock that becomes a reader makes a node with its own number, and deletes
/// the first one then: who waited for the writer waits for the reader.
pub(crate) async fn our_waiter_waits_for_a_writer_that_becomes_a_reader() -> Outcome {
    let world = World::new().await?;
    let (lock, path) = (world.lock(Dialect::Curator).await?, world.path());
    let mut java = Curator::start(world.port, SESSION).await?;
    java.expect(&format!("a write {path} 5000"), "got").await?;
    let mut waiter = acquire(&lock);
    world.queued(2).await?;
    // Long enough for the waiter to watch the writer.
    waiter.waits_for(Duration::from_millis(300)).await?;
    java.expect(&format!("a downgrade {path}"), "got").await?;
    let both = waiter.waits_for(Duration::from_millis(500)).await;
    both.map_err(|_| Failure::new("it reads, and the lock is ours"))?;
    ensure(lock.try_acquire().await?.is_none(), "a try got in")?;
    java.expect(&format!("a unread {path}"), "done").await?;
    within(SOON, waiter.soon()).await???.release().await?;
    world.queued(0).await
}
