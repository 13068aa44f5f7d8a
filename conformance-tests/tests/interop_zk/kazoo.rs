//! kazoo's `Lock`.

use std::time::Duration;

use conformance_tests::foreign::{Kazoo, Peer};
use conformance_tests::task::{acquire, within};
use conformance_tests::{Outcome, ensure};
use lockkit_core::Lock;
use lockkit_zk::Dialect;

use crate::world::{SOON, World};

/// The pattern that makes it respect nodes of Curator's names.
const THEIRS: &[&str] = &["-lock-"];

async fn exclude(lock: &Lock, python: &mut Peer, path: &str) -> Outcome {
    python.expect(&format!("a lock {path} 5000"), "got").await?;
    ensure(lock.try_acquire().await?.is_none(), "both hold the lock")?;
    let waited = lock.acquire_timeout(Duration::from_millis(200)).await;
    ensure(waited.is_err(), "both hold the lock")?;
    let waiter = acquire(lock);
    python.expect(&format!("a unlock {path}"), "done").await?;
    let guard = within(SOON, waiter.soon()).await???;
    python
        .expect(&format!("a lock {path} 300"), "missed")
        .await?;
    python.send(&format!("b lock {path} 8000")).await?;
    guard.release().await?;
    ensure(
        python.answer("b").await? == "got",
        "released, but not for them",
    )?;
    python.expect(&format!("b unlock {path}"), "done").await
}

pub(crate) async fn its_nodes_are_respected() -> Outcome {
    let world = World::new().await?;
    let (lock, path) = (world.lock(Dialect::Curator).await?, world.path());
    let mut python = Kazoo::start(world.port, &[]).await?;
    python.expect(&format!("a lock {path} 5000"), "got").await?;
    ensure(lock.try_acquire().await?.is_none(), "both hold the lock")?;
    let waiter = acquire(&lock);
    world.queued(2).await?;
    python.expect(&format!("a unlock {path}"), "done").await?;
    within(SOON, waiter.soon()).await???.release().await?;
    world.queued(0).await
}

pub(crate) async fn it_respects_our_nodes_if_configured() -> Outcome {
    let world = World::new().await?;
    let lock = world.lock(Dialect::Curator).await?;
    let mut python = Kazoo::start(world.port, THEIRS).await?;
    exclude(&lock, &mut python, &world.path()).await
}

pub(crate) async fn it_respects_our_nodes_with_its_names() -> Outcome {
    let world = World::new().await?;
    let lock = world.lock(Dialect::Kazoo).await?;
    let mut python = Kazoo::start(world.port, &[]).await?;
    exclude(&lock, &mut python, &world.path()).await
}

/// One behind the other, in turn.
pub(crate) async fn both_wait_in_one_queue() -> Outcome {
    let world = World::new().await?;
    let mut python = Kazoo::start(world.port, THEIRS).await?;
    world.serves_in_order(&mut python, "15000").await
}
