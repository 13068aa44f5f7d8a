//! A store does what its capabilities say, and nothing that they deny.

use std::time::Duration;

use lockkit_core::contract::{Attempt, Wake};
use lockkit_core::{EndsBy, Error, Lease, LockClient, PollRange, TtlOf, Waiting, window};
use tokio::time::{Instant, sleep, timeout};

use crate::case::{Case, Need};
use crate::ctx::Ctx;
use crate::failure::{Failure, Outcome, ensure};
use crate::namespace::Hook;
use crate::requests::{granted, must_renew};
use crate::task::{AT_ONCE, acquire, soon, within};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(every_handle_says_the_same),
        Case::new(limits_make_sense),
        Case::new(shortest_lease_is_honoured),
        Case::new(shorter_lease_is_refused),
        Case::new(longest_lease_is_honoured),
        Case::new(longer_lease_is_refused).needs(Need::LeasePerHold),
        Case::new(lease_between_two_steps_is_refused).needs(Need::LeasePerHold),
        Case::new(leases_per_hold_end_one_by_one)
            .needs(Need::LeasePerHold)
            .needs(Need::StoreEndsLeases),
        Case::new(leases_per_session_last_together).needs(Need::LeasePerSession),
        Case::new(barging_queue_lets_a_newcomer_in).needs(Need::Barging),
        Case::new(push_wakes_a_waiter).needs(Need::Push),
        Case::new(poll_opens_no_watch).needs(Need::Poll),
        Case::new(loss_is_reported)
            .needs(Need::TellsLoss)
            .hook(Hook::ExpireSession),
        Case::new(session_or_process_keeps_a_hold_without_renewals).needs(Need::OutlivesItsLease),
        Case::new(modes_are_supported_or_refused),
        Case::new(notes_and_handover_are_supported_or_refused),
    ]
}

/// What the setup says, what each handle says and what it says later are the same.
async fn every_handle_says_the_same(ctx: &Ctx) -> Outcome {
    let store = ctx.store().await?;
    let said = store.capabilities();
    ensure(said == *ctx.capabilities(), "the setup says something else")?;
    drop(ctx.client().await?.lock(ctx.name())?.acquire().await?);
    ensure(store.capabilities() == said, "it changed with use")?;
    let other = ctx.store().await?;
    ensure(
        other.capabilities() == said,
        "another handle says something else",
    )?;
    ensure(other.backend() == store.backend(), "another name")?;
    ensure(!store.backend().is_empty(), "no name")
}

/// Ranges are ranges.
async fn limits_make_sense(ctx: &Ctx) -> Outcome {
    let can = ctx.capabilities();
    ensure(!can.min_ttl.is_zero(), "leases of no length")?;
    ensure(can.min_ttl <= can.max_ttl, "no lease is possible")?;
    let PollRange { min, max, .. } = can.poll;
    ensure(!min.is_zero() && min <= max, format!("{:?}", can.poll))?;
    ensure(!can.recheck.is_zero(), "waiters look again without a pause")?;
    // The default lease must be possible: a client is made without options.
    LockClient::builder_arc(ctx.store().await?).build()?;
    Ok(())
}

/// The shortest lease can be taken, and lasts.
async fn shortest_lease_is_honoured(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let min = ctx.capabilities().min_ttl;
    let start = Instant::now();
    let guard = a.with_lease(Lease::fixed(min))?.acquire().await?;
    ensure(guard.remaining() <= min, "it lasts longer")?;
    while guard.check().is_ok() {
        let next = b.try_acquire().await?;
        ensure(next.is_none() || guard.check().is_err(), "two hold at once")?;
        sleep(min / 40).await;
    }
    let lasted = start.elapsed();
    ensure(lasted >= window(min), format!("{lasted:?} of {min:?}"))?;
    soon(b.acquire()).await??.release().await?;
    Ok(())
}

/// A shorter one is refused when it is set.
async fn shorter_lease_is_refused(ctx: &Ctx) -> Outcome {
    let lock = ctx.client().await?.lock(ctx.name())?;
    let can = ctx.capabilities();
    let step = can.ttl_step.max(Duration::from_millis(1));
    for lease in [
        Lease::fixed(can.min_ttl.saturating_sub(step)),
        Lease::renewed(can.min_ttl.saturating_sub(step)),
        Lease::fixed(Duration::ZERO),
    ] {
        refused(lock.clone().with_lease(lease))?;
        refused(
            LockClient::builder_arc(ctx.store().await?)
                .lease(lease)
                .build(),
        )?;
    }
    Ok(())
}

/// The longest lease can be taken, and the store's lasts no shorter than the client's.
async fn longest_lease_is_honoured(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let max = ctx.capabilities().max_ttl;
    let guard = a.with_lease(Lease::renewed(max))?.acquire().await?;
    let believed = guard.remaining();
    ensure(
        believed <= max && believed >= max / 2,
        format!("believes in {believed:?} of {max:?}"),
    )?;
    let state = b.inspect().await?;
    let left = state.and_then(|state| state.remaining);
    // Read after the reply: it is less than it was then.
    let believed = guard.remaining();
    let by_lease = ctx.capabilities().ends_by == EndsBy::Lease;
    ensure(
        left.map_or(!by_lease, |left| left >= believed),
        format!("{left:?} are left, and the guard counts on {believed:?}"),
    )?;
    guard.release().await?;
    Ok(())
}

/// A longer one is refused when it is set.
async fn longer_lease_is_refused(ctx: &Ctx) -> Outcome {
    let lock = ctx.client().await?.lock(ctx.name())?;
    let can = ctx.capabilities();
    let step = can.ttl_step.max(Duration::from_millis(1));
    for lease in [
        Lease::fixed(can.max_ttl + step),
        Lease::renewed(can.max_ttl + step),
        Lease::renewed(Duration::MAX),
    ] {
        refused(lock.clone().with_lease(lease))?;
    }
    Ok(())
}

/// A lease that is no multiple of the step is refused rather than rounded; the next multiple works.
async fn lease_between_two_steps_is_refused(ctx: &Ctx) -> Outcome {
    let lock = ctx.client().await?.lock(ctx.name())?;
    let step = ctx.capabilities().ttl_step;
    let broken = ctx.ttl() + Duration::from_nanos(1);
    if step <= Duration::from_nanos(1) {
        lock.with_lease(Lease::fixed(broken))?;
        return Ok(());
    }
    refused(lock.clone().with_lease(Lease::fixed(broken)))?;
    let whole = ctx.ttl() + step;
    if whole <= ctx.capabilities().max_ttl {
        let guard = lock.with_lease(Lease::fixed(whole))?.acquire().await?;
        guard.release().await?;
    }
    Ok(())
}

/// Two holds of one client with leases of their own: the short one ends, the long one stands.
async fn leases_per_hold_end_one_by_one(ctx: &Ctx) -> Outcome {
    let store = ctx.store().await?;
    let short = ctx.ticket(&ctx.name())?;
    let long = ctx.ticket(&ctx.name())?.with_ttl(ctx.ttl() * 8);
    granted(&*store, &short).await?;
    granted(&*store, &long).await?;
    let client = ctx.client().await?;
    let lock = client.lock(short.name.as_str())?;
    within(ctx.ttl() + ctx.freed_after(), lock.acquire())
        .await??
        .release()
        .await?;
    let lock = client.lock(long.name.as_str())?;
    ensure(lock.try_acquire().await?.is_none(), "both ended together")?;
    store.release(&long).await?;
    Ok(())
}

/// Two holds of one client on one session: renewing one keeps the other.
async fn leases_per_session_last_together(ctx: &Ctx) -> Outcome {
    let store = ctx.store().await?;
    let (first, second) = (ctx.ticket(&ctx.name())?, ctx.ticket(&ctx.name())?);
    granted(&*store, &first).await?;
    granted(&*store, &second).await?;
    for _ in 0..6 {
        sleep(ctx.ttl() / 3).await;
        must_renew(&*store, &first).await?;
    }
    let lock = ctx.client().await?.lock(second.name.as_str())?;
    ensure(lock.try_acquire().await?.is_none(), "it ended alone")?;
    store.release(&first).await?;
    store.release(&second).await?;
    Ok(())
}

/// Without a queue, a client that comes at the right moment gets the lock before the waiters.
async fn barging_queue_lets_a_newcomer_in(ctx: &Ctx) -> Outcome {
    let (name, store) = (ctx.name(), ctx.store().await?);
    let guard = ctx.client().await?.lock(name.as_str())?.acquire().await?;
    let waits = ctx.ticket(&name)?;
    let answer = store.attempt(&waits).await?;
    ensure(matches!(answer, Attempt::Held { .. }), "two hold at once")?;
    guard.release().await?;
    let newcomer = ctx.client().await?.lock(name)?;
    let guard = newcomer.try_acquire().await?;
    ensure(guard.is_some(), "the waiter had the lock reserved")?;
    store.release(&waits).await?;
    Ok(())
}

/// The watch of a waiter yields something after the release, and well before its next look.
async fn push_wakes_a_waiter(ctx: &Ctx) -> Outcome {
    let (name, store) = (ctx.name(), ctx.store().await?);
    let lock = ctx.client().await?.lock(name.as_str())?;
    let guard = lock.with_lease(ctx.long())?.acquire().await?;
    let ticket = ctx.ticket(&name)?;
    let answer = store.attempt(&ticket).await?;
    ensure(matches!(answer, Attempt::Held { .. }), "two hold at once")?;
    let mut watch = store.watch(&ticket).await?;
    // A retry that comes at once says only that the source was not open before.
    let early = async {
        loop {
            watch.changed().await?;
            tokio::task::yield_now().await;
        }
    };
    let ended: Result<Outcome, _> = timeout(Duration::from_millis(100), early).await;
    if let Ok(failed) = ended {
        return failed;
    }
    guard.release().await?;
    let wake = within(AT_ONCE, watch.changed()).await??;
    ensure(
        matches!(wake, Wake::Retry | Wake::Granted(_)),
        format!("{wake:?}"),
    )?;
    store.release(&ticket).await?;
    Ok(())
}

/// Where waiters poll there is nothing to watch, unless for losses.
async fn poll_opens_no_watch(ctx: &Ctx) -> Outcome {
    let can = ctx.capabilities();
    ensure(can.waiting == Waiting::Poll, "it does not poll")?;
    let (name, store) = (ctx.name(), ctx.store().await?);
    let ticket = ctx.ticket(&name)?;
    store.attempt(&ticket).await?;
    let opened = store.watch(&ticket).await.is_ok();
    ensure(opened == can.tells_loss, "a watch that no client opens")?;
    store.release(&ticket).await?;
    Ok(())
}

/// Where losses are told, the watch of a hold says so when its session ends.
async fn loss_is_reported(ctx: &Ctx) -> Outcome {
    let (name, store) = (ctx.name(), ctx.store().await?);
    let ticket = ctx.ticket(&name)?;
    granted(&*store, &ticket).await?;
    let mut watch = store.watch(&ticket).await?;
    ctx.namespace().expire_session(&*store).await?;
    let end = Instant::now() + ctx.ttl();
    while Instant::now() < end {
        let wake = within(ctx.ttl(), watch.changed()).await??;
        if matches!(wake, Wake::Lost(_)) {
            return Ok(());
        }
        // A spurious retry is allowed.
        tokio::task::yield_now().await;
    }
    Err(Failure::new("the loss was not told"))
}

/// Where the process or the session ends a hold, its own lease does not.
async fn session_or_process_keeps_a_hold_without_renewals(ctx: &Ctx) -> Outcome {
    let (name, store) = (ctx.name(), ctx.store().await?);
    let ticket = ctx.ticket(&name)?;
    granted(&*store, &ticket).await?;
    let keeps = ctx.ticket(&ctx.name())?;
    if ctx.capabilities().ttl_of == TtlOf::PerSession {
        granted(&*store, &keeps).await?;
    }
    let mut waiter = acquire(&ctx.client().await?.lock(name)?);
    for _ in 0..6 {
        waiter.waits_for(ctx.ttl() / 3).await?;
        // The session is kept by another hold, if there is one; the hold itself is not renewed.
        store.renew(std::slice::from_ref(&keeps)).await;
    }
    store.release(&ticket).await?;
    store.release(&keeps).await?;
    waiter.soon().await??.release().await?;
    Ok(())
}

/// A store that cannot do a mode says so when the lock is made; one that can does all of them.
async fn modes_are_supported_or_refused(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let name = ctx.name();
    client
        .lock(name.as_str())?
        .acquire()
        .await?
        .release()
        .await?;
    match client.semaphore(name.as_str(), 0) {
        Err(Error::InvalidOption { .. }) => {}
        answer => return Err(Failure::new(format!("no permits: {answer:?}"))),
    }
    if ctx.capabilities().shares {
        let lock = client.rw_lock(name.as_str())?;
        for lock in [lock.read(), lock.write(), client.semaphore(name, 3)?] {
            lock.acquire().await?.release().await?;
        }
        return Ok(());
    }
    refused(client.rw_lock(name.as_str()))?;
    refused(client.semaphore(name.as_str(), 1))
}

/// Before anything is sent, where there is nothing yet.
async fn notes_and_handover_are_supported_or_refused(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let guard = client.lock(ctx.name())?.acquire().await?;
    if ctx.capabilities().notes {
        client.election(guard.name())?;
        guard.note("a note").await?;
    } else {
        refused(client.election(guard.name()))?;
        refused(guard.note("a note").await)?;
    }
    guard.check()?;
    if ctx.capabilities().adopts {
        let text = guard.detach().await?;
        client.adopt(&text).await?.release().await?;
    } else {
        refused(client.adopt("v1").await)?;
        refused(guard.detach().await)?;
    }
    Ok(())
}

fn refused<T>(result: lockkit_core::Result<T>) -> Outcome {
    match result {
        Err(Error::Unsupported { what }) => ensure(!what.is_empty(), "no reason is given"),
        Err(other) => Err(Failure::new(format!("refused with {other:?}"))),
        Ok(_) => Err(Failure::new("it was accepted")),
    }
}
