//! How long a hold lasts, and what prolongs it. INV-2, INV-10.

use std::time::Duration;

use lockkit_core::layers::{Fault, Operation, Rule};
use lockkit_core::{Lease, LossReason, Outcome as Effect, TtlOf, window};
use tokio::time::{Instant, sleep};

use crate::case::{Case, Need};
use crate::ctx::Ctx;
use crate::failure::{Failure, Outcome, ensure};
use crate::requests;
use crate::stale_session::StaleSession;
use crate::task::{AT_ONCE, acquire, soon, until, within};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(renewed_lease_outlives_its_ttl),
        Case::new(fixed_lease_ends_on_time),
        Case::new(fixed_lease_frees_the_lock_while_its_guard_is_kept),
        Case::new(lock_is_kept_for_its_shortest_hold_time),
        Case::new(no_request_shortens_a_lease)
            .needs(Need::LeasePerHold)
            .needs(Need::StoreEndsLeases),
        Case::new(transient_errors_are_retried),
        Case::new(one_bad_lock_does_not_stop_others),
        Case::new(window_counts_from_the_request),
        Case::new(renewed_window_counts_from_the_request),
        Case::new(window_counts_from_the_last_heartbeat).needs(Need::LeasePerSession),
        Case::new(remaining_stays_within_the_window),
        Case::new(max_hold_ends_a_hold),
        Case::new(leaked_hold_ends_with_its_lease),
        Case::new(store_ends_a_lease_that_is_not_renewed).needs(Need::StoreEndsLeases),
        Case::new(renewal_restarts_the_lease_at_the_store).needs(Need::LeasePerHold),
    ]
}

/// A renewed lease holds for as long as its guard lives.
async fn renewed_lease_outlives_its_ttl(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire().await?;
    let mut waiter = acquire(&b);
    waiter.waits_for(ctx.ttl() * 3).await?;
    guard.check()?;
    guard.release().await?;
    waiter.soon().await??.release().await?;
    Ok(())
}

/// A fixed lease is lost at its end, neither sooner nor much later.
async fn fixed_lease_ends_on_time(ctx: &Ctx) -> Outcome {
    let (a, _) = ctx.locks().await?;
    let ttl = ctx.ttl();
    let start = Instant::now();
    let guard = a.with_lease(Lease::fixed(ttl))?.acquire().await?;
    let reason = soon(guard.lost()).await?;
    let lasted = start.elapsed();
    ensure(reason == LossReason::Expired, format!("{reason:?}"))?;
    ensure(guard.check().is_err(), "lost, but the check passes")?;
    let believed = window(ttl);
    ensure(
        lasted >= believed && lasted < ttl * 2,
        format!("lasted {lasted:?} of {ttl:?}"),
    )
}

/// At the end of a fixed lease the lock is free, even if a caller still has the guard.
async fn fixed_lease_frees_the_lock_while_its_guard_is_kept(ctx: &Ctx) -> Outcome {
    let ((client, other), name) = (ctx.two().await?, ctx.name());
    // Another hold keeps the session alive, if there is one.
    let kept = client.lock(ctx.name())?.acquire().await?;
    let lock = client.lock(name.as_str())?;
    let guard = lock.with_lease(Lease::fixed(ctx.ttl()))?.acquire().await?;
    let token = guard.token();
    let next = other.lock(name)?;
    let next = within(free_after(ctx, ctx.ttl()), next.acquire()).await??;
    ensure(guard.check().is_err(), "two hold at once")?;
    ensure(next.token() > token, "the token did not grow")?;
    kept.release().await?;
    Ok(())
}

/// A guard that ends sooner leaves the lock held until its shortest hold time has passed, also when its client
/// goes once all is drained.
async fn lock_is_kept_for_its_shortest_hold_time(ctx: &Ctx) -> Outcome {
    tokio::try_join!(is_kept(ctx, false), is_kept(ctx, true))?;
    Ok(())
}

async fn is_kept(ctx: &Ctx, goes: bool) -> Outcome {
    let least = ctx.longest(ctx.ttl() * 3);
    let (client, faults) = ctx.faulty().await?;
    let lock = client.lock(ctx.name())?.with_min_hold(least);
    let other = ctx.client().await?.lock(lock.name().as_str())?;
    let start = Instant::now();
    let guard = lock.acquire().await?;
    let token = guard.token();
    soon(guard.release()).await??;
    ensure(start.elapsed() < ctx.ttl(), "the release waited")?;
    if goes {
        within(least + ctx.freed_after(), client.drain()).await?;
        faults.black_hole();
        drop((client, lock));
    }
    let next = within(least + ctx.freed_after(), other.acquire()).await??;
    let kept = start.elapsed();
    ensure(kept >= least, format!("kept for {kept:?} of {least:?}"))?;
    ensure(next.token() > token, "the token did not grow")?;
    next.release().await?;
    faults.heal();
    Ok(())
}

/// Whatever comes late or twice and asks for less: the lease stays as long as it is.
async fn no_request_shortens_a_lease(ctx: &Ctx) -> Outcome {
    let (name, store) = (ctx.name(), ctx.store().await?);
    let short = ctx.ticket(&name)?;
    let long = short.clone().with_ttl(ctx.longest(ctx.ttl() * 4));
    let granted = Instant::now();
    requests::granted(&*store, &long).await?;
    let other = ctx.client().await?.lock(name)?;
    let held_at = async |part: u32| {
        tokio::time::sleep_until(granted + long.ttl * part / 8).await;
        Outcome::Ok(other.try_acquire().await?.is_none())
    };
    requests::granted(&*store, &short).await?;
    ensure(held_at(3).await?, "a repeated attempt shortened it")?;
    for _ in 0..2 {
        requests::must_renew(&*store, &short).await?;
    }
    ensure(held_at(7).await?, "a renewal shortened it")?;
    store.release(&long).await?;
    Ok(())
}

/// Renewals that fail for a passing reason are repeated, and nothing is lost.
async fn transient_errors_are_retried(ctx: &Ctx) -> Outcome {
    for effect in [Effect::Unavailable, Effect::Indeterminate] {
        let (client, faults) = ctx.faulty().await?;
        let guard = client.lock(ctx.name())?.acquire().await?;
        faults.inject(Rule::new(Fault::Fail(effect)).on(Operation::Renew).times(2));
        soon(faults.struck(2)).await?;
        sleep(ctx.ttl()).await;
        guard.check()?;
        guard.release().await?;
    }
    Ok(())
}

/// A lock whose renewal is never answered does not keep others from being renewed, although some of
/// them share its request.
async fn one_bad_lock_does_not_stop_others(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let bad = client.lock(ctx.name())?;
    let never = Duration::from_secs(3600);
    let never = Fault::Delay {
        min: never,
        max: never,
    };
    let rule = Rule::new(never).on(Operation::Renew);
    faults.inject(rule.for_name(bad.name().clone()));
    let take = async || {
        let mut kept = Vec::new();
        for _ in 0..15 {
            kept.push(client.lock(ctx.name())?.acquire().await?);
        }
        Outcome::Ok(kept)
    };
    // Among the others, so that a request renews it with some of them, also where the machine stands still meanwhile.
    let mut kept = take().await?;
    let lost = bad.acquire().await?;
    kept.append(&mut take().await?);
    soon(lost.lost()).await?;
    sleep(ctx.ttl()).await;
    for guard in kept {
        guard.check()?;
        guard.release().await?;
    }
    Ok(())
}

/// The time that an answer takes is taken off the window: the store's lease began before it.
async fn window_counts_from_the_request(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    // Much shorter than a request of this client may take.
    let slow = (ctx.ttl() / 4).min(Duration::from_millis(100));
    let late = Fault::SlowReply {
        min: slow,
        max: slow,
    };
    faults.inject(Rule::new(late).on(Operation::Attempt));
    // A hold on a session that is older than the attempt may be due at once, and a renewal would begin
    // another window before anybody looks at this one.
    faults.inject(Rule::new(late).on(Operation::Renew));
    let most = window(ctx.ttl()).saturating_sub(slow);
    for tries in [false, true] {
        let lock = client.lock(ctx.name())?;
        let guard = if tries {
            let guard = soon(lock.try_acquire()).await??;
            guard.ok_or_else(|| Failure::new("a free lock was refused"))?
        } else {
            soon(lock.acquire()).await??
        };
        let believed = guard.remaining();
        ensure(
            believed <= most,
            format!("the guard counts on {believed:?}, but at most {most:?} are left"),
        )?;
    }
    Ok(())
}

/// The same for renewals.
async fn renewed_window_counts_from_the_request(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let guard = client.lock(ctx.name())?.acquire().await?;
    // Less than a renewal may take.
    let slow = Duration::from_millis(200);
    let late = Fault::SlowReply {
        min: slow,
        max: slow,
    };
    faults.inject(Rule::new(late).on(Operation::Renew));
    let most = window(ctx.ttl()).saturating_sub(slow);
    for _ in 0..3 {
        // It falls until an answer is believed, and rises then.
        let mut lowest = guard.remaining();
        let renewed = async || {
            let believed = guard.remaining();
            let rose = believed > lowest;
            lowest = lowest.min(believed);
            Ok(rose)
        };
        until("the lease was renewed", renewed).await?;
        let believed = guard.remaining();
        ensure(
            believed <= most,
            format!("the guard counts on {believed:?}, but at most {most:?} are left"),
        )?;
    }
    Ok(())
}

/// A session that was confirmed some time ago gives a window that is shorter by that time.
async fn window_counts_from_the_last_heartbeat(ctx: &Ctx) -> Outcome {
    let age = ctx.ttl() / 4;
    let store = StaleSession::new(ctx.store().await?, age);
    let client = ctx.builder(std::sync::Arc::new(store)).build()?;
    let guard = client.lock(ctx.name())?.acquire().await?;
    let believed = guard.remaining();
    let most = window(ctx.ttl()).saturating_sub(age);
    ensure(
        believed <= most,
        format!("the guard counts on {believed:?}, but at most {most:?} are left"),
    )
}

/// A guard never believes in more than the window of its lease.
async fn remaining_stays_within_the_window(ctx: &Ctx) -> Outcome {
    let (a, _) = ctx.locks().await?;
    let guard = a.acquire().await?;
    let end = Instant::now() + ctx.ttl();
    while Instant::now() < end {
        let believed = guard.remaining();
        ensure(
            believed <= window(ctx.ttl()) && !believed.is_zero(),
            format!("believes in {believed:?}"),
        )?;
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// A renewed hold ends at its longest hold time.
async fn max_hold_ends_a_hold(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let limit = ctx.ttl() * 2;
    let start = Instant::now();
    let guard = a.with_max_hold(limit)?.acquire().await?;
    let reason = soon(guard.lost()).await?;
    let lasted = start.elapsed();
    ensure(reason == LossReason::MaxHold, format!("{reason:?}"))?;
    ensure(
        lasted >= limit && lasted < limit + ctx.ttl(),
        format!("lasted {lasted:?}, not {limit:?}"),
    )?;
    soon(b.acquire()).await??.release().await?;
    Ok(())
}

/// A leaked hold keeps the lock until its lease ends, and not longer.
async fn leaked_hold_ends_with_its_lease(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let start = Instant::now();
    a.acquire().await?.leak();
    let guard = within(free_after(ctx, ctx.ttl()), b.acquire()).await??;
    let kept = start.elapsed();
    ensure(kept >= window(ctx.ttl()), format!("free after {kept:?}"))?;
    guard.release().await?;
    Ok(())
}

/// Without a renewal the store itself frees the lock after the lease, and not before.
async fn store_ends_a_lease_that_is_not_renewed(ctx: &Ctx) -> Outcome {
    let (name, store) = (ctx.name(), ctx.store().await?);
    // Long, so that it shows if it ends late by a part of its length.
    let ttl = match ctx.capabilities().ttl_of {
        TtlOf::PerSession => ctx.ttl(),
        _ => ctx.longest(ctx.ttl() * 4),
    };
    let start = Instant::now();
    requests::granted(&*store, &ctx.ticket(&name)?.with_ttl(ttl)).await?;
    let lock = ctx.client().await?.lock(name)?;
    let guard = within(free_after(ctx, ttl), lock.acquire()).await??;
    let kept = start.elapsed();
    ensure(kept >= window(ttl), format!("free after {kept:?}"))?;
    guard.release().await?;
    Ok(())
}

/// When a waiter has the lock at the latest whose holder has a lease of `ttl` that is not renewed. P3.
pub(super) fn free_after(ctx: &Ctx, ttl: Duration) -> Duration {
    let can = ctx.capabilities();
    // A server may count sessions in seconds.
    let late = match can.ttl_of {
        TtlOf::PerSession => Duration::from_secs(1),
        _ => Duration::ZERO,
    };
    ttl + late + can.poll.max + AT_ONCE
}

/// A renewal starts the store's lease anew, with the lease of the ticket.
async fn renewal_restarts_the_lease_at_the_store(ctx: &Ctx) -> Outcome {
    let (name, store) = (ctx.name(), ctx.store().await?);
    let ticket = ctx.ticket(&name)?;
    requests::granted(&*store, &ticket).await?;
    let lock = ctx.client().await?.lock(name)?;
    for _ in 0..6 {
        sleep(ctx.ttl() / 3).await;
        requests::must_renew(&*store, &ticket).await?;
        ensure(lock.try_acquire().await?.is_none(), "two hold at once")?;
    }
    store.release(&ticket).await?;
    Ok(())
}
