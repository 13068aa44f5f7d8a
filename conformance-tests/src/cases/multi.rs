//! Locks of several names are held together or not at all. INV-17.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockkit_core::{Error, LockClient, MultiLock};
use tokio::time::{Instant, sleep, timeout};

use crate::case::Case;
use crate::ctx::Ctx;
use crate::failure::{Failure, Outcome, ensure};
use crate::task::{soon, spawn};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(crossed_names_end),
        Case::new(all_or_nothing),
        Case::new(one_deadline),
        Case::new(one_lost_releases_the_rest),
        Case::new(dropped_at_any_moment_leaves_nothing),
    ]
}

fn multi(client: &LockClient, names: &[String]) -> Outcome<MultiLock> {
    let locks: Result<Vec<_>, _> = names.iter().map(|name| client.lock(name)).collect();
    Ok(MultiLock::new(locks?)?)
}

/// Names in this order: the first is waited for first.
fn names<const N: usize>(ctx: &Ctx) -> [String; N] {
    let name = ctx.name();
    std::array::from_fn(|number| format!("{name}/{number}"))
}

/// Two clients that name the same locks in another order never wait for each other.
async fn crossed_names_end(ctx: &Ctx) -> Outcome {
    let [a, b] = names(ctx);
    let busy = Arc::new(AtomicBool::new(false));
    // Both callers wait for their first name when these are released.
    let both = multi(&ctx.client().await?, &[a.clone(), b.clone()])?;
    let held = both.acquire().await?;
    let mut tasks = Vec::new();
    for order in [[a.clone(), b.clone()], [b, a]] {
        let (lock, busy) = (multi(&ctx.client().await?, &order)?, Arc::clone(&busy));
        tasks.push(spawn(async move {
            for _ in 0..10 {
                let guard = lock.acquire().await?;
                ensure(!busy.swap(true, Ordering::SeqCst), "two hold at once")?;
                tokio::task::yield_now().await;
                busy.store(false, Ordering::SeqCst);
                guard.release().await?;
            }
            Outcome::Ok(())
        }));
    }
    sleep(Duration::from_millis(100)).await;
    held.release().await?;
    for task in tasks {
        task.soon().await??;
    }
    Ok(())
}

/// While one lock is busy, a call that gives up holds none of the others.
async fn all_or_nothing(ctx: &Ctx) -> Outcome {
    let [a, b, c] = names(ctx);
    let (client, other) = ctx.two().await?;
    let held = other.lock(&b)?.acquire().await?;
    let all = multi(&client, &[a.clone(), b.clone(), c.clone()])?;
    ensure(all.try_acquire().await?.is_none(), "a busy lock was taken")?;
    match all.acquire_timeout(Duration::from_secs(1)).await {
        Err(Error::Timeout { name, .. }) if name.as_str() == b => {}
        answer => return Err(Failure::new(format!("{answer:?}"))),
    }
    soon(client.drain()).await?;
    let rest = multi(&other, &[a, c])?.try_acquire().await?;
    let rest = rest.ok_or_else(|| Failure::new("a part is still held"))?;
    rest.release().await?;
    held.release().await?;
    let guard = soon(all.acquire()).await??;
    guard.check()?;
    Ok(guard.release().await?)
}

/// The limit is for all locks together, and not for each.
async fn one_deadline(ctx: &Ctx) -> Outcome {
    let [a, b] = names(ctx);
    let (client, other) = ctx.two().await?;
    let (first, second) = (
        other.lock(&a)?.acquire().await?,
        other.lock(&b)?.acquire().await?,
    );
    let both = multi(&client, &[a, b])?;
    let limit = Duration::from_secs(2);
    let start = Instant::now();
    let waiting = spawn(async move { both.acquire_timeout(limit).await });
    sleep(limit * 3 / 4).await;
    first.release().await?;
    let answer = waiting.soon().await?;
    let took = start.elapsed();
    ensure(
        matches!(answer, Err(Error::Timeout { .. })),
        format!("{answer:?}"),
    )?;
    ensure(took < limit * 3 / 2, format!("it took {took:?}"))?;
    Ok(second.release().await?)
}

/// The loss of one lock is reported with its name, and the others are free once all are released.
async fn one_lost_releases_the_rest(ctx: &Ctx) -> Outcome {
    let [a, b] = names(ctx);
    let (client, other) = ctx.two().await?;
    let guard = multi(&client, &[a.clone(), b.clone()])?.acquire().await?;
    other.lock(&a)?.break_lock().await?;
    let (name, _) = soon(guard.lost()).await?;
    ensure(name.as_str() == a, format!("lost {name}"))?;
    ensure(guard.check().is_err(), "one is lost, but the check passes")?;
    let rest = other.lock(&b)?.try_acquire().await?;
    ensure(rest.is_none(), "the other lock is free before its release")?;
    match guard.release().await {
        Err(Error::Lost { name, .. }) if name.as_str() == a => {}
        answer => return Err(Failure::new(format!("{answer:?}"))),
    }
    let rest = other.lock(&b)?.try_acquire().await?;
    ensure(rest.is_some(), "the other lock is still held")
}

/// Acquires that are dropped at random moments, some while they wait.
async fn dropped_at_any_moment_leaves_nothing(ctx: &Ctx) -> Outcome {
    let [a, b, c] = names(ctx);
    let (client, other) = ctx.two().await?;
    let all = multi(&client, &[a, b.clone(), c])?;
    for round in 0..20 {
        let held = match round % 2 {
            0 => Some(soon(other.lock(&b)?.acquire()).await??),
            _ => None,
        };
        let span = Duration::from_micros(fastrand::u64(0..4_000));
        drop(timeout(span, all.acquire()).await);
        drop(held);
    }
    soon(client.drain()).await?;
    soon(other.drain()).await?;
    let guard = all.try_acquire().await?;
    ensure(guard.is_some(), "a dropped acquire holds a lock")
}
