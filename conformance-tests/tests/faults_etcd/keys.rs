//! Leases and keys that operators, users or late requests change.

use std::time::Duration;

use conformance_tests::loss::loss_of;
use conformance_tests::proxy::{Direction, Proxy};
use conformance_tests::servers::EtcdCluster;
use conformance_tests::task::{acquire, until, within};
use conformance_tests::{Failure, Outcome, ensure};
use etcd_client::{Client, PutOptions};
use lockkit_core::contract::{Attempt, DistributedLock as _, LockState, Ticket};
use lockkit_core::{ClientId, HolderId, LockName, LossReason};
use tokio::time::{Instant, sleep};

use crate::world::{LONG, SOON, TTL, builder, client, client_of, contenders, keys, lease, store};

/// The longest time to report a loss: 100 ms, two round trips, and the time that a busy machine adds.
const REPORTED: Duration = Duration::from_secs(1);
/// A client watches a hold from then on.
const WATCHED: Duration = Duration::from_millis(400);

pub(crate) async fn revoked_lease_is_reported_soon() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let store = store(&cluster).await?;
    let client = client_of(&store, LONG)?;
    let (first, second) = (
        client.lock("first")?.acquire().await?,
        client.lock("second")?.acquire().await?,
    );
    sleep(WATCHED).await;
    let losses = [loss_of(first), loss_of(second)];
    let start = Instant::now();
    asker.lease_revoke(lease(&store)?).await?;
    for loss in losses {
        let (reason, at, _) = within(SOON, loss.soon()).await??;
        ensure(
            reason == LossReason::SessionEnded,
            format!("lost: {reason:?}"),
        )?;
        let took = at.duration_since(start);
        ensure(took < REPORTED, format!("reported after {took:?}"))?;
    }
    // The next hold has a new session.
    let guard = within(SOON, client.lock("first")?.acquire()).await??;
    guard.check()?;
    guard.release().await?;
    Ok(())
}

/// etcd's own lock service grants to a waiter whose lease has ended.
pub(crate) async fn revoked_lease_grants_nothing() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let holder = client(&cluster, LONG).await?.lock("jobs")?;
    let store = store(&cluster).await?;
    let waiting = client_of(&store, LONG)?.lock("jobs")?;
    for _ in 0..5 {
        let guard = holder.acquire().await?;
        let waiter = acquire(&waiting);
        contenders(&mut asker, 2).await?;
        asker.lease_revoke(lease(&store)?).await?;
        guard.release().await?;
        let guard = within(SOON, waiter.soon()).await???;
        // It holds with a key that exists, or not at all.
        let seen = holder.inspect().await?;
        let ids = seen.iter().flat_map(LockState::holder_ids);
        ensure(
            ids.eq([guard.holder().to_string()]),
            format!("granted to {}, but {seen:?}", guard.holder()),
        )?;
        guard.release().await?;
    }
    Ok(())
}

/// The end of a lease deletes all its keys in one revision. A decision in the middle of it would be wrong.
pub(crate) async fn lease_end_takes_hold_and_waiter_together() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    for _ in 0..5 {
        let store = store(&cluster).await?;
        let (one, other) = (
            client_of(&store, LONG)?.lock("jobs")?,
            client_of(&store, LONG)?.lock("jobs")?,
        );
        let guard = one.acquire().await?;
        let waiter = acquire(&other);
        contenders(&mut asker, 2).await?;
        sleep(WATCHED).await;
        asker.lease_revoke(lease(&store)?).await?;
        within(SOON, guard.lost()).await?;
        let guard = within(SOON, waiter.soon()).await???;
        let seen = one.inspect().await?;
        let ids = seen.iter().flat_map(LockState::holder_ids);
        ensure(
            ids.eq([guard.holder().to_string()]),
            format!("granted to {}, but {seen:?}", guard.holder()),
        )?;
        guard.release().await?;
    }
    Ok(())
}

pub(crate) async fn deleted_key_is_reported_soon() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let client = client(&cluster, LONG).await?;
    let lock = client.lock("jobs")?;
    for young in [false, true] {
        let guard = lock.acquire().await?;
        if !young {
            sleep(WATCHED).await;
        }
        let loss = loss_of(guard);
        let key = keys(&mut asker).await?.remove(0);
        let start = Instant::now();
        asker.delete(key, None).await?;
        let (reason, at, guard) = within(SOON, loss.soon()).await??;
        ensure(reason == LossReason::Superseded, format!("{reason:?}"))?;
        let took = at.duration_since(start);
        ensure(took < REPORTED, format!("reported after {took:?}"))?;
        ensure(guard.release().await.is_err(), "a lost hold was released")?;
    }
    lock.acquire().await?.release().await?;
    Ok(())
}

pub(crate) async fn waiter_with_deleted_key_queues_again() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let guard = client(&cluster, LONG)
        .await?
        .lock("jobs")?
        .acquire()
        .await?;
    let waiter = acquire(&client(&cluster, LONG).await?.lock("jobs")?);
    let place = contenders(&mut asker, 2).await?.remove(1);
    let former = created(&mut asker, &place).await?;
    asker.delete(&*place, None).await?;
    // A new ticket may use the name of the former key, once no request of the former is under way.
    let again = contenders(&mut asker, 2).await?.remove(1);
    ensure(created(&mut asker, &again).await? > former, "it stayed")?;
    guard.release().await?;
    within(SOON, waiter.soon()).await???.release().await?;
    Ok(())
}

/// Keys that were created between the deletion and a second key of that name would not be known to come
/// before it.
pub(crate) async fn deleted_key_of_waiter_is_never_restored() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let holder = client(&cluster, LONG).await?.lock("jobs")?;
    let guard = holder.acquire().await?;
    let store = store(&cluster).await?;
    let holder = HolderId::new(ClientId::random(), 1);
    let ticket = Ticket::new(LockName::new("jobs")?, holder, LONG);
    let mut former = String::new();
    for _ in 0..3 {
        // The ticket has no watch, so that the attempt itself must notice.
        let answer = store.attempt(&ticket).await?;
        ensure(
            matches!(answer, Attempt::Held { .. }),
            format!("{answer:?}"),
        )?;
        let place = contenders(&mut asker, 2).await?.remove(1);
        ensure(place != former, format!("{place} was put again"))?;
        asker.delete(&*place, None).await?;
        former = place;
    }
    guard.release().await?;
    let answer = store.attempt(&ticket).await?;
    ensure(matches!(answer, Attempt::Granted(_)), format!("{answer:?}"))?;
    store.release(&ticket).await?;
    contenders(&mut asker, 0).await?;
    Ok(())
}

/// The revision that created a key.
async fn created(asker: &mut Client, key: &str) -> Outcome<i64> {
    let found = asker.get(key, None).await?;
    let key = found
        .kvs()
        .first()
        .ok_or_else(|| Failure::new("it is gone"))?;
    Ok(key.create_revision())
}

pub(crate) async fn compaction_does_not_disturb_waiter() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let guard = client(&cluster, LONG)
        .await?
        .lock("jobs")?
        .acquire()
        .await?;
    let mut waiter = acquire(&client(&cluster, LONG).await?.lock("jobs")?);
    contenders(&mut asker, 2).await?;
    for round in 0..3 {
        let mut revision = 0;
        for number in 0..50 {
            let put = asker
                .put("other", format!("{round} {number}"), None)
                .await?;
            revision = put.header().map_or(0, |header| header.revision());
        }
        asker.compact(revision, None).await?;
        waiter.waits_for(Duration::from_millis(200)).await?;
    }
    guard.check()?;
    let start = Instant::now();
    guard.release().await?;
    within(SOON, waiter.soon()).await???.release().await?;
    let took = start.elapsed();
    ensure(took < REPORTED, format!("served after {took:?}"))
}

/// A put that the server executes after its ticket was released would last as long as the session.
pub(crate) async fn key_of_late_request_is_deleted() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let store = store(&cluster).await?;
    let other = client_of(&store, TTL)?.lock("other")?.acquire().await?;
    let lease = lease(&store)?;
    let options = PutOptions::new().with_lease(lease);
    let late = format!("lockkit/jobs/{lease:x}-999999");
    asker.put(late, "late", Some(options)).await?;
    let lock = client(&cluster, TTL).await?.lock("jobs")?;
    let guard = within(SOON, lock.acquire()).await??;
    guard.check()?;
    guard.release().await?;
    other.check()?;
    Ok(())
}

pub(crate) async fn leaves_nothing_behind() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    {
        let (one, other) = (store(&cluster).await?, store(&cluster).await?);
        let (first, second) = (client_of(&one, TTL)?, client_of(&other, TTL)?);
        let guard = first.lock("jobs")?.acquire().await?;
        let waiter = acquire(&second.lock("jobs")?);
        contenders(&mut asker, 2).await?;
        guard.release().await?;
        waiter.soon().await??.release().await?;
        drop(second.lock("jobs")?.acquire().await?);
        second.drain().await;
        let tickets = one.counts().tickets + other.counts().tickets;
        ensure(tickets == 0, format!("{tickets} tickets are kept"))?;
        let idle = || one.counts().watches + other.counts().watches == 0;
        until("nothing is watched", async || Ok(idle())).await?;
    }
    until("no lease is left", async || {
        Ok(asker.leases().await?.leases().is_empty())
    })
    .await?;
    let left = keys(&mut asker).await?;
    ensure(left.is_empty(), format!("left: {left:?}"))
}

/// A hold counts from the last request that confirmed its session, and not from the answer to its attempt.
pub(crate) async fn lease_counts_from_last_keep_alive() -> Outcome {
    const SLOW: Duration = Duration::from_millis(300);
    let cluster = EtcdCluster::of(1).await?;
    let proxy = Proxy::start(([127, 0, 0, 1], cluster.ports()[0]).into()).await?;
    let store = builder(&[proxy.addr().port()]).connect().await?;
    let lock = client_of(&store, TTL)?.lock("jobs")?;
    lock.acquire().await?.release().await?;
    proxy.delay(Direction::Reply, SLOW);
    let guard = lock.acquire().await?;
    let left = guard.remaining();
    ensure(left < TTL - SLOW, format!("believes in {left:?}"))?;
    guard.release().await?;
    Ok(())
}
