//! Extensions of a fixed lease: alone, overlapping and interrupted. P1, INV-2.

use std::time::Duration;

use lockkit_core::layers::{Fault, Operation, Rule};
use lockkit_core::{Error, Guard, Lease, Lock, LossReason};
use tokio::time::{Instant, sleep, timeout};

use crate::case::Case;
use crate::ctx::Ctx;
use crate::failure::{Outcome, ensure};
use crate::task::{acquire, soon};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(fixed_lease_is_extended),
        Case::new(extend_never_shortens),
        Case::new(renewed_lease_is_not_extended_by_hand),
        Case::new(extended_lease_lasts_at_the_store),
        Case::new(longer_of_two_overlapping_extensions_wins),
        Case::new(pushed_grant_is_extended_before_its_first_renewal),
        Case::new(interrupted_extension_leaves_one_holder),
    ]
}

/// A fixed lease that is extended lasts for the new time from then on.
async fn fixed_lease_is_extended(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let ttl = ctx.ttl();
    let guard = a.with_lease(Lease::fixed(ttl))?.acquire().await?;
    for _ in 0..3 {
        sleep(ttl / 2).await;
        soon(guard.extend(ttl)).await??;
    }
    guard.check()?;
    ensure(b.try_acquire().await?.is_none(), "two hold at once")?;
    let reason = soon(guard.lost()).await?;
    ensure(reason == LossReason::Expired, format!("{reason:?}"))
}

/// Extending by less than what is left changes nothing.
async fn extend_never_shortens(ctx: &Ctx) -> Outcome {
    let (a, _) = ctx.locks().await?;
    let long = a.with_lease(Lease::fixed(ctx.longest(ctx.ttl() * 4)))?;
    let guard = long.acquire().await?;
    let start = Instant::now();
    let before = guard.remaining();
    guard.extend(ctx.ttl()).await?;
    let after = guard.remaining();
    // Between the two looks no more time passed.
    ensure(
        after + start.elapsed() >= before,
        format!("{before:?} became {after:?}"),
    )
}

/// A lease that the keeper renews cannot be extended.
async fn renewed_lease_is_not_extended_by_hand(ctx: &Ctx) -> Outcome {
    let (a, _) = ctx.locks().await?;
    let guard = a.acquire().await?;
    let error = guard.extend(ctx.ttl()).await.err();
    ensure(
        matches!(error, Some(Error::InvalidOption { .. })),
        format!("{error:?}"),
    )
}

/// An extension by several leases reaches the store: no other client gets the lock before it ends.
async fn extended_lease_lasts_at_the_store(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.with_lease(Lease::fixed(ctx.ttl()))?.acquire().await?;
    guard.extend(ctx.longest(ctx.ttl() * 4)).await?;
    holds_alone(&guard, &b, ctx.longest(ctx.ttl() * 4)).await
}

/// The guard is held until a little before `lease` ends, and no other client gets the lock before it is
/// lost.
async fn holds_alone(guard: &Guard, other: &Lock, lease: Duration) -> Outcome {
    let end = Instant::now() + lease * 3 / 4;
    while Instant::now() < end {
        guard.check()?;
        ensure(other.try_acquire().await?.is_none(), "two hold at once")?;
        sleep(lease / 40).await;
    }
    let next = soon(other.acquire()).await??;
    ensure(guard.check().is_err(), "two hold at once")?;
    next.release().await?;
    Ok(())
}

/// Two extensions at once: the shorter one, whichever comes first, does not undo the longer one.
async fn longer_of_two_overlapping_extensions_wins(ctx: &Ctx) -> Outcome {
    let (shorter, longer) = (ctx.ttl() * 2, ctx.longest(ctx.ttl() * 4));
    tokio::try_join!(
        lasts_for_the_longer(ctx, longer, shorter),
        lasts_for_the_longer(ctx, shorter, longer),
    )?;
    Ok(())
}

async fn lasts_for_the_longer(ctx: &Ctx, first: Duration, second: Duration) -> Outcome {
    let ttl = ctx.ttl();
    let (store, faults) = ctx.faulty_store().await?;
    let name = ctx.name();
    let lock = ctx.builder(store).build()?.lock(name.as_str())?;
    let guard = lock.with_lease(Lease::fixed(ttl))?.acquire().await?;
    let slow = Fault::SlowReply {
        min: ttl / 8,
        max: ttl / 8,
    };
    faults.inject(Rule::new(slow).on(Operation::Renew));
    tokio::try_join!(guard.extend(first), guard.extend(second))?;
    faults.heal();
    let other = ctx.client().await?.lock(name)?;
    holds_alone(&guard, &other, first.max(second)).await
}

/// A guard that waited extends its lease before its first renewal, which takes nothing of that away.
async fn pushed_grant_is_extended_before_its_first_renewal(ctx: &Ctx) -> Outcome {
    let ttl = ctx.ttl();
    let (a, b) = ctx.locks().await?;
    let held = b.acquire().await?;
    let waiter = acquire(&a.with_lease(Lease::fixed(ttl))?);
    ctx.queued(&b, 1).await?;
    held.release().await?;
    let guard = waiter.soon().await??;
    let long = ctx.longest(ttl * 4);
    guard.extend(long).await?;
    holds_alone(&guard, &b, long).await
}

/// An extension whose caller or whose reply is gone: the guard never stands beside another.
async fn interrupted_extension_leaves_one_holder(ctx: &Ctx) -> Outcome {
    let ttl = ctx.ttl();
    for cancelled in [false, true] {
        let (client, faults) = ctx.faulty().await?;
        let lock = client.lock(ctx.name())?.with_lease(Lease::fixed(ttl))?;
        let other = ctx.client().await?.lock(lock.name().as_str())?;
        let guard = lock.acquire().await?;
        let fault = if cancelled {
            Fault::Hang
        } else {
            Fault::DropReply
        };
        faults.inject(Rule::new(fault).on(Operation::Renew));
        let extension = timeout(ttl / 4, guard.extend(ctx.longest(ttl * 2))).await;
        ensure(
            !matches!(extension, Ok(Ok(()))),
            "extended without an answer",
        )?;
        faults.black_hole();
        while guard.check().is_ok() {
            let next = other.try_acquire().await?;
            ensure(next.is_none() || guard.check().is_err(), "two hold at once")?;
            sleep(ttl / 40).await;
        }
        // The release of what is lost gets through again.
        faults.heal();
        soon(other.acquire()).await??.release().await?;
    }
    Ok(())
}
