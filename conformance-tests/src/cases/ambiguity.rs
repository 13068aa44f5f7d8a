//! Requests that may or may not have been carried out. INV-6.

use std::time::Duration;

use lockkit_core::contract::Release;
use lockkit_core::layers::{Fault, Operation, Rule};
use lockkit_core::{Error, Outcome as Effect};
use tokio::time::timeout;

use crate::case::{Case, Need};
use crate::ctx::{Ctx, waiter_count};
use crate::failure::{Failure, Outcome, ensure};
use crate::requests::granted;
use crate::task::{acquire, soon, until, within};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(attempt_without_reply_is_one_hold),
        Case::new(try_without_reply_is_one_hold),
        Case::new(queued_attempt_without_reply_is_one_place).needs(Need::Fifo),
        Case::new(release_without_reply_is_a_release),
        Case::new(release_of_a_broken_hold_reports_the_loss),
        Case::new(release_of_a_dropped_guard_is_repeated_without_reply),
        Case::new(renewals_without_reply_keep_the_hold),
        Case::new(abandoned_attempt_without_reply_is_no_hold),
        Case::new(late_attempt_leaves_no_hold),
        Case::new(late_attempt_of_a_released_ticket_leaves_no_hold),
        Case::new(late_release_ends_no_later_hold),
        Case::new(release_is_repeatable),
        Case::new(refused_requests_are_not_repeated),
    ]
}

/// The store granted, the reply was lost: the repeated attempt finds the same hold.
async fn attempt_without_reply_is_one_hold(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let name = ctx.name();
    faults.inject(Rule::new(Fault::DropReply).on(Operation::Attempt).times(3));
    let lock = client.lock(name.as_str())?;
    let guard = soon(lock.acquire()).await??;
    ensure(faults.injected() == 3, "the fault did not take place")?;
    single_hold(ctx, &name, guard).await
}

/// The same for a try.
async fn try_without_reply_is_one_hold(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let name = ctx.name();
    faults.inject(Rule::new(Fault::DropReply).on(Operation::Attempt).times(1));
    let guard = soon(client.lock(name.as_str())?.try_acquire()).await??;
    let guard = guard.ok_or_else(|| Failure::new("refused by its own hold"))?;
    ensure(faults.injected() == 1, "the fault did not take place")?;
    single_hold(ctx, &name, guard).await
}

/// The store knows the hold once, and frees the lock with one release.
pub(super) async fn single_hold(ctx: &Ctx, name: &str, guard: lockkit_core::Guard) -> Outcome {
    let other = ctx.client().await?.lock(name)?;
    let state = other.inspect().await?;
    let state = state.ok_or_else(|| Failure::new("the lock is free"))?;
    ensure(
        state.holder_ids().eq([guard.holder().to_string()]),
        format!("{state:?}"),
    )?;
    guard.release().await?;
    let next = other.try_acquire().await?;
    ensure(next.is_some(), "released once, but counted twice")
}

/// A waiter whose replies are lost takes one place, and is served.
async fn queued_attempt_without_reply_is_one_place(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let name = ctx.name();
    let a = ctx.client().await?.lock(name.as_str())?;
    let guard = a.acquire().await?;
    faults.inject(Rule::new(Fault::DropReply).on(Operation::Attempt).times(3));
    let waiter = acquire(&client.lock(name.as_str())?);
    soon(faults.called(Operation::Attempt, 4)).await?;
    ctx.queued(&a, 1).await?;
    let waiters = waiter_count(&a).await?;
    ensure(waiters <= Some(1), format!("{waiters:?}"))?;
    guard.release().await?;
    waiter.soon().await??.release().await?;
    ensure(a.inspect().await?.is_none(), "something is left behind")
}

/// The store released, the reply was lost: that is a clean release and no loss.
async fn release_without_reply_is_a_release(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let name = ctx.name();
    for times in 1..=2 {
        let guard = client.lock(name.as_str())?.acquire().await?;
        faults.inject(
            Rule::new(Fault::DropReply)
                .on(Operation::Release)
                .times(times),
        );
        soon(guard.release()).await??;
        faults.heal();
    }
    ensure(faults.injected() == 3, "the fault did not take place")?;
    let guard = ctx.client().await?.lock(name)?.try_acquire().await?;
    ensure(guard.is_some(), "not released")
}

/// A hold that was broken before its release is lost, also when the first releases do not reach the store.
async fn release_of_a_broken_hold_reports_the_loss(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let name = ctx.name();
    let guard = client.lock(name.as_str())?.acquire().await?;
    ctx.client().await?.lock(name)?.break_lock().await?;
    let unreachable = Fault::Fail(Effect::Unavailable);
    faults.inject(Rule::new(unreachable).on(Operation::Release).times(2));
    let result = soon(guard.release()).await?;
    ensure(
        matches!(result, Err(Error::Lost { .. })),
        format!("{result:?}"),
    )
}

/// The release of a dropped guard is repeated until it is answered.
async fn release_of_a_dropped_guard_is_repeated_without_reply(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let name = ctx.name();
    let guard = client.lock(name.as_str())?.acquire().await?;
    // Twice neither carried out nor answered, and then twice carried out without an answer: both rules hit the
    // first two.
    faults.inject(
        Rule::new(Fault::Fail(Effect::Indeterminate))
            .on(Operation::Release)
            .times(2),
    );
    faults.inject(Rule::new(Fault::DropReply).on(Operation::Release).times(4));
    drop(guard);
    soon(client.drain()).await?;
    let releases = faults.calls(Operation::Release);
    ensure(releases == 5, format!("{releases} releases"))?;
    let guard = ctx.client().await?.lock(name)?.try_acquire().await?;
    ensure(guard.is_some(), "not released after drain")
}

/// Renewals that are carried out without an answer: the hold stands as long as some are answered.
async fn renewals_without_reply_keep_the_hold(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let guard = client.lock(ctx.name())?.acquire().await?;
    faults.inject(Rule::new(Fault::DropReply).on(Operation::Renew).times(3));
    soon(faults.struck(3)).await?;
    tokio::time::sleep(ctx.ttl()).await;
    guard.check()?;
    guard.release().await?;
    Ok(())
}

/// A caller who gives up while its attempt is unanswered leaves no hold behind.
async fn abandoned_attempt_without_reply_is_no_hold(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty_impatient().await?;
    let name = ctx.name();
    faults.inject(Rule::new(Fault::DropReply).on(Operation::Attempt));
    let lock = client.lock(name.as_str())?;
    let limit = Duration::from_millis(200);
    let error = soon(lock.acquire_timeout(limit)).await?.err();
    ensure(
        matches!(error, Some(Error::Backend(_) | Error::Timeout { .. })),
        format!("{error:?}"),
    )?;
    let error = soon(lock.try_acquire()).await?.err();
    ensure(
        matches!(error, Some(Error::Backend(_))),
        format!("{error:?}"),
    )?;
    faults.heal();
    soon(client.drain()).await?;
    let guard = ctx.client().await?.lock(name)?.try_acquire().await?;
    ensure(guard.is_some(), "an abandoned attempt holds the lock")
}

/// An attempt that reaches the store after its caller has gone and its ticket was released does not
/// become a hold that the living client keeps.
async fn late_attempt_leaves_no_hold(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let name = ctx.name();
    // Another hold, so that the session of the client lives on where there is one.
    let other = client.lock(ctx.name())?.acquire().await?;
    let late = Duration::from_millis(300);
    let fault = Fault::Late {
        min: late,
        max: late,
    };
    faults.inject(Rule::new(fault).on(Operation::Attempt));
    let lock = client.lock(name.as_str())?;
    drop(timeout(Duration::from_millis(100), lock.acquire()).await);
    soon(faults.settled()).await?;
    ensure(faults.injected() > 0, "the fault did not take place")?;
    faults.heal();
    soon(client.drain()).await?;
    let next = ctx.client().await?.lock(name)?;
    within(ctx.ttl() + ctx.freed_after(), next.acquire())
        .await??
        .release()
        .await?;
    other.check()?;
    Ok(())
}

/// The same at the store itself, with a duplicate of an attempt that was answered before.
async fn late_attempt_of_a_released_ticket_leaves_no_hold(ctx: &Ctx) -> Outcome {
    let (name, store) = (ctx.name(), ctx.store().await?);
    let client = ctx.builder(std::sync::Arc::clone(&store)).build()?;
    let other = client.lock(ctx.name())?.acquire().await?;
    let ticket = ctx.ticket(&name)?;
    granted(&*store, &ticket).await?;
    let released = store.release(&ticket).await?;
    ensure(released == Release::Released, "the first release")?;
    // It may be refused, which is an error here.
    drop(store.attempt(&ticket).await);
    let next = ctx.client().await?.lock(name)?;
    within(ctx.ttl() + ctx.freed_after(), next.acquire())
        .await??
        .release()
        .await?;
    other.check()?;
    Ok(())
}

/// A release that reaches the store after the same client has taken the lock again does not end the
/// later hold.
async fn late_release_ends_no_later_hold(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let name = ctx.name();
    let lock = client.lock(name.as_str())?;
    let guard = lock.acquire().await?;
    let late = Duration::from_millis(200);
    let fault = Fault::Late {
        min: late,
        max: late,
    };
    faults.inject(Rule::new(fault).on(Operation::Release).times(1));
    soon(guard.release()).await??;
    let guard = soon(lock.acquire()).await??;
    soon(faults.settled()).await?;
    ensure(faults.injected() == 1, "the fault did not take place")?;
    let other = ctx.client().await?.lock(name)?;
    ensure(
        other.try_acquire().await?.is_none(),
        "the later hold was ended",
    )?;
    guard.release().await?;
    Ok(())
}

/// At the store: the first release returns `Released`, the second `NotHeld`, neither an error.
async fn release_is_repeatable(ctx: &Ctx) -> Outcome {
    let (name, store) = (ctx.name(), ctx.store().await?);
    let ticket = ctx.ticket(&name)?;
    granted(&*store, &ticket).await?;
    ensure(
        store.release(&ticket).await? == Release::Released,
        "the first",
    )?;
    ensure(
        store.release(&ticket).await? == Release::NotHeld,
        "the second",
    )?;
    let unknown = ctx.ticket(&ctx.name())?;
    ensure(
        store.release(&unknown).await? == Release::NotHeld,
        "unknown",
    )
}

/// A permanent refusal by the store is reported at once, and the request is not repeated.
async fn refused_requests_are_not_repeated(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let name = ctx.name();
    faults.inject(Rule::new(Fault::Fail(Effect::Rejected)).on(Operation::Attempt));
    let lock = client.lock(name.as_str())?;
    for result in [
        soon(lock.acquire()).await?.map(drop),
        soon(lock.try_acquire()).await?.map(drop),
        soon(lock.acquire_timeout(Ctx::PATIENCE)).await?.map(drop),
    ] {
        match result {
            Err(Error::Backend(error)) if error.outcome() == Effect::Rejected => {}
            other => return Err(Failure::new(format!("{other:?}"))),
        }
    }
    let attempts = faults.calls(Operation::Attempt);
    ensure(attempts == 3, format!("{attempts} attempts for 3 acquires"))?;
    faults.heal();
    let free = async || Ok(lock.try_acquire().await?.is_some());
    until("the lock is usable", free).await
}
