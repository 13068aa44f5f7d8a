//! Faults of the network, made by a proxy.

use std::time::Duration;

use conformance_tests::proxy::{Dropped, Proxy};
use conformance_tests::servers::EtcdCluster;
use conformance_tests::task::{acquire, until, within};
use conformance_tests::{Failure, Outcome, ensure};
use tokio::time::{Instant, sleep, timeout};

use crate::world::{LONG, SOON, behind, client, contenders, keys, proxy};

/// Drops the answer to the next request that names the lock.
fn cut(proxy: &Proxy, how: Dropped) {
    proxy.drop_reply(how, |request| {
        request.windows(5).any(|word| word == b"jobs/")
    });
}

pub(crate) async fn lost_reply_makes_one_hold() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let other = client(&cluster, LONG).await?.lock("jobs")?;
    for how in [Dropped::Reset, Dropped::Silence] {
        let proxy = proxy(&cluster).await?;
        let lock = behind(&proxy, LONG).await?.lock("jobs")?;
        lock.acquire().await?.release().await?;
        cut(&proxy, how);
        let guard = within(SOON, lock.acquire()).await??;
        let there = keys(&mut asker).await?;
        ensure(there.len() == 1, format!("keys: {there:?}"))?;
        guard.check()?;
        cut(&proxy, how);
        // It was executed and not answered: that is a release.
        within(SOON, guard.release()).await??;
        let dropped = proxy.counts().dropped_replies;
        ensure(dropped == 2, format!("{dropped} replies were dropped"))?;
        within(SOON, other.acquire()).await??.release().await?;
    }
    Ok(())
}

/// A deletion without an answer may be executed late, so that no ticket may use its key again.
pub(crate) async fn reuses_key_once_it_is_gone() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let proxy = proxy(&cluster).await?;
    let lock = behind(&proxy, LONG).await?.lock("jobs")?;
    lock.acquire().await?.release().await?;
    let guard = lock.acquire().await?;
    let first = keys(&mut asker).await?;
    guard.release().await?;
    let guard = lock.acquire().await?;
    let again = keys(&mut asker).await?;
    ensure(
        first.len() == 1 && first == again,
        format!("{first:?} {again:?}"),
    )?;
    cut(&proxy, Dropped::Silence);
    within(SOON, guard.release()).await??;
    let guard = within(SOON, lock.acquire()).await??;
    let other = keys(&mut asker).await?;
    ensure(
        other.len() == 1 && other != first,
        format!("{first:?} {other:?}"),
    )?;
    guard.release().await?;
    Ok(())
}

pub(crate) async fn dropped_acquire_leaves_nothing_on_cut_connection() -> Outcome {
    const ACQUIRES: u32 = 200;
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let proxy = proxy(&cluster).await?;
    let client = behind(&proxy, LONG).await?;
    let lock = client.lock("jobs")?;
    for number in 0..ACQUIRES {
        if number % 4 == 0 {
            cut(&proxy, Dropped::Reset);
        }
        let patience = Duration::from_micros(fastrand::u64(0..4_000));
        drop(timeout(patience, lock.acquire()).await);
    }
    proxy.heal();
    let dropped = proxy.counts().dropped_replies;
    ensure(dropped > 0, "no reply was dropped")?;
    within(SOON, client.drain()).await?;
    until("nothing is left", async || {
        Ok(keys(&mut asker).await?.is_empty())
    })
    .await?;
    let guard = within(SOON, lock.try_acquire()).await??;
    let guard = guard.ok_or_else(|| Failure::new("it is not free"))?;
    let waiter = acquire(&lock);
    guard.release().await?;
    within(SOON, waiter.soon()).await???.release().await?;
    Ok(())
}

/// While no stream lasts, the pauses grow. Otherwise many clients would overload a server that starts.
pub(crate) async fn reopens_broken_streams_with_backoff() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let proxy = proxy(&cluster).await?;
    let held = client(&cluster, LONG)
        .await?
        .lock("jobs")?
        .acquire()
        .await?;
    let waiting = behind(&proxy, LONG).await?.lock("jobs")?;
    let waiter = acquire(&waiting);
    contenders(&mut cluster.client().await?, 2).await?;
    let before = proxy.counts().connections;
    let end = Instant::now() + Duration::from_secs(4);
    while Instant::now() < end {
        proxy.reset();
        sleep(Duration::from_millis(5)).await;
    }
    let tried = proxy.counts().connections - before;
    held.release().await?;
    within(SOON, waiter.soon()).await???.release().await?;
    let backs_off = (2..=30).contains(&tried);
    ensure(backs_off, format!("{tried} connections within 4 s"))
}
