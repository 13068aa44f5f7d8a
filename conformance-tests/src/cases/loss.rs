//! A lost hold reports its loss in time, and for good. P2, INV-5.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::contract::Renewal;
use lockkit_core::layers::{Fault, Operation, Rule};
use lockkit_core::{DistributedLock, EndsBy, Error, Guard, Lease, LossReason, Outcome as Effect};
use tokio::time::{Instant, sleep};

use crate::case::{Case, Need};
use crate::clock::JumpingClock;
use crate::ctx::Ctx;
use crate::failure::{Failure, Outcome, ensure};
use crate::namespace::Hook;
use crate::proxy::{Direction, Flow};
use crate::requests::{granted, renewed};
use crate::task::{AT_ONCE, acquire, poll_once, soon, spawn, until, within};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(deadline_fires_while_renewals_hang),
        Case::new(lost_before_another_client_holds),
        Case::new(lost_behind_a_cut_before_another_client_holds).hook(Hook::Proxy),
        Case::new(loss_is_sticky),
        Case::new(check_reads_the_clock),
        Case::new(lost_within_a_second_of_waking),
        Case::new(lost_hold_is_released_at_once),
        Case::new(release_of_a_lost_hold_says_so),
        Case::new(protect_drops_the_work),
        Case::new(scope_reports_the_loss),
        Case::new(ended_session_is_reported)
            .needs(Need::TellsLoss)
            .hook(Hook::ExpireSession),
        Case::new(break_is_reported)
            .needs(Need::TellsLoss)
            .needs(Need::Push),
        Case::new(renewal_never_creates_a_hold),
        Case::new(renewal_by_another_client_is_refused),
        Case::new(next_hold_after_a_loss_is_a_new_one),
    ]
}

/// Holds whose renewals are never answered are lost at their own deadlines, also when a renewal is in
/// flight at that moment.
async fn deadline_fires_while_renewals_hang(ctx: &Ctx) -> Outcome {
    // Long leases, because a renewal may hang for a sixth of one; eight, because not every one hangs
    // at its deadline.
    let (store, faults) = ctx.faulty_store().await?;
    let ttl = ctx.renewable(Duration::from_secs(6));
    let client = ctx.builder(store).lease(Lease::renewed(ttl)).build()?;
    faults.inject(Rule::new(Fault::Hang).on(Operation::Renew));
    let mut watches = Vec::new();
    for _ in 0..8 {
        let guard = client.lock(ctx.name())?.acquire().await?;
        watches.push(spawn(lost_in_time(guard)));
    }
    for watch in watches {
        watch.soon().await??;
    }
    Ok(())
}

async fn lost_in_time(guard: Guard) -> Outcome {
    let start = Instant::now();
    let left = guard.remaining();
    // The rest is for a busy machine.
    let reason = within(left + Duration::from_millis(400), guard.lost()).await?;
    ensure(reason == LossReason::Expired, format!("{reason:?}"))?;
    ensure(guard.check().is_err(), "lost, but the check passes")?;
    let lasted = start.elapsed();
    ensure(lasted >= left, format!("lost {lasted:?} into {left:?}"))
}

/// When renewals stop, the guard knows before another client can have the lock.
async fn lost_before_another_client_holds(ctx: &Ctx) -> Outcome {
    let (store, faults) = ctx.faulty_store().await?;
    let stop = || match ctx.capabilities().ends_by {
        EndsBy::Lease => faults.black_hole(),
        // Its session or its process lives on, and its release ends the hold.
        _ => faults.inject(Rule::new(Fault::Fail(Effect::Unavailable)).on(Operation::Renew)),
    };
    taken_over_after_the_loss(ctx, store, stop).await
}

/// The same when the network is cut, also for what keeps a session alive.
async fn lost_behind_a_cut_before_another_client_holds(ctx: &Ctx) -> Outcome {
    let (store, proxy) = ctx.store_through_proxy().await?;
    let cut = || proxy.flow(Direction::Request, Flow::Hold);
    taken_over_after_the_loss(ctx, store, cut).await
}

async fn taken_over_after_the_loss(
    ctx: &Ctx,
    store: Arc<dyn DistributedLock>,
    stop: impl FnOnce(),
) -> Outcome {
    let lock = ctx.builder(store).build()?.lock(ctx.name())?;
    let other = ctx.client().await?.lock(lock.name())?;
    let guard = lock.acquire().await?;
    stop();
    let next = soon(other.acquire()).await??;
    let told = poll_once(&mut Box::pin(guard.lost())).await;
    ensure(told.is_some(), "the loss was not told in time")?;
    ensure(guard.check().is_err(), "two hold at once")?;
    Ok(next.release().await?)
}

/// A renewal that is answered after the deadline does not bring the hold back.
async fn loss_is_sticky(ctx: &Ctx) -> Outcome {
    let near = ctx.ttl() / 10;
    let (a, b, c) = tokio::try_join!(
        stays_lost(ctx, near),
        stays_lost(ctx, near),
        stays_lost(ctx, near)
    )?;
    ensure(a + b + c > 0, "no renewal was on its way at a deadline")
}

/// Returns how many renewals were on their way at the deadline.
async fn stays_lost(ctx: &Ctx, near: Duration) -> Outcome<u64> {
    let (client, faults) = ctx.faulty().await?;
    let guard = client.lock(ctx.name())?.acquire().await?;
    faults.inject(Rule::new(Fault::Fail(Effect::Unavailable)).on(Operation::Renew));
    let ends_soon = async || Ok(guard.remaining() < near);
    until("the deadline is near", ends_soon).await?;
    let slow = Fault::SlowReply {
        min: near,
        max: near,
    };
    faults.reset_counts();
    faults.replace(Rule::new(slow).on(Operation::Renew));
    soon(guard.lost()).await?;
    let on_their_way = faults.injected();
    let end = Instant::now() + near * 3;
    while Instant::now() < end {
        ensure(guard.check().is_err(), "the hold came back")?;
        ensure(guard.remaining().is_zero(), "the hold came back")?;
        sleep(Duration::from_millis(2)).await;
    }
    Ok(on_their_way)
}

/// After a suspend `check` fails at once, before any timer has noticed.
async fn check_reads_the_clock(ctx: &Ctx) -> Outcome {
    let clock = JumpingClock::new();
    let builder = ctx.builder(ctx.store().await?);
    let client = builder.clock(Arc::new(clock.clone())).build()?;
    let guard = client.lock(ctx.name())?.acquire().await?;
    guard.check()?;
    clock.jump(ctx.ttl());
    // No await between the jump and the look.
    let error = guard.check().err();
    ensure(
        matches!(error, Some(Error::Lost { .. })),
        format!("{error:?}"),
    )?;
    ensure(guard.remaining().is_zero(), "something remains")
}

/// After a suspend `lost` fires within a second, although its timer was set for much later.
async fn lost_within_a_second_of_waking(ctx: &Ctx) -> Outcome {
    let clock = JumpingClock::new();
    let (store, faults) = ctx.faulty_store().await?;
    faults.inject(Rule::new(Fault::Hang).on(Operation::Renew));
    let builder = ctx.builder(store);
    let client = builder.clock(Arc::new(clock.clone())).build()?;
    let ttl = ctx.longest(Duration::from_secs(60));
    let lock = client.lock(ctx.name())?;
    let guard = lock.with_lease(Lease::fixed(ttl))?.acquire().await?;
    let mut lost = Box::pin(guard.lost());
    ensure(poll_once(&mut lost).await.is_none(), "lost too early")?;
    clock.jump(ttl);
    // One second is promised; the rest is for a busy machine.
    within(Duration::from_millis(1_500), lost).await?;
    Ok(())
}

/// A hold that the client gave up is released at the store, although its guard lives on.
async fn lost_hold_is_released_at_once(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let name = ctx.name();
    let guard = client.lock(name.as_str())?.acquire().await?;
    faults.inject(Rule::new(Fault::Fail(Effect::Unavailable)).on(Operation::Renew));
    soon(guard.lost()).await?;
    within(AT_ONCE, faults.called(Operation::Release, 1)).await?;
    let other = ctx.client().await?.lock(name.as_str())?;
    within(ctx.freed_after(), other.acquire())
        .await??
        .release()
        .await?;
    ensure(guard.check().is_err(), "two hold at once")
}

/// `release` of a hold that is gone says that it was lost, and to whom the blame goes.
async fn release_of_a_lost_hold_says_so(ctx: &Ctx) -> Outcome {
    let lock = ctx.client().await?.lock(ctx.name())?;
    let lock = lock.with_lease(Lease::fixed(ctx.ttl()))?;
    let guard = lock.acquire().await?;
    let token = guard.token();
    soon(guard.lost()).await?;
    match guard.release().await {
        Err(Error::Lost {
            token: its,
            reason: LossReason::Expired,
            ..
        }) if its == token => Ok(()),
        other => Err(Failure::new(format!("{other:?}"))),
    }
}

/// Work that is protected by a guard is dropped when the lock is lost.
async fn protect_drops_the_work(ctx: &Ctx) -> Outcome {
    let lock = ctx.client().await?.lock(ctx.name())?;
    let lock = lock.with_lease(Lease::fixed(ctx.ttl()))?;
    let guard = lock.acquire().await?;
    ensure(guard.protect(async { 7 }).await? == 7, "the work's value")?;
    let error = soon(guard.protect(std::future::pending::<()>()))
        .await?
        .err();
    ensure(
        matches!(error, Some(Error::Lost { .. })),
        format!("{error:?}"),
    )
}

/// `scope` gives `Lost`, and not a value, when the lock was lost before the work ended.
async fn scope_reports_the_loss(ctx: &Ctx) -> Outcome {
    let lock = ctx.client().await?.lock(ctx.name())?;
    let lock = lock.with_lease(Lease::fixed(ctx.ttl()))?;
    let result = soon(lock.scope(async |guard| guard.lost().await)).await?;
    ensure(
        matches!(result, Err(Error::Lost { .. })),
        format!("{result:?}"),
    )
}

/// If the store reports losses, it reports an ended session to the guard before a renewal fails.
async fn ended_session_is_reported(ctx: &Ctx) -> Outcome {
    let (store, faults) = ctx.faulty_store().await?;
    let client = ctx.builder(Arc::clone(&store)).build()?;
    let name = ctx.name();
    let lock = client.lock(name.as_str())?;
    let mut ended = 0;
    for contended in [false, true] {
        let other = ctx.client().await?.lock(name.as_str())?;
        let guard = if contended {
            let held = other.acquire().await?;
            let waiter = acquire(&lock);
            ctx.queued(&other, 1).await?;
            held.release().await?;
            waiter.soon().await??
        } else {
            lock.acquire().await?
        };
        soon(faults.called(Operation::Watch, 1)).await?;
        faults.inject(Rule::new(Fault::Fail(Effect::Unavailable)).on(Operation::Renew));
        let deadline = Instant::now() + guard.remaining();
        ctx.namespace().expire_session(&*store).await?;
        // Ending it may take longer than the unrenewed lease: then the lease ended first.
        let expected = if Instant::now() + Duration::from_millis(200) < deadline {
            LossReason::SessionEnded
        } else {
            LossReason::Expired
        };
        let reason = soon(guard.lost()).await?;
        let told = reason == expected || reason == LossReason::SessionEnded;
        ensure(told, format!("{reason:?} instead of {expected:?}"))?;
        ended += u32::from(reason == LossReason::SessionEnded);
        faults.heal();
        soon(client.drain()).await?;
        faults.reset_counts();
    }
    ensure(ended > 0, "no end of a session was reported")
}

/// If the store reports losses, it reports a break to the guard before a renewal does.
async fn break_is_reported(ctx: &Ctx) -> Outcome {
    let (store, faults) = ctx.faulty_store().await?;
    let lock = ctx.builder(store).lease(ctx.long()).build()?;
    let lock = lock.lock(ctx.name())?;
    let guard = lock.acquire().await?;
    soon(faults.called(Operation::Watch, 1)).await?;
    faults.inject(Rule::new(Fault::Fail(Effect::Unavailable)).on(Operation::Renew));
    ctx.client().await?.lock(lock.name())?.break_lock().await?;
    let reason = within(AT_ONCE, guard.lost()).await?;
    ensure(reason != LossReason::Expired, format!("{reason:?}"))
}

/// A renewal of a hold that is gone returns `NotHeld` and leaves the lock free.
async fn renewal_never_creates_a_hold(ctx: &Ctx) -> Outcome {
    let (name, store) = (ctx.name(), ctx.store().await?);
    let ticket = ctx.ticket(&name)?;
    granted(&*store, &ticket).await?;
    ctx.store().await?.break_lock(&ticket.name).await?;
    let renewal = renewed(&*store, &ticket).await??;
    ensure(renewal == Renewal::NotHeld, "a broken hold was renewed")?;
    let guard = ctx.client().await?.lock(name)?.try_acquire().await?;
    ensure(guard.is_some(), "a renewal made a hold")
}

/// A renewal by a ticket that never held does not touch the hold of another.
async fn renewal_by_another_client_is_refused(ctx: &Ctx) -> Outcome {
    let (name, store) = (ctx.name(), ctx.store().await?);
    let guard = ctx.client().await?.lock(name.as_str())?.acquire().await?;
    let tickets = [ctx.ticket(&name)?, ctx.ticket(&ctx.name())?];
    let answers = store.renew(&tickets).await;
    ensure(answers.len() == 2, "one answer for each ticket")?;
    for answer in answers {
        ensure(answer? == Renewal::NotHeld, "a stranger was renewed")?;
    }
    guard.check()?;
    guard.release().await?;
    Ok(())
}

/// After a loss the same client gets the lock as a new hold, with a larger token.
async fn next_hold_after_a_loss_is_a_new_one(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let owner = client.owner();
    let lock = client.lock(ctx.name())?.with_owner(&owner)?;
    let fixed = lock.clone().with_lease(Lease::fixed(ctx.ttl()))?;
    let old = fixed.acquire().await?;
    soon(old.lost()).await?;
    ensure(old.reenter().is_err(), "a lost hold was re-entered")?;
    let new = soon(lock.acquire()).await??;
    ensure(new.token() > old.token(), "the token did not grow")?;
    ensure(new.holder() != old.holder(), "the same hold again")?;
    ensure(new.guard_count() == 1, "the old guard counts")?;
    ensure(old.check().is_err(), "the old guard stands again")?;
    drop(old);
    new.check()?;
    new.release().await?;
    Ok(())
}
