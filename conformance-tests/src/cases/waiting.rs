//! Everybody is served, also when wake-ups are lost. P3.

use std::time::Duration;

use lockkit_core::backend::Attempt;
use lockkit_core::wrap::{Fault, Operation, Rule};
use lockkit_core::{Error, Lease};
use tokio::time::Instant;

use crate::case::{Case, Need};
use crate::ctx::{Ctx, acquire, soon, spawn, until, within};
use crate::failure::{Failure, Outcome, ensure};
use crate::setup::Hook;

/// What a user takes for "at once" on a busy machine; shorter than any re-check of a long lease.
const AT_ONCE: Duration = Duration::from_millis(1500);
/// Long enough that a waiter looks again only after the longest time that the store allows.
const LONG: Duration = Duration::from_secs(30);

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(timeout_ends_the_wait),
        Case::new(zero_timeout_takes_a_free_lock),
        Case::new(waiter_gets_the_lock_after_release),
        Case::new(every_client_is_served),
        Case::new(clients_are_served_in_order).needs(Need::Fifo),
        Case::new(tasks_of_one_client_are_served_in_order),
        Case::new(local_waiters_have_their_own_deadlines),
        Case::new(one_place_in_the_queue_for_all_tasks_of_a_client).needs(Need::Fifo),
        Case::new(release_wakes_the_waiter_at_once)
            .needs(Need::Push)
            .needs(Need::LeasePerHold),
        Case::new(early_wake_up_is_kept)
            .needs(Need::Push)
            .needs(Need::LeasePerHold),
        Case::new(served_when_wake_ups_are_lost_on_the_way).needs(Need::Push),
        Case::new(served_when_the_store_loses_wake_ups).hook(Hook::LosePushes),
        Case::new(poller_finds_a_free_lock).needs(Need::Poll),
        Case::new(dead_waiter_leaves_the_queue)
            .needs(Need::Fifo)
            .needs(Need::LeasePerHold),
        Case::new(dead_waiter_keeps_a_grant_briefly)
            .needs(Need::Fifo)
            .needs(Need::Push)
            .needs(Need::LeasePerHold),
        Case::new(withdrawn_waiter_passes_the_lock_on)
            .needs(Need::Fifo)
            .needs(Need::Push)
            .needs(Need::LeasePerHold),
        Case::new(waiter_of_an_ended_session_is_passed_over)
            .needs(Need::Fifo)
            .hook(Hook::ExpireSession),
    ]
}

/// A bounded wait ends with `Timeout`, not before its limit and not long after it.
async fn timeout_ends_the_wait(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire().await?;
    let limit = Duration::from_millis(300);
    let start = Instant::now();
    let error = soon(b.acquire_timeout(limit)).await?.err();
    let waited = start.elapsed();
    ensure(
        matches!(error, Some(Error::Timeout { .. })),
        format!("{error:?}"),
    )?;
    ensure(waited >= limit, format!("gave up after {waited:?}"))?;
    ensure(
        waited < limit * 10,
        format!("gave up only after {waited:?}"),
    )?;
    guard.release().await?;
    Ok(())
}

/// No time to wait is enough for a lock that is free.
async fn zero_timeout_takes_a_free_lock(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire_timeout(Duration::ZERO).await?;
    let error = b.acquire_timeout(Duration::ZERO).await.err();
    ensure(
        matches!(error, Some(Error::Timeout { .. })),
        format!("{error:?}"),
    )?;
    guard.release().await?;
    let guard = soon(b.acquire_timeout(Ctx::PATIENCE)).await??;
    guard.release().await?;
    Ok(())
}

/// A waiter is served after a release, and after a drop.
async fn waiter_gets_the_lock_after_release(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire().await?;
    let waiter = acquire(&b);
    ctx.queued(&b, 1).await?;
    guard.release().await?;
    let guard = waiter.soon().await??;
    let waiter = acquire(&a);
    ctx.queued(&a, 1).await?;
    drop(guard);
    waiter.soon().await??.release().await?;
    Ok(())
}

/// Eight clients that want the lock at once all get it.
async fn every_client_is_served(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let lock = ctx.client().await?.lock(name.as_str())?;
        tasks.push(spawn(async move {
            let guard = lock.acquire().await?;
            tokio::time::sleep(Duration::from_millis(5)).await;
            guard.release().await
        }));
    }
    for task in tasks {
        task.soon().await??;
    }
    Ok(())
}

/// Clients get the lock in the order in which they asked for it.
async fn clients_are_served_in_order(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let first = ctx.client().await?.lock(name.as_str())?;
    let held = first.acquire().await?;
    let mut waiters = Vec::new();
    for place in 1..=5 {
        let lock = ctx.client().await?.lock(name.as_str())?;
        waiters.push(spawn(async move {
            let guard = lock.acquire().await?;
            let token = guard.token();
            guard.release().await?;
            Ok::<_, Error>(token)
        }));
        ctx.queued(&first, place).await?;
    }
    held.release().await?;
    let mut tokens = Vec::new();
    for waiter in waiters {
        tokens.push(waiter.soon().await??);
    }
    ensure(tokens.is_sorted(), format!("out of order: {tokens:?}"))
}

/// Tasks of one client get the lock in the order in which they asked for it.
async fn tasks_of_one_client_are_served_in_order(ctx: &Ctx) -> Outcome {
    let lock = ctx.client().await?.lock(ctx.name())?;
    let held = lock.acquire().await?;
    let mut waiters = Vec::new();
    for _ in 0..5 {
        let mut waiter = acquire(&lock);
        // One turn of the queue each, so that their order is known.
        waiter.waits_for(Duration::from_millis(30)).await?;
        waiters.push(waiter);
    }
    held.release().await?;
    let mut last = None;
    for waiter in waiters {
        let guard = waiter.soon().await??;
        let token = Some(guard.token());
        ensure(token > last, "served out of order")?;
        last = token;
        guard.release().await?;
    }
    Ok(())
}

/// Of two tasks that wait in one client the impatient one gives up and the other is served.
async fn local_waiters_have_their_own_deadlines(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire().await?;
    let impatient = b.clone();
    let impatient =
        spawn(async move { impatient.acquire_timeout(Duration::from_millis(200)).await });
    let patient = acquire(&b);
    let error = impatient.soon().await?.err();
    ensure(
        matches!(error, Some(Error::Timeout { .. })),
        format!("{error:?}"),
    )?;
    guard.release().await?;
    patient.soon().await??.release().await?;
    Ok(())
}

/// However many tasks of a client wait, the store sees one waiter.
async fn one_place_in_the_queue_for_all_tasks_of_a_client(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire().await?;
    let mut waiters = Vec::new();
    for _ in 0..16 {
        let mut waiter = acquire(&b);
        waiter.waits_for(Duration::from_millis(5)).await?;
        waiters.push(waiter);
    }
    ctx.queued(&a, 1).await?;
    let state = a.inspect().await?;
    let count = state.and_then(|state| state.waiters);
    ensure(count.is_none_or(|count| count == 1), format!("{count:?}"))?;
    guard.release().await?;
    for waiter in waiters {
        waiter.soon().await??.release().await?;
    }
    Ok(())
}

/// With wake-ups, a waiter does not have to wait for its next look.
async fn release_wakes_the_waiter_at_once(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let (a, b) = (long(a)?, long(b)?);
    let guard = a.acquire().await?;
    let mut waiter = acquire(&b);
    waiter.waits_for(Duration::from_millis(200)).await?;
    guard.release().await?;
    within(AT_ONCE, waiter.soon()).await???.release().await?;
    Ok(())
}

/// A wake-up that comes between the attempt and the opening of the watch is not lost.
async fn early_wake_up_is_kept(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let name = ctx.name();
    let a = long(ctx.client().await?.lock(name.as_str())?)?;
    let b = long(client.lock(name.as_str())?)?;
    let guard = a.acquire().await?;
    let slow = Duration::from_millis(300);
    let delay = Fault::Delay {
        min: slow,
        max: slow,
    };
    faults.inject(Rule::new(delay).on(Operation::Watch));
    let waiter = acquire(&b);
    soon(faults.called(Operation::Watch, 1)).await?;
    guard.release().await?;
    within(AT_ONCE + slow, waiter.soon())
        .await???
        .release()
        .await?;
    Ok(())
}

/// A client that never hears a wake-up is served by its own looks.
async fn served_when_wake_ups_are_lost_on_the_way(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let name = ctx.name();
    let a = ctx.client().await?.lock(name.as_str())?;
    let b = client.lock(name.as_str())?;
    faults.lose_wakes(1.0);
    let guard = a.acquire().await?;
    let mut waiter = acquire(&b);
    waiter.waits_for(ctx.ttl() / 4).await?;
    guard.release().await?;
    waiter.soon().await??.release().await?;
    Ok(())
}

/// A store whose wake-ups all get lost serves everybody all the same.
async fn served_when_the_store_loses_wake_ups(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    ctx.site().lose_pushes(true).await?;
    let guard = a.acquire().await?;
    let mut waiter = acquire(&b);
    waiter.waits_for(ctx.ttl() / 4).await?;
    guard.release().await?;
    waiter.soon().await??.release().await?;
    Ok(())
}

/// A waiter that polls sees a free lock after its longest pause at the latest.
async fn poller_finds_a_free_lock(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire().await?;
    let mut waiter = acquire(&b);
    // Long enough for its pauses to have grown.
    waiter.waits_for(ctx.ttl()).await?;
    guard.release().await?;
    let longest = ctx.capabilities().poll.max;
    within(longest + AT_ONCE, waiter.soon())
        .await???
        .release()
        .await?;
    Ok(())
}

/// A waiter that died while others hold is forgotten, and the next one is not kept waiting for it.
async fn dead_waiter_leaves_the_queue(ctx: &Ctx) -> Outcome {
    let ttl = Duration::from_secs(3);
    let name = ctx.name();
    let a = ctx.client().await?.lock(name.as_str())?;
    let guard = a.acquire().await?;
    let dead = ctx.ticket(&name)?.with_ttl(ttl);
    let answer = ctx.store().await?.attempt(&dead).await?;
    ensure(matches!(answer, Attempt::Held { .. }), "two hold at once")?;
    let b = ctx.client().await?.lock(name.as_str())?;
    let b = b.with_lease(Lease::renewed(ttl))?;
    let mut waiter = acquire(&b);
    let window = lockkit_core::queue_window(ctx.capabilities(), ttl);
    waiter.waits_for(window + window / 4).await?;
    guard.release().await?;
    within(window / 2, waiter.soon()).await???.release().await?;
    Ok(())
}

/// A waiter that died and is made the holder keeps the lock for the window of its place, and not for
/// its whole lease.
async fn dead_waiter_keeps_a_grant_briefly(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let a = ctx.client().await?.lock(name.as_str())?;
    let guard = a.acquire().await?;
    let dead = ctx.ticket(&name)?.with_ttl(LONG);
    let answer = ctx.store().await?.attempt(&dead).await?;
    ensure(matches!(answer, Attempt::Held { .. }), "two hold at once")?;
    let waiter = acquire(&ctx.client().await?.lock(name.as_str())?);
    ctx.queued(&a, 2).await?;
    guard.release().await?;
    let window = lockkit_core::queue_window(ctx.capabilities(), LONG);
    within(window + AT_ONCE * 2, waiter.soon())
        .await???
        .release()
        .await?;
    Ok(())
}

/// A waiter that goes at the moment at which it is made the holder passes the lock on.
async fn withdrawn_waiter_passes_the_lock_on(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let a = long(ctx.client().await?.lock(name.as_str())?)?;
    let guard = a.acquire().await?;
    let store = ctx.store().await?;
    let ticket = ctx.ticket(&name)?.with_ttl(LONG);
    let answer = store.attempt(&ticket).await?;
    ensure(matches!(answer, Attempt::Held { .. }), "two hold at once")?;
    let mut waiter = acquire(&long(ctx.client().await?.lock(name.as_str())?)?);
    ctx.queued(&a, 2).await?;
    waiter.waits_for(Duration::from_millis(100)).await?;
    guard.release().await?;
    store.release(&ticket).await?;
    within(AT_ONCE, waiter.soon()).await???.release().await?;
    Ok(())
}

/// When a session ends, its waiters are not granted anything any more.
async fn waiter_of_an_ended_session_is_passed_over(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let a = ctx.client().await?.lock(name.as_str())?;
    let guard = a.acquire().await?;
    let store = ctx.store().await?;
    let ticket = ctx.ticket(&name)?;
    store.attempt(&ticket).await?;
    ctx.site().expire_session(&*store).await?;
    guard.release().await?;
    let free = async || Ok(a.inspect().await?.is_none());
    until("the lock is free", free).await?;
    let guard = a.try_acquire().await?;
    ensure(guard.is_some(), "a dead session's waiter has the lock")
}

fn long(lock: lockkit_core::Lock) -> Outcome<lockkit_core::Lock> {
    lock.with_lease(Lease::renewed(LONG)).map_err(Failure::from)
}
