//! jetcd, whose lock is the server's own service.

use std::time::Duration;

use conformance_tests::foreign::{Jetcd, Peer};
use conformance_tests::servers::EtcdCluster;
use conformance_tests::task::{acquire, within};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::LockClient;

use crate::world::{SOON, client, one_queue, waiting};

async fn world() -> Outcome<(EtcdCluster, Peer, LockClient)> {
    let cluster = EtcdCluster::of(1).await?;
    let theirs = Jetcd::start(&cluster).await?;
    let client = client(&cluster).await?;
    Ok((cluster, theirs, client))
}

pub(crate) async fn each_excludes_the_other() -> Outcome {
    let (_cluster, mut jetcd, client) = world().await?;
    let lock = client.lock("nightly/jobs")?;
    let theirs = jetcd.token("t lock nightly/jobs 10000").await?;
    ensure(lock.try_acquire().await?.is_none(), "both hold")?;
    jetcd.expect("t unlock nightly/jobs", "done").await?;
    let guard = within(SOON, lock.acquire()).await??;
    ensure(guard.token().get() > theirs, "the token did not grow")?;
    jetcd.send("t lock nightly/jobs 20000").await?;
    waiting(&lock, 1).await?;
    guard.check()?;
    let ours = guard.token().get();
    guard.release().await?;
    let theirs = jetcd.token_of("t").await?;
    ensure(theirs > ours, "the token did not grow")?;
    ensure(lock.try_acquire().await?.is_none(), "both hold")?;
    jetcd.expect("t unlock nightly/jobs", "done").await
}

pub(crate) async fn one_queue_for_both() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    one_queue(&cluster, Jetcd::start(&cluster).await?).await
}

/// Its lease is a minute long: an operator ends the hold of a program that is dead.
pub(crate) async fn killed_program_frees_its_lock() -> Outcome {
    let (cluster, mut jetcd, client) = world().await?;
    let lock = client.lock("jobs")?;
    let theirs = jetcd.token("t lock jobs 10000").await?;
    jetcd.kill().await?;
    let mut waiter = acquire(&self::client(&cluster).await?.lock("jobs")?);
    waiter.waits_for(Duration::from_millis(300)).await?;
    let broken = lock.break_lock().await?;
    let broken = broken.ok_or_else(|| Failure::new("the lock was free"))?;
    ensure(
        broken.token.is_some_and(|token| token.get() == theirs),
        format!("{broken:?}"),
    )?;
    let guard = within(SOON, waiter.soon()).await???;
    ensure(guard.token().get() > theirs, "the token did not grow")?;
    guard.release().await?;
    Ok(())
}
