//! The token: made with the grant, larger for every hold, the same within one. INV-3, INV-4.

use std::collections::HashSet;

use lockkit_core::{FencingToken, Guard, Lock};

use super::outage::restarted;
use crate::case::{Case, Need};
use crate::ctx::Ctx;
use crate::failure::{Failure, Outcome, ensure};
use crate::namespace::Hook;
use crate::requests::granted;
use crate::task::{soon, together, within};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(token_grows_over_release),
        Case::new(token_grows_over_expiry).needs(Need::StoreEndsLeases),
        Case::new(token_grows_over_end_of_session).hook(Hook::ExpireSession),
        Case::new(token_grows_over_break),
        Case::new(token_grows_over_wipe).hook(Hook::Wipe).alone(),
        Case::new(token_grows_over_restart)
            .hook(Hook::Restart)
            .alone(),
        Case::new(token_grows_in_grant_order),
        Case::new(repeated_attempt_keeps_the_token),
        Case::new(inspect_shows_the_token_of_the_hold),
        Case::new(holders_are_never_used_again),
    ]
}

/// From release to acquire, by the same and by another client.
async fn token_grows_over_release(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let mut last = None;
    for lock in [&a, &a, &b, &a, &b, &b] {
        let guard = soon(lock.acquire()).await??;
        grown(&mut last, &guard)?;
        guard.release().await?;
    }
    Ok(())
}

/// From a hold whose lease the store itself ended.
async fn token_grows_over_expiry(ctx: &Ctx) -> Outcome {
    let (name, store) = (ctx.name(), ctx.store().await?);
    let mut last = Some(granted(&*store, &ctx.ticket(&name)?).await?);
    let lock = ctx.client().await?.lock(name)?;
    let guard = within(ctx.ttl() + ctx.freed_after(), lock.acquire()).await??;
    grown(&mut last, &guard)
}

/// From a hold whose session ended.
async fn token_grows_over_end_of_session(ctx: &Ctx) -> Outcome {
    let (name, store) = (ctx.name(), ctx.store().await?);
    let mut last = Some(granted(&*store, &ctx.ticket(&name)?).await?);
    ctx.namespace().expire_session(&*store).await?;
    let guard = soon(ctx.client().await?.lock(name)?.acquire()).await??;
    grown(&mut last, &guard)
}

/// From a hold that an operator broke, again and again.
async fn token_grows_over_break(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let mut last = None;
    let mut old = Vec::new();
    for _ in 0..3 {
        let lock = ctx.client().await?.lock(a.name().as_str())?;
        let guard = soon(lock.acquire()).await??;
        grown(&mut last, &guard)?;
        old.push(guard);
        soon(b.break_lock()).await??;
    }
    let guard = soon(b.acquire()).await??;
    grown(&mut last, &guard)
}

/// Although the store lost everything it had.
async fn token_grows_over_wipe(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let mut last = None;
    for _ in 0..3 {
        let guard = soon(a.acquire()).await??;
        grown(&mut last, &guard)?;
        guard.release().await?;
    }
    // It shows that everything is lost.
    let beside = ctx.client().await?.lock(ctx.name())?;
    let _held = beside.acquire().await?;
    ensure(shown(&beside).await?, "the hold is not shown")?;
    ctx.namespace().wipe().await?;
    ensure(!shown(&beside).await?, "the store lost nothing")?;
    let guard = soon(b.acquire()).await??;
    grown(&mut last, &guard)
}

/// Although the server was killed and started again.
async fn token_grows_over_restart(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let mut last = None;
    for _ in 0..3 {
        let guard = soon(a.acquire()).await??;
        grown(&mut last, &guard)?;
        guard.release().await?;
    }
    restarted(ctx).await?;
    let guard = soon(b.acquire()).await??;
    grown(&mut last, &guard)
}

/// Eight clients in turn, each many times: in the order in which they held, tokens grow.
async fn token_grows_in_grant_order(ctx: &Ctx) -> Outcome {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let locks = ctx.lock_of_all(&ctx.clients(8).await?)?;
    let tasks = together(locks, |lock| {
        let tell = tell.clone();
        async move { take_turns(&lock, &tell, 10).await }
    });
    for task in tasks {
        task.soon().await??;
    }
    drop(tell);
    let mut tokens: Vec<FencingToken> = Vec::new();
    while let Some(token) = told.recv().await {
        tokens.push(token);
    }
    ensure(tokens.len() == 80, "a turn is missing")?;
    ensure(tokens.is_sorted_by(|a, b| a < b), format!("{tokens:?}"))
}

async fn take_turns(
    lock: &Lock,
    tell: &tokio::sync::mpsc::UnboundedSender<FencingToken>,
    turns: u32,
) -> lockkit_core::Result<()> {
    for _ in 0..turns {
        let guard = lock.acquire().await?;
        // Told while it is held: that is the order of the holds.
        if tell.send(guard.token()).is_err() {
            return Ok(());
        }
        guard.release().await?;
    }
    Ok(())
}

/// An attempt that is repeated, as after a lost reply, is the same hold with the same token.
async fn repeated_attempt_keeps_the_token(ctx: &Ctx) -> Outcome {
    let (name, store) = (ctx.name(), ctx.store().await?);
    let ticket = ctx.ticket(&name)?;
    let first = granted(&*store, &ticket).await?;
    for _ in 0..3 {
        let again = granted(&*store, &ticket).await?;
        ensure(again == first, format!("{first} became {again}"))?;
    }
    // Once given back it is given back, however often it was asked for.
    store.release(&ticket).await?;
    let guard = ctx.client().await?.lock(name)?.try_acquire().await?;
    let guard = guard.ok_or_else(|| Failure::new("counted twice"))?;
    ensure(guard.token() > first, "the token did not grow")
}

/// What an operator sees is the token of the hold.
async fn inspect_shows_the_token_of_the_hold(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire().await?;
    let state = b.inspect().await?;
    let state = state.ok_or_else(|| Failure::new("the lock is free"))?;
    ensure(
        state.token == Some(guard.token()),
        format!("{state:?} beside {}", guard.token()),
    )
}

/// No two holds of a client have the same identity, not even of different locks.
async fn holders_are_never_used_again(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let (first, second) = (client.lock(ctx.name())?, client.lock(ctx.name())?);
    let mut seen = HashSet::new();
    for _ in 0..5 {
        let guards = [first.acquire().await?, second.acquire().await?];
        for guard in guards {
            ensure(
                guard.holder().client() == client.id(),
                "a hold of another client",
            )?;
            ensure(seen.insert(guard.holder()), "an identity was used again")?;
            guard.release().await?;
        }
    }
    Ok(())
}

fn grown(last: &mut Option<FencingToken>, guard: &Guard) -> Outcome {
    let token = Some(guard.token());
    let message = format!("{token:?} after {last:?}");
    ensure(token > *last, message)?;
    *last = token;
    Ok(())
}

async fn shown(lock: &Lock) -> Outcome<bool> {
    Ok(lock.inspect().await?.is_some())
}
