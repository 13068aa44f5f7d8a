//! The owner of a hold may acquire it again, and no other may. INV-5, INV-11.

use std::time::Duration;

use lockkit_core::Error;

use crate::case::{Case, Need};
use crate::ctx::Ctx;
use crate::failure::{Failure, Outcome, ensure};
use crate::task::{acquire, soon};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(guard_is_reentered),
        Case::new(owner_reenters_with_the_same_token),
        Case::new(owner_reenters_by_try_and_timeout),
        Case::new(another_owner_waits),
        Case::new(no_reentry_without_an_owner),
        Case::new(last_guard_frees_the_lock),
        Case::new(owner_of_another_client_is_refused),
        Case::new(two_tasks_of_one_owner_share_the_hold),
        Case::new(owner_acquires_again_after_release),
        Case::new(writer_reenters_to_read).needs(Need::Shares),
        Case::new(reader_that_wants_to_write_is_refused_at_once).needs(Need::Shares),
        Case::new(reader_reenters_past_a_waiting_writer).needs(Need::Shares),
    ]
}

/// A guard gives another guard of the same hold.
async fn guard_is_reentered(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let outer = a.acquire().await?;
    let inner = outer.reenter()?;
    ensure(inner.token() == outer.token(), "the token changed")?;
    ensure(inner.holder() == outer.holder(), "another hold")?;
    ensure(
        outer.guard_count() == 2,
        format!("{} holds", outer.guard_count()),
    )?;
    drop(outer);
    inner.check()?;
    ensure(b.try_acquire().await?.is_none(), "freed too early")?;
    inner.release().await?;
    soon(b.acquire()).await??.release().await?;
    Ok(())
}

/// An acquire by the owner of the hold returns at once, with the same token.
async fn owner_reenters_with_the_same_token(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let owner = client.owner();
    let name = ctx.name();
    let outer = client
        .lock(name.as_str())?
        .with_owner(&owner)?
        .acquire()
        .await?;
    for depth in 2..6 {
        let lock = client.lock(name.as_str())?.with_owner(&owner)?;
        let inner = soon(lock.acquire()).await??;
        ensure(inner.token() == outer.token(), "the token changed")?;
        ensure(
            inner.guard_count() == 2,
            format!("{} holds at {depth}", inner.guard_count()),
        )?;
        inner.release().await?;
    }
    outer.check()?;
    outer.release().await?;
    Ok(())
}

/// `try_acquire` and `acquire_timeout` re-enter too.
async fn owner_reenters_by_try_and_timeout(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let lock = client.lock(ctx.name())?.with_owner(&client.owner())?;
    let outer = lock.acquire_timeout(Duration::from_secs(5)).await?;
    let tried = lock.try_acquire().await?;
    let tried = tried.ok_or_else(|| Failure::new("the owner was refused"))?;
    let timed = lock.acquire_timeout(Duration::ZERO).await?;
    ensure(
        tried.token() == outer.token() && timed.token() == outer.token(),
        "the token changed",
    )?;
    ensure(
        outer.guard_count() == 3,
        format!("{} holds", outer.guard_count()),
    )
}

/// Another owner of the same client waits.
async fn another_owner_waits(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let lock = client.lock(ctx.name())?;
    let first = lock.clone().with_owner(&client.owner())?;
    let second = lock.with_owner(&client.owner())?;
    let guard = first.acquire().await?;
    ensure(
        second.try_acquire().await?.is_none(),
        "another owner came in",
    )?;
    let mut waiter = acquire(&second);
    waiter.waits_for(ctx.ttl() / 2).await?;
    let token = guard.token();
    guard.release().await?;
    let next = waiter.soon().await??;
    ensure(next.token() > token, "the token did not grow")
}

/// An acquire without an owner waits, even for a hold of the same client that has one.
async fn no_reentry_without_an_owner(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let lock = client.lock(ctx.name())?;
    let owned = lock.clone().with_owner(&client.owner())?;
    let guard = owned.acquire().await?;
    ensure(
        lock.try_acquire().await?.is_none(),
        "an acquire without an owner got the lock",
    )?;
    guard.release().await?;
    let guard = lock.acquire().await?;
    ensure(owned.try_acquire().await?.is_none(), "an owner came in")?;
    guard.release().await?;
    Ok(())
}

/// The lock is free only when all guards are gone, in whatever order.
async fn last_guard_frees_the_lock(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let mut guards = vec![a.acquire().await?];
    for _ in 0..4 {
        let next = guards[0].reenter()?;
        guards.push(next);
    }
    fastrand::shuffle(&mut guards);
    while guards.len() > 1 {
        let guard = guards.swap_remove(0);
        if fastrand::bool() {
            guard.release().await?;
        } else {
            drop(guard);
        }
        ensure(b.try_acquire().await?.is_none(), "freed too early")?;
        guards[0].check()?;
    }
    for guard in guards {
        guard.release().await?;
    }
    ensure(b.try_acquire().await?.is_some(), "not freed")
}

/// An owner belongs to the client that made it.
async fn owner_of_another_client_is_refused(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.two().await?;
    let error = a.lock(ctx.name())?.with_owner(&b.owner()).err();
    ensure(
        matches!(error, Some(Error::ForeignOwner)),
        format!("{error:?}"),
    )
}

/// Two acquires of one owner that race end in one hold with two guards.
async fn two_tasks_of_one_owner_share_the_hold(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let lock = client.lock(ctx.name())?.with_owner(&client.owner())?;
    for _ in 0..10 {
        let (first, second) = (acquire(&lock), acquire(&lock));
        let (first, second) = (first.soon().await??, second.soon().await??);
        ensure(first.token() == second.token(), "two holds of one owner")?;
        ensure(
            first.guard_count() == 2,
            format!("{} holds", first.guard_count()),
        )?;
        first.release().await?;
        second.check()?;
        second.release().await?;
    }
    Ok(())
}

/// After its hold has ended, the owner gets a new hold with a larger token.
async fn owner_acquires_again_after_release(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let lock = client.lock(ctx.name())?.with_owner(&client.owner())?;
    let first = lock.acquire().await?;
    let token = first.token();
    first.release().await?;
    let second = lock.acquire().await?;
    ensure(second.token() > token, "the token did not grow")?;
    ensure(
        second.guard_count() == 1,
        format!("{} holds", second.guard_count()),
    )
}

/// An owner that writes gets another guard of its hold when it reads.
async fn writer_reenters_to_read(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let owner = client.owner();
    let lock = client.rw_lock(ctx.name())?;
    let writes = lock.write().with_owner(&owner)?.acquire().await?;
    let reads = lock.read().with_owner(&owner)?.acquire().await?;
    ensure(reads.holder() == writes.holder(), "another hold")?;
    writes.release().await?;
    let other = ctx.client().await?.rw_lock(lock.name())?;
    ensure(
        other.read().try_acquire().await?.is_none(),
        "it became a reader",
    )?;
    Ok(reads.release().await?)
}

/// It would wait for itself.
async fn reader_that_wants_to_write_is_refused_at_once(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let owner = client.owner();
    let lock = client.rw_lock(ctx.name())?;
    let reads = lock.read().with_owner(&owner)?.acquire().await?;
    let write = lock.write().with_owner(&owner)?;
    for answer in [
        soon(write.acquire()).await?.map(Some),
        write.try_acquire().await,
    ] {
        match answer {
            Err(Error::InvalidOption { .. }) => {}
            answer => return Err(Failure::new(format!("{answer:?}"))),
        }
    }
    reads.check()?;
    ensure(reads.guard_count() == 1, "a guard was counted")?;
    reads.release().await?;
    soon(write.acquire()).await??.release().await?;
    Ok(())
}

/// The writer waits for this reader: to wait behind it would be to wait for itself.
async fn reader_reenters_past_a_waiting_writer(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let owner = client.owner();
    let lock = client.rw_lock(ctx.name())?;
    let read = lock.read().with_owner(&owner)?;
    let outer = read.acquire().await?;
    let mut writer = acquire(&ctx.client().await?.rw_lock(lock.name())?.write());
    ctx.queued(&read, 1).await?;
    let inner = soon(read.acquire()).await??;
    ensure(inner.token() == outer.token(), "another hold")?;
    outer.release().await?;
    writer.waits_for(Duration::from_millis(100)).await?;
    inner.release().await?;
    writer.soon().await??.release().await?;
    Ok(())
}
