//! The order in which waiters get the lock.

use std::time::Duration;

use conformance_tests::servers::EtcdCluster;
use conformance_tests::task::{acquire, within};
use conformance_tests::{Failure, Outcome, ensure};
use etcd_client::{AlarmAction, AlarmType, DeleteOptions, PutOptions, Txn, TxnOp};
use lockkit_core::Error;

use crate::world::{LONG, SOON, client, contenders, keys, taker};

/// The longest hand-off: less than the time after which waiters repeat their attempt.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Each waiter is a process of its own. One is this process, with a store beside that of the holder.
pub(crate) async fn serves_nine_processes_in_order() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let held = client(&cluster, LONG)
        .await?
        .lock("jobs")?
        .acquire()
        .await?;
    let mine = client(&cluster, LONG).await?.lock("jobs")?;
    let mut takers = Vec::new();
    for _ in 0..8 {
        takers.push(taker(&cluster, LONG).await?);
    }
    let mut own = None;
    let mut standing = 1;
    for (place, taker) in takers.iter_mut().enumerate() {
        if place == 4 {
            own = Some(acquire(&mine));
            standing += 1;
            contenders(&mut asker, standing).await?;
        }
        taker.send("acquire jobs").await?;
        standing += 1;
        contenders(&mut asker, standing).await?;
    }
    let mut last = held.token().get();
    held.release().await?;
    for (place, taker) in takers.iter_mut().enumerate() {
        if place == 4
            && let Some(own) = own.take()
        {
            let guard = within(SOON, own.soon()).await???;
            ensure(guard.token().get() > last, "served out of order")?;
            last = guard.token().get();
            guard.release().await?;
        }
        let event = taker.answer(SOON).await?;
        let token = event.and_then(|event| event.token);
        let token = token.ok_or_else(|| Failure::new("not granted"))?;
        ensure(
            token > last,
            format!("{token} after {last}: served out of order"),
        )?;
        last = token;
        // No waiter behind it has the lock.
        standing = keys(&mut asker).await?.len();
        ensure(
            standing == 8 - place + usize::from(place < 4),
            format!("{standing} stand in the queue"),
        )?;
        taker.run("release").await?;
    }
    contenders(&mut asker, 0).await?;
    Ok(())
}

/// A waiter watches only the keys right before its own, whatever happens to those.
pub(crate) async fn serves_long_queue_in_order_at_once() -> Outcome {
    const WAITERS: usize = 26;
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let mut locks = Vec::new();
    for _ in 0..=WAITERS {
        locks.push(client(&cluster, LONG).await?.lock("jobs")?);
    }
    // The second time most of them have the same neighbours as before.
    for _ in 0..2 {
        let mut held = locks[WAITERS].acquire().await?;
        let mut waiters = Vec::new();
        for (place, lock) in locks[..WAITERS].iter().enumerate() {
            waiters.push((place, acquire(lock)));
            contenders(&mut asker, place + 2).await?;
        }
        // They give up: the second before one, the first, and both.
        for place in [24, 21, 19, 18] {
            waiters.remove(place).1.cancel().await;
        }
        let queue = contenders(&mut asker, waiters.len() + 1).await?;
        // This one enqueues again, behind all others.
        let waiter = waiters.remove(20);
        asker.delete(&*queue[21], None).await?;
        waiters.push(waiter);
        contenders(&mut asker, waiters.len() + 1).await?;
        for (place, waiter) in waiters {
            let last = held.token();
            held.release().await?;
            held = match within(AT_ONCE, waiter.soon()).await {
                Ok(guard) => guard??,
                Err(late) => return Err(Failure::new(format!("waiter {place}: {late}"))),
            };
            let after = held.token() > last;
            ensure(after, format!("waiter {place} is served out of order"))?;
        }
        held.release().await?;
        contenders(&mut asker, 0).await?;
    }
    Ok(())
}

/// A server without space refuses new keys, but releases work and the next waiter gets the lock.
pub(crate) async fn full_server_still_releases() -> Outcome {
    const WAITERS: usize = 12;
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let mut locks = Vec::new();
    for _ in 0..=WAITERS {
        locks.push(client(&cluster, LONG).await?.lock("jobs")?);
    }
    let mut held = locks[WAITERS].acquire().await?;
    let mut waiters = Vec::new();
    for (place, lock) in locks[..WAITERS].iter().enumerate() {
        waiters.push(acquire(lock));
        contenders(&mut asker, place + 2).await?;
    }
    asker
        .alarm(AlarmAction::Activate, AlarmType::Nospace, None)
        .await?;
    let full = asker.put("other", "", None).await;
    ensure(full.is_err(), "the server takes more")?;
    for waiter in waiters {
        within(SOON, held.release()).await??;
        held = within(SOON, waiter.soon()).await???;
    }
    within(SOON, held.release()).await??;
    contenders(&mut asker, 0).await?;
    Ok(())
}

/// The keys of one lock together are longer than a message may be: 4 MB. No request reads them all at once.
pub(crate) async fn long_queue_of_a_long_name_is_read_in_parts() -> Outcome {
    const WAITERS: usize = 3000;
    const TXN: usize = 100;
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let lease = asker.lease_grant(600, None).await?.id();
    let directory = format!("lockkit/{}/", "%2F".repeat(512));
    for first in (0..WAITERS).step_by(TXN) {
        let put = |number| {
            let options = PutOptions::new().with_lease(lease);
            TxnOp::put(format!("{directory}{lease:x}-{number}"), "", Some(options))
        };
        let puts: Vec<_> = (first..first + TXN).map(put).collect();
        asker.txn(Txn::new().and_then(puts)).await?;
    }
    let lock = client(&cluster, LONG).await?.lock("/".repeat(512))?;
    let late = lock.acquire_timeout(Duration::from_secs(1)).await;
    let is_late = matches!(late, Err(Error::Timeout { .. }));
    ensure(is_late, format!("{late:?}"))?;
    let seen = lock.inspect().await?;
    let waiters = seen.as_ref().and_then(|state| state.waiters);
    let all = waiters.is_some_and(|count| count as usize >= WAITERS - 1);
    ensure(all, format!("{waiters:?} wait"))?;
    let options = DeleteOptions::new().with_prefix();
    asker.delete(directory, Some(options)).await?;
    let guard = within(AT_ONCE, lock.acquire()).await??;
    guard.release().await?;
    Ok(())
}
