//! A hold that passes from one client to another, or from a writer to a reader, without a gap. INV-22.

use lockkit_core::contract::{Attempt, Mode, Release, Renewal};
use lockkit_core::layers::{Fault, Operation, Rule};
use lockkit_core::{Error, Guard, LockClient, Waiting};
use tokio::time::{Instant, sleep};

use super::ambiguity::single_hold;
use super::lease::free_after;
use crate::case::{Case, Need};
use crate::ctx::Ctx;
use crate::failure::{Failure, Outcome, ensure};
use crate::task::{AT_ONCE, acquire, soon, within};

pub(super) fn cases() -> Vec<Case> {
    let cases = vec![
        Case::new(adopted_hold_goes_on),
        Case::new(one_of_two_adopts),
        Case::new(detached_hold_ends_with_its_lease),
        Case::new(former_ticket_does_nothing),
        Case::new(adoption_without_reply_is_one_hold),
        Case::new(adoption_of_a_free_lock_is_refused),
        Case::new(hold_with_other_guards_is_not_detached),
    ];
    let cases = cases.into_iter().map(|case| case.needs(Need::Adopts));
    let downgrades = vec![
        Case::new(downgrade_lets_readers_in),
        Case::new(downgrade_lets_no_writer_in),
        Case::new(reader_is_not_downgraded),
    ];
    let downgrades = downgrades.into_iter().map(|case| case.needs(Need::Shares));
    cases.chain(downgrades).collect()
}

fn ensure_lost<T: std::fmt::Debug>(answer: lockkit_core::Result<T>) -> Outcome {
    match answer {
        Err(Error::Lost { .. }) => Ok(()),
        answer => Err(Failure::new(format!("{answer:?}"))),
    }
}

/// A lock that one client has detached, its token and the text, and another client.
async fn detached(ctx: &Ctx) -> Outcome<(lockkit_core::Lock, Guard, LockClient)> {
    let (a, b) = ctx.two().await?;
    let lock = a.lock(ctx.name())?;
    let guard = lock.acquire().await?;
    Ok((lock, guard, b))
}

/// With the same token, and renewed by the client that adopted it.
async fn adopted_hold_goes_on(ctx: &Ctx) -> Outcome {
    let (lock, guard, b) = detached(ctx).await?;
    let (token, former) = (guard.token(), guard.holder());
    let text = guard.detach().await?;
    ensure(
        lock.try_acquire().await?.is_none(),
        "a detached lock is free",
    )?;
    let adopted = b.adopt(&text).await?;
    ensure(adopted.token() == token, "the token changed")?;
    ensure(
        adopted.holder() != former,
        "the identity is the former one's",
    )?;
    sleep(ctx.freed_after()).await;
    adopted.check()?;
    ensure(
        lock.try_acquire().await?.is_none(),
        "an adopted lock is free",
    )?;
    let state = lock.inspect().await?;
    ensure(
        state.is_some_and(|state| state.holder_ids().eq([adopted.holder().to_string()])),
        "another holder is shown",
    )?;
    adopted.release().await?;
    let next = soon(lock.acquire()).await??;
    ensure(next.token() > token, "the token did not grow")?;
    Ok(next.release().await?)
}

/// A text works once.
async fn one_of_two_adopts(ctx: &Ctx) -> Outcome {
    let (_, guard, b) = detached(ctx).await?;
    let c = ctx.client().await?;
    let text = guard.detach().await?;
    let (one, other) = tokio::join!(b.adopt(&text), c.adopt(&text));
    let (won, refused) = match (one, other) {
        (Ok(guard), Err(error)) | (Err(error), Ok(guard)) => (guard, error),
        both => return Err(Failure::new(format!("{both:?}"))),
    };
    ensure_lost::<()>(Err(refused))?;
    won.check()?;
    won.release().await?;
    ensure_lost(b.adopt(&text).await)
}

/// Nobody renews it.
async fn detached_hold_ends_with_its_lease(ctx: &Ctx) -> Outcome {
    let (lock, guard, b) = detached(ctx).await?;
    let (begun, left) = (Instant::now(), guard.remaining());
    let text = guard.detach().await?;
    let next = within(free_after(ctx, ctx.ttl()), lock.acquire()).await??;
    let kept = begun.elapsed();
    ensure(kept >= left, format!("free after {kept:?} of {left:?}"))?;
    ensure_lost(b.adopt(&text).await)?;
    Ok(next.release().await?)
}

/// Neither its renewals nor its release nor another adoption.
async fn former_ticket_does_nothing(ctx: &Ctx) -> Outcome {
    let (store, name) = (ctx.store().await?, ctx.name());
    let [first, second, third] = [ctx.ticket(&name)?, ctx.ticket(&name)?, ctx.ticket(&name)?];
    let Attempt::Granted(grant) = store.attempt(&first).await? else {
        return Err(Failure::new("a free lock was refused"));
    };
    for _ in 0..2 {
        match store.adopt(first.holder, &second).await? {
            Attempt::Granted(again) if again.token == grant.token => {}
            answer => return Err(Failure::new(format!("{answer:?}"))),
        }
    }
    let renewal = store.renew(std::slice::from_ref(&first)).await.pop();
    ensure(
        matches!(renewal, Some(Ok(Renewal::NotHeld))),
        format!("{renewal:?}"),
    )?;
    let answer = store.adopt(first.holder, &third).await?;
    ensure(
        matches!(answer, Attempt::Held { .. }),
        "it was adopted twice",
    )?;
    let released = store.release(&first).await?;
    ensure(released == Release::NotHeld, "the former ticket held")?;
    let renewal = store.renew(std::slice::from_ref(&second)).await.pop();
    ensure(
        matches!(renewal, Some(Ok(Renewal::Renewed { .. }))),
        format!("{renewal:?}"),
    )?;
    let released = store.release(&second).await?;
    ensure(released == Release::Released, "the adopter did not hold")?;
    store.release(&third).await?;
    Ok(())
}

/// The repeated adoption finds the same hold.
async fn adoption_without_reply_is_one_hold(ctx: &Ctx) -> Outcome {
    let (lock, guard, _) = detached(ctx).await?;
    let (b, faults) = ctx.faulty().await?;
    let token = guard.token();
    let text = guard.detach().await?;
    faults.inject(Rule::new(Fault::DropReply).on(Operation::Adopt).times(1));
    let adopted = soon(b.adopt(&text)).await??;
    ensure(faults.injected() == 1, "the fault did not take place")?;
    ensure(adopted.token() == token, "the token changed")?;
    single_hold(ctx, lock.name().as_str(), adopted).await
}

/// And leaves nothing behind.
async fn adoption_of_a_free_lock_is_refused(ctx: &Ctx) -> Outcome {
    let (lock, guard, b) = detached(ctx).await?;
    let text = guard.detach().await?;
    lock.break_lock().await?;
    ensure_lost(b.adopt(&text).await)?;
    soon(b.drain()).await?;
    ensure(lock.inspect().await?.is_none(), "the lock is not free")?;
    match b.adopt("v1 a text of another kind").await {
        Err(Error::InvalidOption { .. }) => Ok(()),
        answer => Err(Failure::new(format!("{answer:?}"))),
    }
}

/// They would not learn of it.
async fn hold_with_other_guards_is_not_detached(ctx: &Ctx) -> Outcome {
    let (lock, guard, _) = detached(ctx).await?;
    let other = guard.reenter()?;
    match guard.detach().await {
        Err(Error::InvalidOption { .. }) => {}
        answer => return Err(Failure::new(format!("{answer:?}"))),
    }
    other.check()?;
    other.release().await?;
    ensure(lock.try_acquire().await?.is_some(), "it is still held")
}

/// Those who wait, and those who come: at once, or where the store cannot hand over, at the release.
async fn downgrade_lets_readers_in(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.two().await?;
    let (name, adopts) = (ctx.name(), ctx.capabilities().adopts);
    let (lock, other) = (a.rw_lock(name.as_str())?, b.rw_lock(name)?);
    let writer = lock.write().acquire().await?;
    let token = writer.token();
    // Its lease is so long that it does not look by itself.
    let mut waiting = acquire(&other.read().with_lease(ctx.long())?);
    waiting.waits_for(ctx.ttl() / 4).await?;
    let reader = writer.downgrade().await?;
    ensure(reader.token() == token, "the token changed")?;
    ensure(
        (reader.ticket().mode == Mode::Read) == adopts,
        format!("{:?}", reader.ticket()),
    )?;
    if adopts {
        let limit = match ctx.capabilities().waiting {
            Waiting::Push => AT_ONCE,
            _ => AT_ONCE + ctx.capabilities().poll.max,
        };
        let beside = within(limit, waiting.soon()).await???;
        reader.check()?;
        beside.check()?;
        sleep(ctx.freed_after()).await;
        reader.check()?;
        reader.release().await?;
        beside.release().await?;
    } else {
        reader.release().await?;
        waiting.soon().await??.release().await?;
    }
    soon(other.write().acquire()).await??.release().await?;
    Ok(())
}

/// Although it waited first.
async fn downgrade_lets_no_writer_in(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.two().await?;
    let name = ctx.name();
    let (lock, other) = (a.rw_lock(name.as_str())?, b.rw_lock(name)?);
    let writer = lock.write().acquire().await?;
    let mut waiting = acquire(&other.write());
    waiting.waits_for(ctx.ttl() / 4).await?;
    let reader = writer.downgrade().await?;
    waiting.waits_for(ctx.ttl() / 2).await?;
    reader.check()?;
    let token = reader.token();
    reader.release().await?;
    let next = waiting.soon().await??;
    ensure(next.token() > token, "the token did not grow")?;
    Ok(next.release().await?)
}

/// It is no writer.
async fn reader_is_not_downgraded(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let lock = client.rw_lock(ctx.name())?;
    let reader = lock.read().acquire().await?;
    match reader.downgrade().await {
        Err(Error::InvalidOption { .. }) => {}
        answer => return Err(Failure::new(format!("{answer:?}"))),
    }
    soon(client.drain()).await?;
    let writer = lock.write().try_acquire().await?;
    ensure(writer.is_some(), "the reader still holds")
}
