//! A cancelled call leaves nothing behind. INV-7, INV-8.

use std::time::Duration;

use lockkit_core::layers::{Fault, Operation, Rule};
use lockkit_core::{Error, Guard};
use tokio::time::{Instant, timeout};

use crate::case::{Case, Need};
use crate::ctx::{Ctx, waiter_count};
use crate::failure::{Failure, Outcome, ensure};
use crate::task::{acquire, poll_once, soon, spawn, until};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(dropped_acquire_leaves_nothing),
        Case::new(cancelled_task_passes_its_turn_on),
        Case::new(cancelled_client_leaves_the_queue).needs(Need::Fifo),
        Case::new(timed_out_client_leaves_the_queue),
        Case::new(dropped_during_the_attempt),
        Case::new(two_hundred_acquires_dropped_at_random_moments),
        Case::new(dropped_guard_is_released),
        Case::new(dropped_release_continues),
        Case::new(guard_dropped_outside_a_runtime),
        Case::new(guard_dropped_by_a_panic),
        Case::new(drain_waits_for_releases),
        Case::new(shutdown_fails_waiters_and_ends_holds),
        Case::new(shutdown_withdraws_an_unpolled_waiter),
    ]
}

/// An acquire that is dropped after its first poll.
async fn dropped_acquire_leaves_nothing(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.two().await?;
    let name = ctx.name();
    let lock = a.lock(name.as_str())?;
    for _ in 0..20 {
        drop(poll_once(&mut Box::pin(lock.acquire())).await);
    }
    soon(a.drain()).await?;
    let guard = b.lock(name.as_str())?.try_acquire().await?;
    ensure(guard.is_some(), "a dropped acquire holds the lock")
}

/// Of two that wait in one client the first is cancelled around the moment at which its grant comes;
/// the second gets the lock.
async fn cancelled_task_passes_its_turn_on(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let mut usual = f64::INFINITY;
    let end = Instant::now() + Duration::from_secs(3);
    for round in 0_u32.. {
        if Instant::now() >= end {
            break;
        }
        let guard = soon(a.acquire()).await??;
        let (mut first, mut second) = (Box::pin(b.acquire()), Box::pin(b.acquire()));
        // Polled once each: that is their order.
        ensure(poll_once(&mut first).await.is_none(), "two hold at once")?;
        ensure(poll_once(&mut second).await.is_none(), "two hold at once")?;
        let begun = Instant::now();
        let releasing = spawn(guard.release());
        if round % 16 == 0 {
            // How long a grant takes here.
            let guard = soon(first).await??;
            usual = usual.min(begun.elapsed().as_secs_f64());
            guard.release().await?;
        } else {
            pause(fastrand::f64() * 2.0 * usual).await;
            drop(first);
        }
        releasing.soon().await??;
        soon(second).await??.release().await?;
    }
    Ok(())
}

/// So many seconds, more exactly than a timer.
async fn pause(seconds: f64) {
    let length = Duration::from_secs_f64(seconds);
    let end = Instant::now() + length;
    // A sleep of no time takes up to a millisecond, too.
    if let Some(most) = length.checked_sub(Duration::from_millis(2)) {
        tokio::time::sleep(most).await;
    }
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// A client whose only waiter is cancelled leaves the queue of the store at once.
async fn cancelled_client_leaves_the_queue(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.two().await?;
    let lock = a.lock(ctx.name())?;
    let guard = lock.acquire().await?;
    let waiter = acquire(&b.lock(lock.name())?);
    ctx.queued(&lock, 1).await?;
    waiter.cancel().await;
    soon(b.drain()).await?;
    let waiters = waiter_count(&lock).await?;
    ensure(waiters == Some(0), format!("{waiters:?}"))?;
    guard.release().await?;
    Ok(())
}

/// A wait that times out leaves neither a place nor a later hold.
async fn timed_out_client_leaves_the_queue(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.two().await?;
    let name = ctx.name();
    let guard = a.lock(name.as_str())?.acquire().await?;
    let limit = Duration::from_millis(250);
    let error = b.lock(name.as_str())?.acquire_timeout(limit).await.err();
    ensure(
        matches!(error, Some(Error::Timeout { .. })),
        format!("{error:?}"),
    )?;
    soon(b.drain()).await?;
    guard.release().await?;
    ensure(
        a.lock(name.as_str())?.try_acquire().await?.is_some(),
        "the one who gave up has the lock",
    )
}

/// An acquire that is dropped while the store has granted it and the reply is on its way.
async fn dropped_during_the_attempt(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let name = ctx.name();
    let slow = Duration::from_secs(1);
    let slow = Fault::SlowReply {
        min: slow,
        max: slow,
    };
    faults.inject(Rule::new(slow).on(Operation::Attempt));
    let acquiring = acquire(&client.lock(name.as_str())?);
    let other = ctx.client().await?.lock(name.as_str())?;
    let granted = async || Ok(other.inspect().await?.is_some());
    until("the store has granted it", granted).await?;
    ensure(!acquiring.is_finished(), "the reply was not slow")?;
    acquiring.cancel().await;
    soon(client.drain()).await?;
    let guard = ctx
        .client()
        .await?
        .lock(name.as_str())?
        .try_acquire()
        .await?;
    ensure(guard.is_some(), "a cancelled acquire holds the lock")
}

/// Two hundred acquires, some of them queued, dropped at random moments; then the lock is free.
async fn two_hundred_acquires_dropped_at_random_moments(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let (a, b) = ctx.two().await?;
    let (locks, holder) = (
        [a.lock(name.as_str())?, b.lock(name.as_str())?],
        ctx.client().await?,
    );
    let holder = holder.lock(name.as_str())?;
    for round in 0..20 {
        let guard = if round % 2 == 0 {
            Some(soon(holder.acquire()).await??)
        } else {
            None
        };
        let mut tasks = Vec::new();
        for n in 0..10 {
            let lock = locks[n % 2].clone();
            let span = Duration::from_micros(fastrand::u64(0..3_000));
            tasks.push(spawn(async move {
                // Whether it got the lock or not, it is gone afterwards.
                drop(timeout(span, lock.acquire()).await);
            }));
        }
        if let Some(guard) = guard {
            guard.release().await?;
        }
        for task in tasks {
            task.soon().await?;
        }
    }
    soon(a.drain()).await?;
    soon(b.drain()).await?;
    let guard = holder.try_acquire().await?;
    let guard = guard.ok_or_else(|| Failure::new("a dropped acquire holds the lock"))?;
    guard.release().await?;
    ensure(
        holder.inspect().await?.is_none(),
        "something is left behind",
    )
}

/// Dropping the guard gives the lock back.
async fn dropped_guard_is_released(ctx: &Ctx) -> Outcome {
    released_after(ctx, async |guard| {
        drop(guard);
        Ok(())
    })
    .await
}

/// No lease ends the hold: it is released when all that was dropped is.
async fn released_after(ctx: &Ctx, end: impl AsyncFnOnce(Guard) -> Outcome) -> Outcome {
    let (a, b) = ctx.two().await?;
    let name = ctx.name();
    let lock = a.lock(name.as_str())?.with_lease(ctx.long())?;
    end(lock.acquire().await?).await?;
    soon(a.drain()).await?;
    let guard = b.lock(name)?.try_acquire().await?;
    ensure(guard.is_some(), "not released")
}

/// A `release` that is dropped while it waits for its answer is finished in the background.
async fn dropped_release_continues(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let name = ctx.name();
    let guard = client.lock(name.as_str())?.acquire().await?;
    let slow = Duration::from_millis(100);
    let slow = Fault::Delay {
        min: slow,
        max: slow,
    };
    faults.inject(Rule::new(slow).on(Operation::Release).times(1));
    let releasing = spawn(guard.release());
    soon(faults.called(Operation::Release, 1)).await?;
    releasing.cancel().await;
    soon(client.drain()).await?;
    let guard = ctx
        .client()
        .await?
        .lock(name.as_str())?
        .try_acquire()
        .await?;
    ensure(guard.is_some(), "the release was given up")
}

/// A guard may be dropped on a thread that knows no runtime.
async fn guard_dropped_outside_a_runtime(ctx: &Ctx) -> Outcome {
    released_after(ctx, async |guard| {
        let thread = std::thread::spawn(move || drop(guard));
        let died = "dropping a guard outside a runtime panicked";
        thread.join().map_err(|_| Failure::new(died))
    })
    .await
}

/// A guard that is dropped while its task panics is released.
async fn guard_dropped_by_a_panic(ctx: &Ctx) -> Outcome {
    released_after(ctx, async |guard| {
        let task = spawn(async move {
            let _guard = guard;
            // As a panic unwinds, without its message in the output of the tests.
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        ensure(task.soon().await.is_err(), "the task did not panic")
    })
    .await
}

/// After `drain`, everything that was dropped is released at the store.
async fn drain_waits_for_releases(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let mut names = Vec::new();
    let slow = Duration::from_millis(50);
    let slow = Fault::Delay {
        min: slow,
        max: slow,
    };
    faults.inject(Rule::new(slow).on(Operation::Release));
    for _ in 0..20 {
        let name = ctx.name();
        drop(client.lock(name.as_str())?.acquire().await?);
        names.push(name);
    }
    soon(client.drain()).await?;
    let other = ctx.client().await?;
    for name in names {
        let guard = other.lock(name)?.try_acquire().await?;
        ensure(guard.is_some(), "not released after drain")?;
    }
    Ok(())
}

/// A client that is shut down fails its waiters, refuses new ones, and gives everything back.
async fn shutdown_fails_waiters_and_ends_holds(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.two().await?;
    let name = ctx.name();
    let lock = a.lock(name.as_str())?;
    let guard = lock.acquire().await?;
    let lost = spawn(guard.lost());
    let waiter = acquire(&lock);
    soon(a.shutdown(Duration::ZERO)).await??;
    let error = waiter.soon().await?.err();
    ensure(matches!(error, Some(Error::Shutdown)), format!("{error:?}"))?;
    let reason = lost.soon().await?;
    ensure(
        reason == lockkit_core::LossReason::Shutdown,
        format!("{reason:?}"),
    )?;
    let error = lock.acquire().await.err();
    ensure(matches!(error, Some(Error::Shutdown)), format!("{error:?}"))?;
    let guard = b.lock(name.as_str())?.try_acquire().await?;
    ensure(guard.is_some(), "the hold outlived its client")
}

/// The future of an acquire that is kept but not polled does not block other clients for ever.
async fn shutdown_withdraws_an_unpolled_waiter(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.two().await?;
    let name = ctx.name();
    let guard = b.lock(name.as_str())?.acquire().await?;
    let lock = a.lock(name.as_str())?;
    let mut waiter = Box::pin(lock.acquire());
    let polled = timeout(Duration::from_millis(500), &mut waiter).await;
    ensure(polled.is_err(), "what another holds was given")?;
    soon(a.shutdown(Duration::ZERO)).await??;
    guard.release().await?;
    let next = ctx.client().await?.lock(name)?.try_acquire().await?;
    ensure(next.is_some(), "its place outlived its client")?;
    let error = soon(waiter).await?.err();
    ensure(matches!(error, Some(Error::Shutdown)), format!("{error:?}"))
}
