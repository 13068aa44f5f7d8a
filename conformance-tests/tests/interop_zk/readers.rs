//! Curator's `InterProcessReadWriteLock`, and kazoo's `ReadLock` and `WriteLock`.

use std::time::Duration;

use conformance_tests::foreign::{Curator, Kazoo, Peer};
use conformance_tests::task::{acquire, within};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::{Guard, Lock};
use lockkit_zk::Dialect;

use crate::world::{SESSION, SOON, World};

/// Long enough for a grant that must not come.
const WHILE: Duration = Duration::from_millis(400);

async fn taken(lock: &Lock) -> Outcome<Guard> {
    let guard = lock.try_acquire().await?;
    guard.ok_or_else(|| Failure::new("it is refused beside theirs"))
}

async fn refused(lock: &Lock) -> Outcome {
    ensure(
        lock.try_acquire().await?.is_none(),
        "it is held beside theirs",
    )
}

/// Readers of both hold together, and no writer of either beside them.
async fn share(world: &World, theirs: &mut Peer, dialect: Dialect) -> Outcome {
    let (ours, path) = (world.rw_lock(dialect).await?, world.path());
    theirs.expect(&format!("a read {path} 5000"), "got").await?;
    let reader = taken(&ours.read()).await?;
    theirs.expect(&format!("b read {path} 5000"), "got").await?;
    refused(&ours.write()).await?;
    theirs
        .expect(&format!("c write {path} 300"), "missed")
        .await?;
    theirs.expect(&format!("a unread {path}"), "done").await?;
    theirs.expect(&format!("b unread {path}"), "done").await?;
    theirs
        .expect(&format!("c write {path} 300"), "missed")
        .await?;
    reader.release().await?;
    theirs
        .expect(&format!("c write {path} 5000"), "got")
        .await?;
    refused(&ours.read()).await?;
    refused(&ours.write()).await?;
    theirs.expect(&format!("c unwrite {path}"), "done").await?;
    let writer = taken(&ours.write()).await?;
    theirs
        .expect(&format!("a read {path} 300"), "missed")
        .await?;
    theirs
        .expect(&format!("c write {path} 300"), "missed")
        .await?;
    writer.release().await?;
    world.queued(0).await
}

/// Readers and writers of both in one queue are served in its order.
async fn wait(world: &World, theirs: &mut Peer, dialect: Dialect) -> Outcome {
    let (ours, path) = (world.rw_lock(dialect).await?, world.path());
    let other = world.rw_lock(dialect).await?;
    let held = ours.write().acquire().await?;
    theirs.send(&format!("a read {path} 15000")).await?;
    world.queued(2).await?;
    let reader = acquire(&ours.read());
    world.queued(3).await?;
    theirs.send(&format!("c write {path} 15000")).await?;
    world.queued(4).await?;
    let mut late = acquire(&other.read());
    world.queued(5).await?;
    held.release().await?;
    ensure(theirs.answer("a").await? == "got", "not granted")?;
    let reader = within(SOON, reader.soon()).await???;
    late.waits_for(WHILE).await?;
    theirs.expect(&format!("a unread {path}"), "done").await?;
    late.waits_for(WHILE).await?;
    reader.release().await?;
    ensure(theirs.answer("c").await? == "got", "not granted")?;
    late.waits_for(WHILE).await?;
    theirs.expect(&format!("c unwrite {path}"), "done").await?;
    within(SOON, late.soon()).await???.release().await?;
    world.queued(0).await
}

pub(crate) async fn readers_of_curator_share_with_ours() -> Outcome {
    let world = World::new().await?;
    let mut java = Curator::start(world.port, SESSION).await?;
    share(&world, &mut java, Dialect::Curator).await
}

pub(crate) async fn curator_waits_in_the_same_queue() -> Outcome {
    let world = World::new().await?;
    let mut java = Curator::start(world.port, SESSION).await?;
    wait(&world, &mut java, Dialect::Curator).await
}

/// Their writer becomes a reader. Our reader behind it holds beside it then, and our writer waits for both.
pub(crate) async fn writer_of_curator_becomes_a_reader_before_ours() -> Outcome {
    let world = World::new().await?;
    let (ours, path) = (world.rw_lock(Dialect::Curator).await?, world.path());
    let mut java = Curator::start(world.port, SESSION).await?;
    java.expect(&format!("a write {path} 5000"), "got").await?;
    let mut reader = acquire(&ours.read());
    world.queued(2).await?;
    let mut writer = acquire(&ours.write());
    world.queued(3).await?;
    reader.waits_for(WHILE).await?;
    java.expect(&format!("a downgrade {path}"), "got").await?;
    let reader = within(SOON, reader.soon()).await???;
    writer.waits_for(WHILE).await?;
    reader.release().await?;
    writer.waits_for(WHILE).await?;
    java.expect(&format!("a unread {path}"), "done").await?;
    within(SOON, writer.soon()).await???.release().await?;
    world.queued(0).await
}

pub(crate) async fn readers_of_kazoo_share_with_ours() -> Outcome {
    let world = World::new().await?;
    let mut python = Kazoo::start(world.port, &[]).await?;
    share(&world, &mut python, Dialect::Kazoo).await
}

pub(crate) async fn kazoo_waits_in_the_same_queue() -> Outcome {
    let world = World::new().await?;
    let mut python = Kazoo::start(world.port, &[]).await?;
    wait(&world, &mut python, Dialect::Kazoo).await
}
