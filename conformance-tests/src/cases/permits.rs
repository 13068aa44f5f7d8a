//! Semaphores: as many hold as there are permits, and no more. INV-18.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lockkit_core::contract::{Mode, Release, Ticket};
use lockkit_core::{Guard, Lock};
use tokio::sync::Barrier;
use tokio::time::sleep;

use crate::case::{Case, Need};
use crate::ctx::Ctx;
use crate::failure::{Failure, Outcome, ensure};
use crate::requests::granted;
use crate::task::{acquire, soon, spawn};

pub(super) fn cases() -> Vec<Case> {
    let cases = vec![
        Case::new(no_more_than_n_hold),
        Case::new(dead_permit_comes_back_once)
            .needs(Need::LeasePerHold)
            .needs(Need::StoreEndsLeases),
        Case::new(ended_permit_is_not_described)
            .needs(Need::LeasePerHold)
            .needs(Need::StoreEndsLeases),
        Case::new(late_release_frees_no_other),
        Case::new(all_waiters_of_a_burst_are_served),
        Case::new(smaller_number_waits_for_its_own),
        Case::new(lock_waits_for_all_permits),
    ];
    cases
        .into_iter()
        .map(|case| case.needs(Need::Shares))
        .collect()
}

async fn permit(ctx: &Ctx, name: &str, of: u32) -> Outcome<Lock> {
    Ok(ctx.client().await?.semaphore(name, of)?)
}

fn ticket(ctx: &Ctx, name: &str, lock: &Guard) -> Outcome<Ticket> {
    let mode = lock.ticket().mode;
    ensure(matches!(mode, Mode::Permit { .. }), format!("{mode:?}"))?;
    Ok(ctx.ticket(name)?.with_mode(mode))
}

async fn taken(lock: &Lock) -> Outcome<Guard> {
    let guard = lock.try_acquire().await?;
    guard.ok_or_else(|| Failure::new("a permit that is free was refused"))
}

/// So many hold, and this ticket does not.
async fn others_hold(lock: &Lock, count: usize, dead: &Ticket) -> Outcome {
    let state = lock.inspect().await?;
    let holders = state.map_or_else(Vec::new, |state| state.holders);
    let dead = dead.holder.to_string();
    let still = holders.iter().any(|holder| holder.id.contains(&dead));
    ensure(holders.len() == count && !still, format!("{holders:?}"))
}

async fn refused(lock: &Lock) -> Outcome {
    ensure(lock.try_acquire().await?.is_none(), "too many hold")
}

/// The fourth of three waits until one goes, and gets the permit that came back.
async fn no_more_than_n_hold(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let mut guards = Vec::new();
    for _ in 0..3 {
        guards.push(taken(&permit(ctx, &name, 3).await?).await?);
    }
    let fourth = permit(ctx, &name, 3).await?;
    refused(&fourth).await?;
    let mut waiter = acquire(&fourth);
    waiter.waits_for(ctx.ttl() / 4).await?;
    guards.iter().try_for_each(Guard::check)?;
    let first = guards.swap_remove(0);
    first.release().await?;
    let guard = waiter.soon().await??;
    refused(&permit(ctx, &name, 3).await?).await?;
    guard.check()?;
    for guard in guards.into_iter().chain([guard]) {
        guard.release().await?;
    }
    ensure(fourth.inspect().await?.is_none(), "a permit is still out")
}

/// The permit of a holder that died is given to one waiter, and not to two.
async fn dead_permit_comes_back_once(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let living = taken(&permit(ctx, &name, 2).await?).await?;
    let dead = ticket(ctx, &name, &living)?;
    granted(&*ctx.store().await?, &dead).await?;
    let mut waiters = Vec::new();
    for _ in 0..2 {
        waiters.push(permit(ctx, &name, 2).await?);
    }
    let (one, other) = (acquire(&waiters[0]), acquire(&waiters[1]));
    sleep(ctx.freed_after()).await;
    living.check()?;
    others_hold(&waiters[0], 2, &dead).await?;
    living.release().await?;
    let guards = [one.soon().await??, other.soon().await??];
    guards.iter().try_for_each(Guard::check)?;
    Ok(())
}

/// A holder whose lease has ended holds no longer, though no step of another ticket has removed it.
async fn ended_permit_is_not_described(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let lock = permit(ctx, &name, 2).await?;
    let living = taken(&lock).await?;
    let dead = ticket(ctx, &name, &living)?;
    granted(&*ctx.store().await?, &dead).await?;
    let held = lock.inspect().await?.map(|state| state.holders.len());
    ensure(held == Some(2), format!("{held:?} hold"))?;
    sleep(ctx.freed_after()).await;
    living.check()?;
    others_hold(&lock, 1, &dead).await?;
    Ok(living.release().await?)
}

/// A release that comes twice gives nothing back the second time.
async fn late_release_frees_no_other(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let store = ctx.store().await?;
    let one = taken(&permit(ctx, &name, 2).await?).await?;
    let late = ticket(ctx, &name, &one)?;
    granted(&*store, &late).await?;
    let answer = store.release(&late).await?;
    ensure(answer == Release::Released, "a permit was not released")?;
    let other = taken(&permit(ctx, &name, 2).await?).await?;
    let answer = store.release(&late).await?;
    ensure(answer == Release::NotHeld, "a late release did something")?;
    refused(&permit(ctx, &name, 2).await?).await?;
    one.release().await?;
    Ok(other.release().await?)
}

/// All permits come back at the same moment, to four times as many waiters.
async fn all_waiters_of_a_burst_are_served(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let mut held = Vec::new();
    for _ in 0..4 {
        // So long that none is lost before all wait: a waiter would hold alone, and the queue stay shorter.
        let lock = permit(ctx, &name, 4).await?.with_lease(ctx.long())?;
        held.push(taken(&lock).await?);
    }
    let (holding, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    // None of four goes before all four hold.
    let all = Arc::new(Barrier::new(4));
    let mut waiters = Vec::new();
    for _ in 0..16 {
        let lock = permit(ctx, &name, 4).await?;
        let (holding, most, all) = (Arc::clone(&holding), Arc::clone(&most), Arc::clone(&all));
        waiters.push(spawn(async move {
            let guard = lock.acquire().await?;
            most.fetch_max(holding.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            all.wait().await;
            holding.fetch_sub(1, Ordering::SeqCst);
            guard.release().await
        }));
    }
    ctx.queued(&permit(ctx, &name, 4).await?, 16).await?;
    let releases: Vec<_> = held
        .into_iter()
        .map(|guard| spawn(guard.release()))
        .collect();
    for release in releases {
        release.soon().await??;
    }
    for waiter in waiters {
        waiter.soon().await??;
    }
    let most = most.load(Ordering::SeqCst);
    ensure(most == 4, format!("{most} held at once"))
}

/// A client that knows of fewer permits waits until fewer hold.
async fn smaller_number_waits_for_its_own(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let one = taken(&permit(ctx, &name, 4).await?).await?;
    let other = taken(&permit(ctx, &name, 4).await?).await?;
    let fewer = permit(ctx, &name, 2).await?;
    refused(&fewer).await?;
    one.release().await?;
    let third = taken(&fewer).await?;
    let fourth = taken(&permit(ctx, &name, 4).await?).await?;
    for guard in [other, third, fourth] {
        guard.release().await?;
    }
    Ok(())
}

/// The lock of the same name waits until all permits are back, and keeps later ones out.
async fn lock_waits_for_all_permits(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let one = taken(&permit(ctx, &name, 3).await?).await?;
    let other = taken(&permit(ctx, &name, 3).await?).await?;
    let lock = ctx.client().await?.lock(name.as_str())?;
    let mut waiter = acquire(&lock);
    ctx.queued(&lock, 1).await?;
    refused(&permit(ctx, &name, 3).await?).await?;
    one.release().await?;
    waiter.waits_for(ctx.ttl() / 4).await?;
    other.release().await?;
    let guard = waiter.soon().await??;
    refused(&permit(ctx, &name, 3).await?).await?;
    guard.release().await?;
    soon(permit(ctx, &name, 3).await?.acquire())
        .await??
        .release()
        .await?;
    Ok(())
}
