//! Nothing is left at the store after its last user.

use std::time::Duration;

use lockkit_core::Lease;
use tokio::time::timeout;

use crate::case::Case;
use crate::ctx::Ctx;
use crate::failure::{Outcome, ensure};
use crate::namespace::Hook;
use crate::task::{acquire, soon, together, until};

pub(super) fn cases() -> Vec<Case> {
    let cases = [
        Case::new(nothing_left_after_use),
        Case::new(nothing_left_after_contention),
        Case::new(nothing_left_after_giving_up),
        Case::new(nothing_left_after_a_loss),
        Case::new(nothing_left_after_a_break),
    ];
    cases.map(|case| case.hook(Hook::Residue).alone()).into()
}

async fn clean(ctx: &Ctx, name: &lockkit_core::LockName) -> Outcome {
    let mut left = Vec::new();
    let gone = async || {
        left = ctx.namespace().residue(name).await?;
        Ok(left.is_empty())
    };
    let result = until("nothing is left", gone).await;
    result.map_err(|failure| failure.with_detail(&left.join(", ")))
}

/// One acquire, one try, one release, one drop.
async fn nothing_left_after_use(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire().await?;
    let held = ctx.namespace().residue(a.name()).await?;
    ensure(!held.is_empty(), "the look does not find a hold")?;
    drop(b.try_acquire().await?);
    guard.release().await?;
    drop(b.acquire().await?);
    clean(ctx, a.name()).await
}

/// Eight clients in turn.
async fn nothing_left_after_contention(ctx: &Ctx) -> Outcome {
    let locks = ctx.lock_of_all(&ctx.clients(8).await?)?;
    let name = locks[0].name().clone();
    let tasks = together(locks, |lock| async move {
        for _ in 0..5 {
            lock.acquire().await?.release().await?;
        }
        Ok::<_, lockkit_core::Error>(())
    });
    for task in tasks {
        task.soon().await??;
    }
    clean(ctx, &name).await
}

/// Timeouts and cancelled waits.
async fn nothing_left_after_giving_up(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire().await?;
    for millis in [0, 1, 20] {
        drop(b.acquire_timeout(Duration::from_millis(millis)).await);
        drop(timeout(Duration::from_millis(millis), b.acquire()).await);
    }
    let waiter = acquire(&b);
    ctx.queued(&a, 1).await?;
    waiter.cancel().await;
    guard.release().await?;
    clean(ctx, a.name()).await
}

/// A fixed lease that ended while its guard was kept.
async fn nothing_left_after_a_loss(ctx: &Ctx) -> Outcome {
    let (a, _) = ctx.locks().await?;
    let a = a.with_lease(Lease::fixed(ctx.ttl()))?;
    let guard = a.acquire().await?;
    soon(guard.lost()).await?;
    clean(ctx, a.name()).await?;
    drop(guard);
    clean(ctx, a.name()).await
}

/// An operator's break, with a waiter behind.
async fn nothing_left_after_a_break(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire().await?;
    let waiter = acquire(&b);
    ctx.queued(&a, 1).await?;
    a.break_lock().await?;
    waiter.soon().await??.release().await?;
    drop(guard);
    clean(ctx, a.name()).await
}
