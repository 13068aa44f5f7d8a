//! Calls per operation: a slow network must not pay for a call that no test notices.

use std::time::Duration;

use lockkit_core::layers::{Fault, Faults, Operation, Rule};
use lockkit_core::{Guard, Lease, LockClient, TtlOf};
use tokio::time::{Instant, sleep};

use crate::case::{Case, Need};
use crate::ctx::{Ctx, waiter_count};
use crate::failure::{Failure, Outcome, ensure};
use crate::task::{acquire, poll_once, soon, spawn, until};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(acquire_and_release_are_one_call_each),
        Case::new(try_is_one_call),
        Case::new(reentry_sends_no_request),
        Case::new(try_behind_the_same_client_sends_no_request),
        Case::new(renewals_share_a_call),
        Case::new(short_holds_are_not_renewed),
        Case::new(waiting_is_quiet)
            .needs(Need::Push)
            .needs(Need::LeasePerHold),
        Case::new(checks_and_losses_send_no_request),
        Case::new(readers_of_one_client_ask_at_once).needs(Need::Shares),
        Case::new(permits_of_one_client_take_n_places)
            .needs(Need::Shares)
            .needs(Need::Fifo),
    ]
}

/// A client whose calls are counted. Its lease is so long that no renewal is due because the machine is busy.
async fn counted(ctx: &Ctx) -> Outcome<(LockClient, Faults)> {
    let (store, faults) = ctx.faulty_store().await?;
    Ok((ctx.builder(store).lease(ctx.long()).build()?, faults))
}

/// A free lock: one attempt and one release, nothing else.
async fn acquire_and_release_are_one_call_each(ctx: &Ctx) -> Outcome {
    let (client, faults) = counted(ctx).await?;
    let lock = client.lock(ctx.name())?;
    for _ in 0..10 {
        lock.acquire().await?.release().await?;
    }
    let (attempts, releases) = (
        faults.calls(Operation::Attempt),
        faults.calls(Operation::Release),
    );
    // A process that pauses during a hold also watches for its loss.
    let others = faults.all_calls() - attempts - releases - faults.calls(Operation::Watch);
    ensure(
        (attempts, releases, others) == (10, 10, 0),
        format!(
            "{attempts} attempts, {releases} releases, {} calls",
            faults.all_calls()
        ),
    )
}

/// A try: one attempt, whether it gets the lock or not.
async fn try_is_one_call(ctx: &Ctx) -> Outcome {
    let (client, faults) = counted(ctx).await?;
    let name = ctx.name();
    let lock = client.lock(name.as_str())?;
    let guard = lock.try_acquire().await?;
    ensure(
        faults.all_calls() == 1,
        "more than one call for a free lock",
    )?;
    guard
        .ok_or_else(|| Failure::new("a free lock was refused"))?
        .release()
        .await?;
    let held = ctx.client().await?.lock(name)?.acquire().await?;
    faults.reset_counts();
    ensure(lock.try_acquire().await?.is_none(), "two hold at once")?;
    soon(client.drain()).await?;
    let calls = faults.all_calls();
    ensure(calls == 1, format!("{calls} calls for a held lock"))?;
    held.release().await?;
    Ok(())
}

/// By guard and by owner.
async fn reentry_sends_no_request(ctx: &Ctx) -> Outcome {
    let (client, faults) = counted(ctx).await?;
    let lock = client.lock(ctx.name())?.with_owner(&client.owner())?;
    let outer = lock.acquire().await?;
    let mut inner = Vec::new();
    for _ in 0..5 {
        inner.push(outer.reenter()?);
        inner.push(lock.acquire().await?);
        inner.extend(lock.try_acquire().await?);
    }
    ensure(inner.len() == 15, "an owner was refused")?;
    for guard in inner {
        guard.release().await?;
    }
    let attempts = faults.calls(Operation::Attempt);
    ensure(attempts == 1, format!("{attempts} attempts"))?;
    let releases = faults.calls(Operation::Release);
    ensure(releases == 0, format!("{releases} releases"))?;
    outer.release().await?;
    Ok(())
}

/// A try while another task of the client holds.
async fn try_behind_the_same_client_sends_no_request(ctx: &Ctx) -> Outcome {
    let (client, faults) = counted(ctx).await?;
    let lock = client.lock(ctx.name())?;
    let _guard = lock.acquire().await?;
    for _ in 0..10 {
        ensure(lock.try_acquire().await?.is_none(), "two hold at once")?;
    }
    let attempts = faults.calls(Operation::Attempt);
    ensure(attempts == 1, format!("{attempts} attempts"))
}

/// Holds that began together are renewed together.
async fn renewals_share_a_call(ctx: &Ctx) -> Outcome {
    let (client, faults) = counted(ctx).await?;
    // How fast the machine is does not matter here.
    let ttl = ctx.renewable(ctx.ttl() * 3);
    let (mut tasks, mut guards) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        let lock = client.lock(ctx.name())?.with_lease(Lease::renewed(ttl))?;
        tasks.push(acquire(&lock));
    }
    for task in tasks {
        guards.push(task.soon().await??);
    }
    // Of a session a store may believe in less than its whole length.
    let believed = guards.last().map_or(ttl, |guard| guard.remaining());
    let span = ttl * 4 / 3;
    sleep(span).await;
    let renewals = faults.calls(Operation::Renew);
    for guard in &guards {
        guard.check()?;
    }
    // A round of fifty holds for every third of a lease, four as a rule; their ten per cent of jitter
    // spread each over a few calls.
    let rounds = span.as_millis().div_ceil(believed.as_millis().max(3) / 3);
    let (some, few) = (renewals > 0, u128::from(renewals) < rounds * 16);
    ensure(some && few, format!("{renewals} calls in {rounds} rounds"))
}

/// A hold that ends soon costs no renewal, also when the lock was handed over.
async fn short_holds_are_not_renewed(ctx: &Ctx) -> Outcome {
    let (client, faults) = counted(ctx).await?;
    let name = ctx.name();
    let (mine, other) = (
        client.lock(name.as_str())?,
        ctx.client().await?.lock(name.as_str())?,
    );
    for _ in 0..5 {
        let held = other.acquire().await?;
        let waiter = acquire(&mine);
        ctx.queued(&other, 1).await?;
        held.release().await?;
        waiter.soon().await??.release().await?;
    }
    let renewals = faults.calls(Operation::Renew);
    ensure(renewals == 0, format!("{renewals} renewals"))
}

/// A waiter that the store wakes sends only the requests that its place in the queue needs.
async fn waiting_is_quiet(ctx: &Ctx) -> Outcome {
    let (client, faults) = counted(ctx).await?;
    // From here on the client has a connection for its wake-ups, which tells waiters to look when it is made.
    let other = client.lock(ctx.name())?;
    let other = (
        other.acquire().await?,
        other.acquire_timeout(ctx.ttl() / 2).await,
    );
    ensure(other.1.is_err(), "two hold at once")?;
    other.0.release().await?;
    client.drain().await;
    faults.reset_counts();
    let name = ctx.name();
    let held = ctx.client().await?.lock(name.as_str())?;
    // So long that its end does not call for a look, also if a renewal is late.
    let held = held.with_lease(ctx.long())?.acquire().await?;
    let lock = client.lock(name)?.with_lease(Lease::renewed(ctx.ttl()))?;
    let (mut waiter, asked) = (acquire(&lock), Instant::now());
    waiter.waits_for(ctx.ttl() * 2).await?;
    let (attempts, waited) = (faults.calls(Operation::Attempt), asked.elapsed());
    // The first one, another when its wake-ups can reach it, and a look every third of a lease or a tenth sooner.
    let looks = waited.as_nanos() / (ctx.ttl() * 3 / 10).as_nanos();
    ensure(
        u128::from(attempts) <= 2 + looks,
        format!("{attempts} attempts in {waited:?}"),
    )?;
    held.release().await?;
    waiter.soon().await??.release().await?;
    Ok(())
}

/// Checking a guard and waiting for its loss sends no request.
async fn checks_and_losses_send_no_request(ctx: &Ctx) -> Outcome {
    let (client, faults) = counted(ctx).await?;
    let guard = client.lock(ctx.name())?.acquire().await?;
    for _ in 0..1000 {
        guard.check()?;
        ensure(!guard.remaining().is_zero(), "nothing remains")?;
        let lost = poll_once(&mut Box::pin(guard.lost())).await;
        ensure(lost.is_none(), "it is lost")?;
    }
    let mut calls = faults.all_calls();
    // A process that pauses during a hold also watches for its loss.
    calls -= faults.calls(Operation::Watch);
    if ctx.capabilities().ttl_of == TtlOf::PerSession {
        // On a session that is older than the hold one may be due at once.
        calls -= faults.calls(Operation::Renew);
    }
    ensure(calls == 1, format!("{calls} calls"))
}

/// Sixty-four readers of one client ask at once: all requests are on their way before one has an answer.
async fn readers_of_one_client_ask_at_once(ctx: &Ctx) -> Outcome {
    let (client, faults) = counted(ctx).await?;
    let lock = client.rw_lock(ctx.name())?.read();
    faults.inject(Rule::new(Fault::Hang).on(Operation::Attempt));
    let readers: Vec<_> = (0..64).map(|_| acquire(&lock)).collect();
    until("all have asked", async || {
        Ok(faults.calls(Operation::Attempt) >= 64)
    })
    .await?;
    faults.heal();
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(reader.soon().await??);
    }
    Ok(guards.iter().try_for_each(Guard::check)?)
}

/// However many tasks of a client wait for four permits, the store sees four waiters and no more.
async fn permits_of_one_client_take_n_places(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let held = ctx.client().await?.lock(name.as_str())?;
    let guard = held.acquire().await?;
    let lock = ctx.client().await?.semaphore(name, 4)?;
    let mut waiters = Vec::new();
    for _ in 0..32 {
        let lock = lock.clone();
        waiters.push(spawn(async move { lock.acquire().await?.release().await }));
    }
    ctx.queued(&held, 4).await?;
    sleep(Duration::from_millis(50)).await;
    let places = waiter_count(&held).await?;
    // All four came. On a busy machine the place of one may have ended meanwhile.
    ensure(places <= Some(4), format!("{places:?}"))?;
    guard.release().await?;
    for waiter in waiters {
        waiter.soon().await??;
    }
    Ok(())
}
