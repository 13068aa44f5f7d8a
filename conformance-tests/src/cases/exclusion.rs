//! Never two holders. P0, P1.

use lockkit_core::contract::Release;
use lockkit_core::{Failover, Queueing};

use crate::case::Case;
use crate::ctx::Ctx;
use crate::failure::{Failure, Outcome, ensure};
use crate::task::{acquire, soon, together, until};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(second_client_is_refused),
        Case::new(second_client_waits),
        Case::new(one_of_many_tries_wins),
        Case::new(tasks_of_one_client_exclude_each_other),
        Case::new(clones_of_one_lock_exclude_each_other),
        Case::new(try_leaves_nothing_behind),
        Case::new(release_by_another_client_changes_nothing),
        Case::new(release_ends_only_its_own_hold),
        Case::new(other_names_are_free),
        Case::new(scope_holds_while_it_works),
    ]
}

/// While one client holds, the try of another returns `None`; after the release it gets the lock.
async fn second_client_is_refused(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire().await?;
    guard.check()?;
    ensure(b.try_acquire().await?.is_none(), "two hold at once")?;
    guard.release().await?;
    let guard = b.try_acquire().await?;
    ensure(guard.is_some(), "a free lock was refused")
}

/// An acquire waits for as long as another client holds, also if that one waited itself.
async fn second_client_waits(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire().await?;
    let first = acquire(&b);
    ctx.queued(&a, 1).await?;
    guard.release().await?;
    let guard = first.soon().await??;
    let mut second = acquire(&a);
    second.waits_for(ctx.ttl() * 2).await?;
    guard.check()?;
    guard.release().await?;
    second.soon().await??.check()?;
    Ok(())
}

/// Of many clients that try at the same moment exactly one gets the lock.
async fn one_of_many_tries_wins(ctx: &Ctx) -> Outcome {
    let can = ctx.capabilities();
    // Servers that vote may give nobody a majority.
    let votes = can.failover == Failover::Majority && can.queueing == Queueing::Barging;
    let clients = ctx.clients(16).await?;
    let mut all = 0;
    for _ in 0..8 {
        let locks = ctx.lock_of_all(&clients)?;
        let mut winners = Vec::new();
        for one in together(locks, |lock| async move { lock.try_acquire().await }) {
            winners.extend(one.soon().await??);
        }
        let won = winners.len();
        ensure(
            won == 1 || (votes && won == 0),
            format!("{won} of 16 tries won"),
        )?;
        all += won;
    }
    ensure(all > 0, "no try won")
}

/// Two tasks with their own handles of one client.
async fn tasks_of_one_client_exclude_each_other(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let name = ctx.name();
    let guard = client.lock(name.as_str())?.acquire().await?;
    let mut waiter = acquire(&client.lock(name.as_str())?);
    waiter.waits_for(ctx.ttl() / 2).await?;
    let first = guard.token();
    guard.release().await?;
    let second = waiter.soon().await??.token();
    ensure(
        second > first,
        "the second task shares the hold of the first",
    )
}

/// Two tasks that share one `Lock` without an owner.
async fn clones_of_one_lock_exclude_each_other(ctx: &Ctx) -> Outcome {
    let lock = ctx.client().await?.lock(ctx.name())?;
    let guard = lock.acquire().await?;
    ensure(lock.try_acquire().await?.is_none(), "a try got in")?;
    ensure(
        lock.clone().try_acquire().await?.is_none(),
        "a clone got in",
    )?;
    drop(guard);
    soon(lock.acquire()).await??.release().await?;
    Ok(())
}

/// A try on a held lock takes no place in the queue.
async fn try_leaves_nothing_behind(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire().await?;
    for _ in 0..3 {
        ensure(b.try_acquire().await?.is_none(), "two hold at once")?;
    }
    let state = a
        .inspect()
        .await?
        .ok_or_else(|| Failure::new("the lock is free"))?;
    ensure(state.waiters.unwrap_or(0) == 0, format!("{state:?}"))?;
    guard.release().await?;
    ensure(a.inspect().await?.is_none(), "a try stayed in the queue")
}

/// A ticket that never held cannot end the hold of another.
async fn release_by_another_client_changes_nothing(ctx: &Ctx) -> Outcome {
    let (client, stranger) = (ctx.client().await?, ctx.store().await?);
    let name = ctx.name();
    let lock = client.lock(name.as_str())?;
    let guard = lock.acquire().await?;
    let answer = stranger.release(&ctx.ticket(&name)?).await?;
    ensure(
        answer == Release::NotHeld,
        "a stranger's release did something",
    )?;
    // The same, from the connection of the holder.
    let answer = client.backend().release(&ctx.ticket(&name)?).await?;
    ensure(
        answer == Release::NotHeld,
        "a stranger's release did something",
    )?;
    let other = ctx.client().await?.lock(name.as_str())?;
    ensure(other.try_acquire().await?.is_none(), "the hold was ended")?;
    guard.release().await?;
    Ok(())
}

/// A release that is repeated after somebody else has taken the lock does not end that hold.
async fn release_ends_only_its_own_hold(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.two().await?;
    let name = ctx.name();
    let guard = a.lock(name.as_str())?.acquire().await?;
    let ticket = guard.ticket().clone();
    guard.release().await?;
    let guard = b.lock(name.as_str())?.acquire().await?;
    let again = a.backend().release(&ticket).await?;
    ensure(again == Release::NotHeld, "a late release did something")?;
    ensure(
        a.lock(name.as_str())?.try_acquire().await?.is_none(),
        "a late release ended another's hold",
    )?;
    guard.release().await?;
    Ok(())
}

/// Locks of different names have nothing to do with each other.
async fn other_names_are_free(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.two().await?;
    let held = a.lock(ctx.name())?.acquire().await?;
    let mut others = Vec::new();
    for _ in 0..20 {
        let guard = b.lock(ctx.name())?.try_acquire().await?;
        others.push(guard.ok_or_else(|| Failure::new("a free lock was refused"))?);
    }
    held.check()?;
    for guard in others {
        guard.release().await?;
    }
    Ok(())
}

/// `scope` holds the lock while the work runs and has released it when it returns.
async fn scope_holds_while_it_works(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let seen = a
        .scope(async |guard| {
            let refused = b.try_acquire().await?.is_none();
            Ok::<_, lockkit_core::Error>((guard.token(), refused))
        })
        .await?;
    let (token, refused) = seen?;
    ensure(refused, "the lock was free while the work ran")?;
    let guard = b.try_acquire().await?;
    let guard = guard.ok_or_else(|| Failure::new("still held after the work"))?;
    ensure(guard.token() > token, "the token did not grow")?;
    drop(guard);
    let free = async || Ok(b.inspect().await?.is_none());
    until("the dropped guard is released", free).await?;
    soon(a.acquire()).await??.release().await?;
    Ok(())
}
