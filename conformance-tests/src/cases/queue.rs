//! The queue of a store: its order, and waiters that die in it. P3.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::Lease;
use lockkit_core::contract::{Attempt, LockState};
use lockkit_core::layers::{Fault, Operation, Rule};
use tokio::time::timeout;

use crate::case::{Case, Need};
use crate::ctx::{Ctx, waiter_count};
use crate::failure::{Failure, Outcome, ensure};
use crate::namespace::Hook;
use crate::task::{AT_ONCE, acquire, soon, spawn, until, within};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(clients_are_served_in_order).needs(Need::Fifo),
        Case::new(waiters_that_give_up_let_no_other_in_early).needs(Need::Fifo),
        Case::new(one_place_in_the_queue_for_all_tasks_of_a_client).needs(Need::Fifo),
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
        Case::new(late_attempt_of_a_withdrawn_waiter_delays_no_other)
            .needs(Need::Fifo)
            .needs(Need::LeasePerHold),
        Case::new(waiter_of_an_ended_session_is_passed_over)
            .needs(Need::Fifo)
            .hook(Hook::ExpireSession),
        Case::new(waiter_whose_session_ended_holds_with_a_new_one)
            .needs(Need::Fifo)
            .hook(Hook::ExpireSession),
        Case::new(session_takes_a_hold_and_a_waiter_at_once)
            .needs(Need::Fifo)
            .hook(Hook::ExpireSession),
    ]
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
            Ok::<_, lockkit_core::Error>(token)
        }));
        ctx.queued(&first, place).await?;
    }
    held.release().await?;
    let mut tokens = Vec::new();
    for waiter in waiters {
        tokens.push(waiter.soon().await??);
    }
    let grow = tokens.is_sorted_by(|one, next| one < next);
    ensure(grow, format!("out of order: {tokens:?}"))
}

/// The two waiters in front of the last one give up. No waiter mistakes them for holders that released.
async fn waiters_that_give_up_let_no_other_in_early(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let first = ctx.client().await?.lock(name.as_str())?;
    let held = first.acquire().await?;
    let mut waiters = Vec::new();
    for place in 1..=12 {
        waiters.push(acquire(&ctx.client().await?.lock(name.as_str())?));
        ctx.queued(&first, place).await?;
    }
    let empty = || Failure::new("the queue is empty");
    let mut last = waiters.pop().ok_or_else(empty)?;
    let nearest = waiters.pop().ok_or_else(empty)?;
    let second = waiters.pop().ok_or_else(empty)?;
    for (left, waiter) in [(11, second), (10, nearest)] {
        waiter.cancel().await;
        ctx.queued_exactly(&first, left).await?;
    }
    last.waits_for(Duration::from_millis(300)).await?;
    held.release().await?;
    for waiter in waiters {
        let guard = waiter.soon().await??;
        last.waits_for(Duration::from_millis(5)).await?;
        guard.release().await?;
    }
    Ok(last.soon().await??.release().await?)
}

/// However many tasks of a client wait, the store sees one waiter.
async fn one_place_in_the_queue_for_all_tasks_of_a_client(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire().await?;
    let mut waiters = Vec::new();
    for _ in 0..16 {
        let lock = b.clone();
        let mut waiter = spawn(async move { lock.acquire().await?.release().await });
        waiter.waits_for(Duration::from_millis(5)).await?;
        waiters.push(waiter);
    }
    ctx.queued(&a, 1).await?;
    let count = waiter_count(&a).await?;
    ensure(count <= Some(1), format!("{count:?}"))?;
    guard.release().await?;
    for waiter in waiters {
        waiter.soon().await??;
    }
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
    // Much sooner than the lease of the dead one ends.
    within(AT_ONCE, waiter.soon()).await???.release().await?;
    Ok(())
}

/// A waiter that died and was made the holder all the same keeps the lock for a window, and not for
/// its whole lease.
async fn dead_waiter_keeps_a_grant_briefly(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let a = ctx.client().await?.lock(name.as_str())?;
    let guard = a.acquire().await?;
    let long = ctx.long().ttl();
    let dead = ctx.ticket(&name)?.with_ttl(long);
    let answer = ctx.store().await?.attempt(&dead).await?;
    ensure(matches!(answer, Attempt::Held { .. }), "two hold at once")?;
    let waiter = acquire(&ctx.client().await?.lock(name.as_str())?);
    ctx.queued(&a, 2).await?;
    guard.release().await?;
    let window = lockkit_core::queue_window(ctx.capabilities(), long);
    within(window + AT_ONCE * 2, waiter.soon())
        .await???
        .release()
        .await?;
    Ok(())
}

/// A waiter that goes at the moment at which it is made the holder passes the lock on.
async fn withdrawn_waiter_passes_the_lock_on(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let a = long_lock(ctx, &name).await?;
    let guard = a.acquire().await?;
    let store = ctx.store().await?;
    let ticket = ctx.ticket(&name)?.with_ttl(ctx.long().ttl());
    let answer = store.attempt(&ticket).await?;
    ensure(matches!(answer, Attempt::Held { .. }), "two hold at once")?;
    let mut waiter = acquire(&long_lock(ctx, &name).await?);
    ctx.queued(&a, 2).await?;
    waiter.waits_for(Duration::from_millis(100)).await?;
    guard.release().await?;
    store.release(&ticket).await?;
    within(AT_ONCE, waiter.soon()).await???.release().await?;
    Ok(())
}

/// An attempt that reaches the store after its ticket was withdrawn takes no place in the queue, for
/// whose turn the others would wait, and no free lock, which would be held for a lease.
async fn late_attempt_of_a_withdrawn_waiter_delays_no_other(ctx: &Ctx) -> Outcome {
    let late = Duration::from_millis(300);
    let fault = Fault::Late {
        min: late,
        max: late,
    };
    for held in [true, false] {
        let (client, faults) = ctx.faulty().await?;
        let name = ctx.name();
        let a = long_lock(ctx, &name).await?;
        let guard = if held { Some(a.acquire().await?) } else { None };
        faults.inject(Rule::new(fault).on(Operation::Attempt));
        let gone = client.lock(name.as_str())?.with_lease(ctx.long())?;
        drop(timeout(late / 3, gone.acquire()).await);
        soon(faults.settled()).await?;
        ensure(faults.injected() > 0, "the fault did not take place")?;
        faults.heal();
        soon(client.drain()).await?;
        let waiter = acquire(&long_lock(ctx, &name).await?);
        if let Some(guard) = guard {
            ctx.queued(&a, 1).await?;
            guard.release().await?;
        }
        within(AT_ONCE, waiter.soon()).await???.release().await?;
    }
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
    ctx.namespace().expire_session(&*store).await?;
    guard.release().await?;
    let free = async || Ok(a.inspect().await?.is_none());
    until("the lock is free", free).await?;
    let guard = a.try_acquire().await?;
    ensure(guard.is_some(), "a dead session's waiter has the lock")
}

/// A client whose session ends while it waits begins again: what it is granted, it has.
async fn waiter_whose_session_ended_holds_with_a_new_one(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let a = ctx.client().await?.lock(name.as_str())?;
    let guard = a.acquire().await?;
    let store = ctx.store().await?;
    let b = ctx.builder(Arc::clone(&store)).build()?.lock(name)?;
    let mut waiter = acquire(&b);
    ctx.queued(&a, 1).await?;
    waiter.waits_for(Duration::from_millis(100)).await?;
    ctx.namespace().expire_session(&*store).await?;
    guard.release().await?;
    holds(&a, waiter.soon().await??).await
}

/// Two clients on one session: the one that waits does not take the place of the one that held.
async fn session_takes_a_hold_and_a_waiter_at_once(ctx: &Ctx) -> Outcome {
    let (name, store) = (ctx.name(), ctx.store().await?);
    let client = async || ctx.builder(Arc::clone(&store)).build();
    let a = client().await?.lock(name.as_str())?;
    let b = client().await?.lock(name.as_str())?;
    let other = ctx.client().await?.lock(name)?;
    let _guard = a.acquire().await?;
    let mut waiter = acquire(&b);
    ctx.queued(&other, 1).await?;
    waiter.waits_for(Duration::from_millis(100)).await?;
    ctx.namespace().expire_session(&*store).await?;
    holds(&other, waiter.soon().await??).await
}

/// The store says so too.
async fn holds(lock: &lockkit_core::Lock, guard: lockkit_core::Guard) -> Outcome {
    let state = lock.inspect().await?;
    let ids = state.iter().flat_map(LockState::holder_ids);
    ensure(
        ids.eq([guard.holder().to_string()]),
        format!("granted to {}, but {state:?}", guard.holder()),
    )?;
    guard.release().await?;
    Ok(())
}

/// The lock of one more client, with the long lease.
async fn long_lock(ctx: &Ctx, name: &str) -> Outcome<lockkit_core::Lock> {
    let lock = ctx.client().await?.lock(name)?;
    Ok(lock.with_lease(ctx.long())?)
}
