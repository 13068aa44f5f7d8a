//! Processes that die or freeze while they hold or wait. P3.

use std::time::Duration;

use lockkit_core::EndsBy;
use tokio::time::sleep;

use crate::case::{Case, Need};
use crate::checker::check;
use crate::ctx::Ctx;
use crate::failure::{Outcome, ensure};
use crate::history::{Op, Phase};
use crate::task::{AT_ONCE, acquire, soon, within};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(lock_of_a_killed_holder_becomes_free).needs(Need::Taker),
        Case::new(killed_waiter_blocks_no_other).needs(Need::Taker),
        Case::new(frozen_holder_sees_its_loss_when_it_wakes)
            .needs(Need::Taker)
            .needs(Need::StoreEndsLeases),
        Case::new(frozen_process_keeps_the_lock)
            .needs(Need::Taker)
            .needs(Need::EndsWithProcess),
        Case::new(briefly_frozen_holder_keeps_the_lock).needs(Need::Taker),
        Case::new(frozen_waiter_blocks_no_other).needs(Need::Taker),
        Case::new(token_grows_from_process_to_process).needs(Need::Taker),
    ]
}

/// Within its lease; where the store sees the process end, at once.
async fn lock_of_a_killed_holder_becomes_free(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let mut taker = ctx.taker().await?;
    let token = taker.acquire(&name).await?;
    let lock = ctx.client().await?.lock(name)?;
    ensure(lock.try_acquire().await?.is_none(), "two processes hold")?;
    let waiter = acquire(&lock);
    taker.kill().await?;
    let can = ctx.capabilities();
    let limit = match can.ends_by {
        EndsBy::Process => AT_ONCE + can.poll.max,
        _ => ctx.freed_after(),
    };
    let guard = within(limit, waiter.soon()).await???;
    ensure(guard.token().get() > token, "the token did not grow")
}

/// A process that waits and is killed does not become a holder, or not for longer than a lease.
async fn killed_waiter_blocks_no_other(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let lock = ctx.client().await?.lock(name.as_str())?;
    let guard = lock.acquire().await?;
    let mut taker = ctx.taker().await?;
    taker.send(&format!("acquire {name}")).await?;
    ctx.queued(&lock, 1).await?;
    taker.kill().await?;
    guard.release().await?;
    within(ctx.freed_after(), lock.acquire())
        .await??
        .release()
        .await?;
    Ok(())
}

/// A process that was frozen beyond its lease sees its loss at its first look, however the lock went
/// on meanwhile.
async fn frozen_holder_sees_its_loss_when_it_wakes(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let mut taker = ctx.taker().await?;
    taker.acquire(&name).await?;
    taker.stop()?;
    let lock = ctx.client().await?.lock(name)?;
    let guard = within(ctx.ttl() + ctx.freed_after(), lock.acquire()).await??;
    taker.resume()?;
    let seen = taker.run("check").await?;
    ensure(seen.phase == Phase::Fail, "two processes believe they hold")?;
    let released = taker.run("release").await?;
    ensure(
        released.op == Op::Release && released.phase == Phase::Fail,
        released.line(),
    )?;
    guard.check()?;
    guard.release().await?;
    check(&taker.history())?;
    Ok(())
}

/// Where the process is the lease, a frozen one keeps the lock for as long as it lives.
async fn frozen_process_keeps_the_lock(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let mut taker = ctx.taker().await?;
    taker.acquire(&name).await?;
    taker.stop()?;
    let lock = ctx.client().await?.lock(name)?;
    let mut waiter = acquire(&lock);
    waiter.waits_for(ctx.ttl() * 3).await?;
    taker.kill().await?;
    waiter.soon().await??.release().await?;
    Ok(())
}

/// A process that was frozen for less than its lease goes on as if nothing had been.
async fn briefly_frozen_holder_keeps_the_lock(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let mut taker = ctx.taker().await?;
    taker.acquire(&name).await?;
    for _ in 0..3 {
        taker.stop()?;
        sleep(ctx.ttl() / 4).await;
        taker.resume()?;
        // Long enough for the renewal that is due.
        sleep(ctx.ttl() / 3).await;
    }
    let seen = taker.run("check").await?;
    ensure(seen.phase == Phase::Ok, "lost for no reason")?;
    let released = taker.run("release").await?;
    ensure(released.phase == Phase::Ok, released.line())
}

/// A process that waits and is frozen does not hold up the others.
async fn frozen_waiter_blocks_no_other(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let lock = ctx.client().await?.lock(name.as_str())?;
    let guard = lock.acquire().await?;
    let mut taker = ctx.taker().await?;
    taker.send(&format!("acquire {name}")).await?;
    ctx.queued(&lock, 1).await?;
    taker.stop()?;
    guard.release().await?;
    within(ctx.ttl() + ctx.freed_after(), lock.acquire())
        .await??
        .release()
        .await?;
    taker.resume()?;
    // Awake again it is served, and knows what it has.
    let seen = soon(taker.answer(Duration::from_secs(20))).await??;
    let seen = seen.map(|event| (event.op, event.phase));
    ensure(seen == Some((Op::Check, Phase::Ok)), format!("{seen:?}"))
}

/// Three processes one after the other.
async fn token_grows_from_process_to_process(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let mut last = 0;
    for kill in [true, false, true] {
        let mut taker = ctx.taker().await?;
        let token = taker.acquire(&name).await?;
        ensure(token > last, format!("{token} after {last}"))?;
        last = token;
        if kill {
            taker.kill().await?;
        } else {
            taker.run("release").await?;
        }
    }
    Ok(())
}
