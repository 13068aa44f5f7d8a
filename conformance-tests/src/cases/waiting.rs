//! Every waiter is served, also when wake-ups are lost. P3.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockkit_core::layers::{Fault, Operation, Rule};
use lockkit_core::{Error, Lease, Lock, Waiting, recheck};
use tokio::time::Instant;

use crate::case::{Case, Need};
use crate::ctx::Ctx;
use crate::failure::{Outcome, ensure};
use crate::namespace::Hook;
use crate::task::{AT_ONCE, acquire, poll_once, soon, spawn, together, within};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(timeout_ends_the_wait),
        Case::new(zero_timeout_takes_a_free_lock),
        Case::new(waiter_gets_the_lock_after_release),
        Case::new(every_client_is_served),
        Case::new(contenders_that_never_pause_take_turns),
        Case::new(tasks_of_one_client_are_served_in_order),
        Case::new(local_waiters_have_their_own_deadlines),
        Case::new(release_wakes_the_waiter_at_once).needs(Need::Push),
        Case::new(early_wake_up_is_kept).needs(Need::Push),
        Case::new(served_when_wake_ups_are_lost_on_the_way).needs(Need::Push),
        Case::new(served_when_the_store_loses_wake_ups).hook(Hook::LosePushes),
        Case::new(poller_finds_a_free_lock).needs(Need::Poll),
    ]
}

/// A bounded wait ends with `Timeout`, not before its limit and not long after it.
async fn timeout_ends_the_wait(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire().await?;
    let limit = Duration::from_millis(300);
    let start = Instant::now();
    let error = soon(b.acquire_timeout(limit)).await?.err();
    let waited = start.elapsed();
    ensure(
        matches!(error, Some(Error::Timeout { .. })),
        format!("{error:?}"),
    )?;
    ensure(waited >= limit, format!("gave up after {waited:?}"))?;
    ensure(
        waited < limit * 10,
        format!("gave up only after {waited:?}"),
    )?;
    guard.release().await?;
    Ok(())
}

/// No time to wait is enough for a lock that is free.
async fn zero_timeout_takes_a_free_lock(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire_timeout(Duration::ZERO).await?;
    let error = b.acquire_timeout(Duration::ZERO).await.err();
    ensure(
        matches!(error, Some(Error::Timeout { .. })),
        format!("{error:?}"),
    )?;
    guard.release().await?;
    let guard = soon(b.acquire_timeout(Ctx::PATIENCE)).await??;
    guard.release().await?;
    Ok(())
}

/// A waiter is served after a release, and after a drop.
async fn waiter_gets_the_lock_after_release(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire().await?;
    let waiter = acquire(&b);
    ctx.queued(&b, 1).await?;
    guard.release().await?;
    let guard = waiter.soon().await??;
    let waiter = acquire(&a);
    ctx.queued(&a, 1).await?;
    drop(guard);
    waiter.soon().await??.release().await?;
    Ok(())
}

/// Eight clients that want the lock at once all get it.
async fn every_client_is_served(ctx: &Ctx) -> Outcome {
    let locks = ctx.lock_of_all(&ctx.clients(8).await?)?;
    let tasks = together(locks, |lock| async move {
        let guard = lock.acquire().await?;
        tokio::time::sleep(Duration::from_millis(5)).await;
        guard.release().await
    });
    for task in tasks {
        task.soon().await??;
    }
    Ok(())
}

/// Clients that ask again as soon as they have released all get the lock, again and again, within the time
/// that the store promises.
async fn contenders_that_never_pause_take_turns(ctx: &Ctx) -> Outcome {
    let contest = Contest::new(ctx);
    let name = ctx.name();
    let mut tasks = Vec::new();
    for _ in 0..CONTENDERS {
        let lock = ctx.client().await?.lock(name.as_str())?;
        let lock = lock.with_lease(Lease::renewed(contest.lease))?;
        tasks.push(spawn(contest.clone().contend(lock)));
    }
    for task in tasks {
        task.soon().await??;
    }
    Ok(())
}

/// Tasks of one client get the lock in the order in which they asked for it.
async fn tasks_of_one_client_are_served_in_order(ctx: &Ctx) -> Outcome {
    let lock = ctx.client().await?.lock(ctx.name())?;
    let held = lock.acquire().await?;
    let mut waiters = Vec::new();
    for _ in 0..5 {
        let mut waiter = Box::pin(lock.acquire());
        let early = poll_once(&mut waiter).await;
        ensure(early.is_none(), "two hold at once")?;
        waiters.push(waiter);
    }
    held.release().await?;
    let mut last = None;
    for waiter in waiters {
        // If another were served before it, this one would wait for ever.
        let guard = soon(waiter).await??;
        let token = Some(guard.token());
        ensure(token > last, "served out of order")?;
        last = token;
        guard.release().await?;
    }
    Ok(())
}

/// Of two tasks that wait in one client the impatient one gives up and the other is served.
async fn local_waiters_have_their_own_deadlines(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire().await?;
    let impatient = b.clone();
    let impatient =
        spawn(async move { impatient.acquire_timeout(Duration::from_millis(200)).await });
    let patient = acquire(&b);
    let error = impatient.soon().await?.err();
    ensure(
        matches!(error, Some(Error::Timeout { .. })),
        format!("{error:?}"),
    )?;
    guard.release().await?;
    patient.soon().await??.release().await?;
    Ok(())
}

/// With wake-ups, a waiter does not have to wait for its next look.
async fn release_wakes_the_waiter_at_once(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.with_lease(ctx.long())?.acquire().await?;
    let mut waiter = acquire(&b.with_lease(ctx.long())?);
    waiter.waits_for(Duration::from_millis(200)).await?;
    guard.release().await?;
    within(AT_ONCE, waiter.soon()).await???.release().await?;
    Ok(())
}

/// A wake-up that comes between the attempt and the opening of the watch is not lost.
async fn early_wake_up_is_kept(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let name = ctx.name();
    let a = ctx.client().await?.lock(name.as_str())?;
    let a = a.with_lease(ctx.long())?;
    let b = client.lock(name)?.with_lease(ctx.long())?;
    let slow = Duration::from_millis(300);
    let delay = Fault::Delay {
        min: slow,
        max: slow,
    };
    faults.inject(Rule::new(delay).on(Operation::Watch));
    // The second time whatever a store opens for a lock, and keeps for a while, is open.
    for round in 1..=2 {
        let guard = a.acquire().await?;
        let waiter = acquire(&b);
        soon(faults.called(Operation::Watch, round)).await?;
        guard.release().await?;
        within(AT_ONCE + slow, waiter.soon())
            .await???
            .release()
            .await?;
    }
    Ok(())
}

/// A client that never hears a wake-up is served by its own looks.
async fn served_when_wake_ups_are_lost_on_the_way(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let name = ctx.name();
    let a = ctx.client().await?.lock(name.as_str())?;
    let b = client.lock(name.as_str())?;
    faults.lose_wakes(1.0);
    served_by_its_own_look(ctx, a, b).await
}

/// A store whose wake-ups all get lost serves everybody all the same, with the waiter's next look.
async fn served_when_the_store_loses_wake_ups(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    ctx.namespace().lose_pushes(true).await?;
    served_by_its_own_look(ctx, a, b).await
}

/// Nothing wakes the waiter after the release, and it is served with one of its next two looks.
async fn served_by_its_own_look(ctx: &Ctx, a: Lock, b: Lock) -> Outcome {
    let lease = Lease::renewed(ctx.renewable(Duration::from_secs(6)));
    let guard = a.with_lease(lease)?.acquire().await?;
    let began = Instant::now();
    let mut waiter = acquire(&b.with_lease(lease)?);
    waiter.waits_for(ctx.ttl() / 4).await?;
    guard.release().await?;
    let look = recheck(ctx.capabilities(), lease.ttl());
    let moment = Duration::from_millis(200);
    // On a busy machine the first look may come as soon as the release.
    if began.elapsed() + moment < look.mul_f64(0.9) {
        waiter.waits_for(moment).await?;
    }
    let looks = look * 2 + Duration::from_millis(500);
    within(looks, waiter.soon()).await???.release().await?;
    Ok(())
}

/// A waiter that polls sees a free lock after its longest pause at the latest.
async fn poller_finds_a_free_lock(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire().await?;
    let mut waiter = acquire(&b);
    // Long enough for its pauses to have grown.
    waiter.waits_for(ctx.ttl()).await?;
    guard.release().await?;
    let longest = ctx.capabilities().poll.max;
    within(longest + AT_ONCE, waiter.soon())
        .await???
        .release()
        .await?;
    Ok(())
}

/// Who contends, in one contest.
const CONTENDERS: u32 = 3;
/// One of so many attempts finds the lock free, where nothing but chance serves a waiter.
const POLLS: u32 = 16;

/// Clients that contend for one lock.
#[derive(Clone)]
struct Contest {
    /// They contend at least until then, and until each of them was served after it.
    end: Instant,
    unserved: Arc<AtomicU32>,
    lease: Duration,
    /// How long each keeps the lock.
    hold: Duration,
    /// How long a waiter waits at most.
    longest: Duration,
}

impl Contest {
    fn new(ctx: &Ctx) -> Self {
        let can = ctx.capabilities();
        let lease = match ctx.takes_turns() {
            true => ctx.long().ttl(),
            false => ctx.renewable(ctx.ttl()),
        };
        let (hold, pauses) = match (ctx.takes_turns(), can.waiting) {
            // The lock is hardly ever free, and no repeated attempt comes soon enough to serve a waiter.
            (true, Waiting::Push) => (Duration::from_millis(10), Duration::ZERO),
            // Each of those before a waiter is served at its next poll, and then so is the waiter.
            (true, _) => (Duration::from_millis(10), can.poll.max * CONTENDERS),
            // The lock is free about as long as it is held, and chance decides.
            (false, Waiting::Push) => (Duration::ZERO, recheck(can, lease) * POLLS),
            (false, _) => (Duration::ZERO, can.poll.max * POLLS),
        };
        Self {
            end: Instant::now() + Duration::from_millis(300),
            unserved: Arc::new(AtomicU32::new(CONTENDERS)),
            lease,
            hold,
            longest: pauses + AT_ONCE,
        }
    }

    /// Takes turns with the others, who end with the first failure.
    async fn contend(self, lock: Lock) -> Outcome {
        let result = self.take_turns(&lock).await;
        if result.is_err() {
            self.unserved.store(0, Ordering::Relaxed);
        }
        result
    }

    async fn take_turns(&self, lock: &Lock) -> Outcome {
        let mut unserved = true;
        while self.unserved.load(Ordering::Relaxed) > 0 {
            let guard = within(self.longest, lock.acquire()).await??;
            if !self.hold.is_zero() {
                tokio::time::sleep(self.hold).await;
            }
            guard.release().await?;
            if unserved && Instant::now() >= self.end {
                unserved = false;
                self.unserved.fetch_sub(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}
