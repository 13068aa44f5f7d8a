//! What operators see and do.

use std::time::Duration;

use lockkit_core::{EndsBy, LossReason, window};

use crate::case::{Case, Need};
use crate::ctx::{Ctx, waiter_count};
use crate::failure::{Failure, Outcome, ensure};
use crate::task::{acquire, soon, within};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(free_lock_shows_nothing),
        Case::new(held_lock_shows_its_holder),
        Case::new(holder_is_shown_with_its_label),
        Case::new(time_left_is_within_the_lease),
        Case::new(waiters_are_counted).needs(Need::Fifo),
        Case::new(break_frees_the_lock),
        Case::new(break_of_a_free_lock_does_nothing),
        Case::new(broken_holder_learns_of_it),
        Case::new(broken_holder_cannot_end_the_next_hold),
        Case::new(break_serves_the_waiter),
        Case::new(list_shows_what_is_held),
        Case::new(list_keeps_to_its_prefix),
    ]
}

/// Neither before its first use nor after.
async fn free_lock_shows_nothing(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    ensure(b.inspect().await?.is_none(), "held before its first use")?;
    a.acquire().await?.release().await?;
    ensure(b.inspect().await?.is_none(), "held after its release")
}

/// By its identity, to any client.
async fn held_lock_shows_its_holder(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire().await?;
    for lock in [&a, &b] {
        let state = lock.inspect().await?;
        let state = state.ok_or_else(|| Failure::new("the lock is free"))?;
        ensure(state.name == *a.name(), format!("{state:?}"))?;
        ensure(
            state.holder_ids().eq([guard.holder().to_string()]),
            format!("{state:?}"),
        )?;
    }
    Ok(())
}

/// The client's own, or the name of its host, its process and its program.
async fn holder_is_shown_with_its_label(ctx: &Ctx) -> Outcome {
    let a = ctx.builder(ctx.store().await?).label("web-1 \"é\"");
    let (a, b) = (a.build()?, ctx.client().await?);
    let (name, process) = (ctx.name(), format!(":{} ", std::process::id()));
    let held = a.lock(name.as_str())?.acquire().await?;
    let label = label_of(&b.lock(name.as_str())?).await?;
    ensure(
        label.as_deref() == Some("web-1 \"é\""),
        format!("{label:?}"),
    )?;
    let timeout = b.lock(name.as_str())?.acquire_timeout(Duration::ZERO).await;
    let message = timeout.err().map(|error| error.to_string());
    ensure(
        message
            .as_ref()
            .is_some_and(|message| message.contains("held by web-1 \"é\"")),
        format!("{message:?}"),
    )?;
    held.release().await?;
    let held = b.lock(name.as_str())?.acquire().await?;
    let label = label_of(&a.lock(name)?).await?;
    ensure(
        label.as_ref().is_some_and(|label| label.contains(&process)),
        format!("{label:?}"),
    )?;
    held.release().await?;
    let none = ctx.builder(ctx.store().await?).label("").build()?;
    let lock = none.lock(ctx.name())?;
    let held = lock.acquire().await?;
    ensure(label_of(&lock).await?.is_none(), "there is a label")?;
    Ok(held.release().await?)
}

async fn label_of(lock: &lockkit_core::Lock) -> Outcome<Option<String>> {
    let state = lock.inspect().await?;
    let holder = state.and_then(|state| state.holders.into_iter().next());
    let holder = holder.ok_or_else(|| Failure::new("the lock is free"))?;
    Ok(holder.label)
}

/// Where leases end by themselves, the time left is neither more than the lease nor nothing.
async fn time_left_is_within_the_lease(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let _guard = a.acquire().await?;
    let state = b.inspect().await?;
    let state = state.ok_or_else(|| Failure::new("the lock is free"))?;
    let least = window(ctx.ttl()) / 4;
    let by_lease = ctx.capabilities().ends_by == EndsBy::Lease;
    let within = |left| left <= ctx.ttl() && left >= least;
    ensure(
        state.remaining.map_or(!by_lease, within),
        format!("{state:?}"),
    )
}

/// One for each client that waits, and none when they have gone.
async fn waiters_are_counted(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire().await?;
    let other = ctx.client().await?.lock(a.name().as_str())?;
    let (first, second) = (acquire(&b), acquire(&other));
    ctx.queued_exactly(&a, 2).await?;
    second.cancel().await;
    ctx.queued_exactly(&a, 1).await?;
    guard.release().await?;
    let guard = first.soon().await??;
    let waiters = waiter_count(&a).await?;
    ensure(waiters == Some(0), format!("{waiters:?} of a granted lock"))?;
    guard.release().await?;
    Ok(())
}

/// A break returns the state that it ended, and the lock is free.
async fn break_frees_the_lock(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire().await?;
    let state = b.break_lock().await?;
    let state = state.ok_or_else(|| Failure::new("nothing was broken"))?;
    ensure(
        state.holder_ids().eq([guard.holder().to_string()]),
        format!("{state:?}"),
    )?;
    let next = b.try_acquire().await?;
    let next = next.ok_or_else(|| Failure::new("still held"))?;
    ensure(next.token() > guard.token(), "the token did not grow")?;
    next.release().await?;
    Ok(())
}

/// There is nothing to break, and nothing is there afterwards.
async fn break_of_a_free_lock_does_nothing(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    ensure(a.break_lock().await?.is_none(), "broke a free lock")?;
    let guard = b.acquire().await?;
    guard.release().await?;
    ensure(a.break_lock().await?.is_none(), "broke a free lock")?;
    ensure(a.inspect().await?.is_none(), "left something behind")?;
    ensure(b.try_acquire().await?.is_some(), "a free lock was refused")
}

/// With its next renewal at the latest.
async fn broken_holder_learns_of_it(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire().await?;
    b.break_lock().await?;
    let reason = within(ctx.ttl(), guard.lost()).await?;
    // Where a hold is a session of its own, it is broken by ending that session.
    let session = ctx.capabilities().tells_loss && reason == LossReason::SessionEnded;
    ensure(
        reason == LossReason::Superseded || session,
        format!("{reason:?}"),
    )?;
    ensure(guard.check().is_err(), "lost, but the check passes")
}

/// A release of a broken hold says that it was lost, and does not touch the next one.
async fn broken_holder_cannot_end_the_next_hold(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let old = a.acquire().await?;
    b.break_lock().await?;
    let new = soon(b.acquire()).await??;
    ensure(old.release().await.is_err(), "a broken hold was released")?;
    new.check()?;
    let other = ctx.client().await?.lock(a.name().as_str())?;
    ensure(
        other.try_acquire().await?.is_none(),
        "the next hold was ended",
    )?;
    new.release().await?;
    Ok(())
}

/// A waiter gets the lock after a break.
async fn break_serves_the_waiter(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire().await?;
    let waiter = acquire(&b);
    ctx.queued(&b, 1).await?;
    ctx.client()
        .await?
        .lock(a.name().as_str())?
        .break_lock()
        .await?;
    let next = waiter.soon().await??;
    ensure(next.token() > guard.token(), "the token did not grow")?;
    soon(guard.lost()).await?;
    next.check()?;
    Ok(())
}

/// What is held, by whom, and no longer than it is held.
async fn list_shows_what_is_held(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.two().await?;
    let prefix = ctx.name();
    let mut guards = Vec::new();
    for n in 0..5 {
        let client = if n % 2 == 0 { &a } else { &b };
        guards.push(client.lock(format!("{prefix}/{n}"))?.acquire().await?);
    }
    let mut listed = b.list(&prefix).await?;
    listed.sort_by(|one, other| one.name.cmp(&other.name));
    ensure(listed.len() == 5, format!("{listed:?}"))?;
    for (state, guard) in listed.iter().zip(&guards) {
        ensure(state.name == *guard.name(), format!("{state:?}"))?;
        ensure(
            state.holder_ids().eq([guard.holder().to_string()]),
            format!("{state:?}"),
        )?;
    }
    for guard in guards {
        guard.release().await?;
    }
    let listed = a.list(&prefix).await?;
    ensure(listed.is_empty(), format!("{listed:?}"))
}

/// A prefix is text and not a pattern, and knows no hierarchy.
async fn list_keeps_to_its_prefix(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let base = ctx.name();
    let mut guards = Vec::new();
    for rest in ["a", "ab", "a/b", "*", "%", "_", "[a]", "b"] {
        guards.push(client.lock(format!("{base}:{rest}"))?.acquire().await?);
    }
    for (rest, count) in [
        ("", 8),
        ("a", 3),
        ("a/", 1),
        ("*", 1),
        ("%", 1),
        ("_", 1),
        ("[", 1),
        ("c", 0),
    ] {
        let listed = client.list(&format!("{base}:{rest}")).await?;
        ensure(
            listed.len() == count,
            format!("{} and not {count} for {rest:?}", listed.len()),
        )?;
    }
    let all = client.list("").await?;
    ensure(all.len() >= 8, "the empty prefix does not list everything")
}
