//! Sessions and nodes that end from outside.

use std::sync::Arc;
use std::time::Duration;

use conformance_tests::loss::loss_of;
use conformance_tests::proxy::{Direction, Flow, Proxy};
use conformance_tests::setups::ZkSetup;
use conformance_tests::task::{acquire, elsewhere, spawn, until, within};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::{Lease, LockClient, LossReason, window};
use lockkit_zk::ZkStore;
use tokio::time::{Instant, sleep, timeout};

use crate::world::{LONG, Plot, SOON, TTL, client, client_of};

pub(crate) async fn ended_session_is_reported_to_holder_and_waiter() -> Outcome {
    let plot = Plot::new().await?;
    let (a, b) = (client(plot.builder()).await?, client(plot.builder()).await?);
    let guard = a.lock("jobs")?.acquire().await?;
    let waiter = acquire(&b.lock("jobs")?);
    plot.queued(2).await?;
    let first = guard.token();
    expire(&b).await?;
    // Its place is gone; it takes another at the end of the queue.
    until("the waiter stands in the queue again", async || {
        Ok(plot.queue().await?.len() == 2)
    })
    .await?;
    let loss = loss_of(guard);
    // Old enough to be watched.
    sleep(Duration::from_millis(300)).await;
    expire(&a).await?;
    let (reason, _, guard) = within(SOON, loss.soon()).await??;
    ensure(reason == LossReason::SessionEnded, format!("{reason:?}"))?;
    ensure(guard.check().is_err(), "a lost guard passes its check")?;
    let next = within(SOON, waiter.soon()).await???;
    ensure(next.token() > first, "the token did not grow")?;
    next.release().await?;
    // Another session of the same client.
    within(SOON, a.lock("jobs")?.acquire())
        .await??
        .release()
        .await?;
    plot.queued(0).await
}

pub(crate) async fn expire(client: &LockClient) -> Outcome {
    let store: Option<&ZkStore> = client.store();
    let store = store.ok_or_else(|| Failure::new("another store"))?;
    ZkSetup::expire(store).await
}

pub(crate) async fn deleted_node_is_a_loss_at_once() -> Outcome {
    let plot = Plot::new().await?;
    let (a, b) = (plot.lock().await?, plot.lock().await?);
    for waited in [false, true] {
        let guard = if waited {
            let before = b.acquire().await?;
            let waiter = acquire(&a);
            plot.queued(2).await?;
            before.release().await?;
            within(SOON, waiter.soon()).await???
        } else {
            a.acquire().await?
        };
        let waiter = acquire(&b);
        plot.queued(2).await?;
        let token = guard.token();
        let loss = loss_of(guard);
        sleep(Duration::from_millis(300)).await;
        let deleted = Instant::now();
        plot.delete(0).await?;
        let (reason, lost, guard) = within(SOON, loss.soon()).await??;
        ensure(reason == LossReason::Superseded, format!("{reason:?}"))?;
        let took = lost - deleted;
        // A hundred milliseconds and a round trip, on a busy machine.
        ensure(
            took < Duration::from_secs(1),
            format!("reported after {took:?}"),
        )?;
        ensure(guard.check().is_err(), "a lost guard passes its check")?;
        let next = within(SOON, waiter.soon()).await???;
        ensure(next.token() > token, "the token did not grow")?;
        next.release().await?;
    }
    plot.queued(0).await
}

/// A waiter whose node is deleted, and then the one before it: it does not hold by a node that is not
/// there.
pub(crate) async fn deleted_node_of_a_waiter_is_no_grant() -> Outcome {
    let plot = Plot::new().await?;
    let (a, b, c) = (plot.lock().await?, plot.lock().await?, plot.lock().await?);
    for _ in 0..5 {
        let guard = a.acquire().await?;
        let second = acquire(&b);
        plot.queued(2).await?;
        let third = acquire(&c);
        plot.queued(3).await?;
        plot.delete(1).await?;
        plot.delete(0).await?;
        // The third one was before the second one's new place.
        let third = within(SOON, third.soon()).await???;
        let state = c
            .inspect()
            .await?
            .ok_or_else(|| Failure::new("there is no holder"))?;
        ensure(state.token == Some(third.token()), format!("{state:?}"))?;
        third.release().await?;
        let second = within(SOON, second.soon()).await???;
        let state = b
            .inspect()
            .await?
            .ok_or_else(|| Failure::new("there is no holder"))?;
        ensure(state.token == Some(second.token()), format!("{state:?}"))?;
        second.release().await?;
        drop(guard);
    }
    plot.queued(0).await
}

pub(crate) async fn deleted_parent_is_created_again() -> Outcome {
    let plot = Plot::new().await?;
    let (a, b) = (plot.lock().await?, plot.lock().await?);
    let mut last = None;
    for _ in 0..3 {
        let guard = a.acquire().await?;
        let waiter = acquire(&b);
        plot.queued(2).await?;
        let loss = loss_of(guard);
        sleep(Duration::from_millis(200)).await;
        // The last one first, so that no waiter is granted the lock by a deletion. A waiter that creates
        // its node again meanwhile keeps the parent.
        for node in plot.queue().await?.into_iter().rev() {
            plot.bare
                .delete(&format!("{}/{node}", plot.dir()), None)
                .await?;
        }
        drop(plot.bare.delete(&plot.dir(), None).await);
        let (reason, ..) = within(SOON, loss.soon()).await??;
        ensure(reason == LossReason::Superseded, format!("{reason:?}"))?;
        let next = within(SOON, waiter.soon()).await???;
        ensure(last < Some(next.token()), "the token did not grow")?;
        last = Some(next.token());
        next.release().await?;
        plot.queued(0).await?;
        // Numbers begin again, tokens do not.
        drop(plot.bare.delete(&plot.dir(), None).await);
        let guard = a.acquire().await?;
        ensure(last < Some(guard.token()), "the token did not grow")?;
        guard.release().await?;
    }
    Ok(())
}

/// The session lasts on and so do its other holds; an extension moves the end, and never backwards.
pub(crate) async fn client_alone_ends_a_fixed_lease() -> Outcome {
    let plot = Plot::new().await?;
    let (client, other) = (client(plot.builder()).await?, plot.lock().await?);
    let kept = client.lock("kept")?.acquire().await?;
    let fixed = client.lock("jobs")?.with_lease(Lease::fixed(TTL))?;
    let guard = fixed.acquire().await?;
    let waiter = acquire(&other);
    plot.queued(2).await?;
    let extended = Instant::now();
    guard.extend(TTL * 2).await?;
    guard.extend(TTL).await?;
    let (reason, lost, guard) = within(TTL * 2 + SOON, loss_of(guard).soon()).await??;
    ensure(reason == LossReason::Expired, format!("{reason:?}"))?;
    let lasted = lost - extended;
    let meant = window(TTL * 2)..TTL * 2 + Duration::from_secs(1);
    ensure(meant.contains(&lasted), format!("it lasted {lasted:?}"))?;
    ensure(guard.check().is_err(), "a lost guard passes its check")?;
    within(SOON, waiter.soon()).await???.release().await?;
    kept.check()?;
    kept.release().await?;
    plot.queued(0).await
}

/// Two hundred acquires that are dropped at random moments.
pub(crate) async fn two_hundred_dropped_acquires_leave_nothing() -> Outcome {
    let plot = Plot::new().await?;
    let builder = || plot.builder().session(LONG);
    let clients = [client(builder()).await?, client(builder()).await?];
    drop_many(&clients, 200).await?;
    is_free(&plot, &clients).await
}

pub(crate) async fn drop_many(clients: &[LockClient; 2], count: u32) -> Outcome {
    let mut tasks = Vec::new();
    for (n, client) in (0..count).zip(clients.iter().cycle()) {
        let lock = client.lock("jobs")?;
        tasks.push(spawn(async move {
            let limit = Duration::from_micros(fastrand::u64(0..30_000));
            drop(timeout(limit, lock.acquire()).await);
        }));
        if n % 8 == 0 {
            sleep(Duration::from_millis(3)).await;
        }
    }
    for task in tasks {
        task.soon().await?;
    }
    Ok(())
}

/// Nothing is left of what was dropped, and a try succeeds at once.
pub(crate) async fn is_free(plot: &Plot, clients: &[LockClient; 2]) -> Outcome {
    for client in clients {
        within(SOON * 2, client.drain()).await?;
    }
    plot.queued(0).await?;
    let guard = clients[0].lock("jobs")?.try_acquire().await?;
    let guard = guard.ok_or_else(|| Failure::new("a free lock was refused"))?;
    guard.release().await?;
    Ok(())
}

/// The store is of another runtime, and its session goes on.
pub(crate) async fn hold_ends_with_the_runtime_of_its_client() -> Outcome {
    let plot = Plot::new().await?;
    let store = Arc::new(plot.builder().session(LONG).connect().await?);
    let there = Arc::clone(&store);
    elsewhere(async move || {
        let client = client_of(there, LONG)?;
        client.lock("jobs")?.acquire().await?.leak();
        Ok(())
    })
    .await?;
    plot.queued(0).await?;
    ensure(store.tickets() == 0, "a ticket is kept")
}

/// The change of a node ends its watch: its deletion is seen only once it is watched again.
pub(crate) async fn changed_node_of_a_waiter_is_no_grant_before_it_is_watched() -> Outcome {
    let plot = Plot::new().await?;
    let proxy = Proxy::start(([127, 0, 0, 1], plot.port).into()).await?;
    let waiting = client(plot.builder_at(proxy.addr().port()).session(LONG)).await?;
    let (first, second) = (plot.lock().await?, waiting.lock("jobs")?);
    for _ in 0..5 {
        let guard = first.acquire().await?;
        let mut waiter = acquire(&second);
        plot.queued(2).await?;
        waiter.waits_for(Duration::from_millis(300)).await?;
        // The events come together, and what the client sends then does not arrive.
        proxy.flow(Direction::Reply, Flow::Hold);
        let queue = plot.queue().await?;
        let own = queue.last().ok_or_else(|| Failure::new("no node waits"))?;
        let own = format!("{}/{own}", plot.dir());
        plot.bare.set_data(&own, b"", None).await?;
        plot.bare.delete(&own, None).await?;
        guard.release().await?;
        sleep(Duration::from_millis(100)).await;
        proxy.flow(Direction::Request, Flow::Hold);
        proxy.flow(Direction::Reply, Flow::Pass);
        waiter.waits_for(Duration::from_millis(300)).await?;
        proxy.heal();
        let guard = within(SOON, waiter.soon()).await???;
        guard.check()?;
        guard.release().await?;
    }
    Ok(())
}
