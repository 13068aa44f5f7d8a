//! A store that cannot be reached, and its recovery.

use std::time::Duration;

use lockkit_core::layers::Operation;
use lockkit_core::{Error, Outcome as Effect};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::case::{Case, Need};
use crate::checker::{check, everyone_served, no_loss_without_a_stop};
use crate::ctx::Ctx;
use crate::failure::{Failure, Outcome, ensure};
use crate::history::{Op, Phase, Recorder};
use crate::namespace::Hook;
use crate::taker::Worker;
use crate::task::{acquire, soon, spawn, until, within};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(acquire_waits_for_the_recovery),
        Case::new(try_gives_up_after_one_timeout),
        Case::new(bounded_wait_ends_with_the_cause),
        Case::new(unbounded_wait_ends_after_the_outage_time),
        Case::new(hold_survives_a_short_outage),
        Case::new(waiter_survives_a_short_outage),
        Case::new(hold_is_lost_in_a_long_outage_and_clients_recover),
        Case::new(everyone_is_served_after_the_outage),
        Case::new(short_freeze_of_the_server_ends_no_hold)
            .hook(Hook::Freeze)
            .alone(),
        Case::new(clients_recover_from_a_restart_of_the_server)
            .hook(Hook::Restart)
            .alone(),
        Case::new(clients_recover_from_reset_connections).hook(Hook::Proxy),
        Case::new(waiter_tries_again_when_its_wake_ups_come_back)
            .needs(Need::Push)
            .hook(Hook::Proxy),
        Case::new(clients_recover_from_a_black_hole).hook(Hook::Proxy),
    ]
}

/// An acquire that began during an outage is served after it.
async fn acquire_waits_for_the_recovery(ctx: &Ctx) -> Outcome {
    for silent in [false, true] {
        let (client, faults) = ctx.faulty_impatient().await?;
        if silent {
            faults.black_hole();
        } else {
            faults.outage();
        }
        let mut waiter = acquire(&client.lock(ctx.name())?);
        waiter.waits_for(Duration::from_millis(900)).await?;
        faults.heal();
        waiter.soon().await??.check()?;
    }
    Ok(())
}

/// A try does not wait for a recovery: it ends after one request timeout.
async fn try_gives_up_after_one_timeout(ctx: &Ctx) -> Outcome {
    for (silent, effect) in [(false, Effect::Unavailable), (true, Effect::Indeterminate)] {
        let (client, faults) = ctx.faulty_impatient().await?;
        if silent {
            faults.black_hole();
        } else {
            faults.outage();
        }
        let start = Instant::now();
        let lock = client.lock(ctx.name())?;
        match soon(lock.try_acquire()).await? {
            Err(Error::Backend(error)) if error.outcome() == effect => {}
            other => return Err(Failure::new(format!("{other:?}"))),
        }
        let took = start.elapsed();
        ensure(took < Duration::from_secs(3), format!("it took {took:?}"))?;
        // What was refused for certain is tried again until the timeout.
        let attempts = faults.calls(Operation::Attempt);
        ensure(
            attempts == 1 || (!silent && attempts > 0),
            format!("{attempts} attempts"),
        )?;
    }
    Ok(())
}

/// A bounded wait during an outage says what was wrong, and not that others held the lock.
async fn bounded_wait_ends_with_the_cause(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    faults.outage();
    let lock = client.lock(ctx.name())?;
    let start = Instant::now();
    let limit = Duration::from_millis(500);
    let result = soon(lock.acquire_timeout(limit)).await?;
    ensure(
        matches!(result, Err(Error::Backend(_))),
        format!("{result:?}"),
    )?;
    let took = start.elapsed();
    ensure(
        took >= limit && took < limit * 6,
        format!("it took {took:?}"),
    )
}

/// An acquire without a limit gives up when the store failed for the whole outage time.
async fn unbounded_wait_ends_after_the_outage_time(ctx: &Ctx) -> Outcome {
    let (store, faults) = ctx.faulty_store().await?;
    let outage = Duration::from_millis(800);
    let builder = ctx.builder(store).timeout(Duration::from_millis(200));
    let client = builder.outage(outage).build()?;
    faults.outage();
    let start = Instant::now();
    let result = soon(client.lock(ctx.name())?.acquire()).await?;
    ensure(
        matches!(result, Err(Error::Backend(_))),
        format!("{result:?}"),
    )?;
    let took = start.elapsed();
    ensure(
        took >= outage && took < outage * 6,
        format!("it took {took:?}"),
    )
}

/// An outage that is shorter than the lease ends no hold.
async fn hold_survives_a_short_outage(ctx: &Ctx) -> Outcome {
    for silent in [false, true] {
        let (client, faults) = ctx.faulty().await?;
        let guard = client.lock(ctx.name())?.acquire().await?;
        if silent {
            faults.black_hole();
        } else {
            faults.outage();
        }
        faults.reset_counts();
        // Of a session a store may believe in less than its whole length.
        let end = Instant::now() + guard.remaining() / 2;
        soon(faults.called(Operation::Renew, 1)).await?;
        sleep_until(end).await;
        faults.heal();
        sleep(ctx.ttl()).await;
        guard.check()?;
        guard.release().await?;
    }
    Ok(())
}

/// A waiter goes on waiting through an outage and is served.
async fn waiter_survives_a_short_outage(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let name = ctx.name();
    let a = ctx.client().await?.lock(name.as_str())?;
    let guard = a.acquire().await?;
    let mut waiter = acquire(&client.lock(name.as_str())?);
    waiter.waits_for(Duration::from_millis(100)).await?;
    faults.outage();
    faults.reset_counts();
    waiter.waits_for(ctx.ttl()).await?;
    soon(faults.called(Operation::Attempt, 1)).await?;
    faults.heal();
    guard.release().await?;
    waiter.soon().await??.release().await?;
    Ok(())
}

/// An outage that is longer than the lease ends the hold; afterwards the lock works as before.
async fn hold_is_lost_in_a_long_outage_and_clients_recover(ctx: &Ctx) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let lock = client.lock(ctx.name())?;
    let guard = lock.acquire().await?;
    faults.black_hole();
    let lost = guard.lost();
    within(ctx.ttl() * 2, lost).await?;
    faults.heal();
    let next = soon(lock.acquire()).await??;
    ensure(next.token() > guard.token(), "the token did not grow")?;
    ensure(guard.check().is_err(), "the hold came back")?;
    next.release().await?;
    Ok(())
}

/// Six clients, each with its own outages: after the last outage all of them are served, none twice.
async fn everyone_is_served_after_the_outage(ctx: &Ctx) -> Outcome {
    let (name, recorder) = (ctx.name(), Recorder::new());
    let mut workers = Vec::new();
    let mut all_faults = Vec::new();
    for _ in 0..6 {
        let (client, faults) = ctx.faulty().await?;
        workers.push(Worker::new(client.lock(name.as_str())?, recorder.clone()));
        all_faults.push(faults);
    }
    let span = Duration::from_secs(4);
    let work = |worker: Worker| spawn(async move { worker.work(span).await });
    let tasks: Vec<_> = workers.into_iter().map(work).collect();
    recorder.note(0, &name, Op::Fault, Phase::Info);
    let mut refused = 0;
    for faults in &all_faults {
        faults.outage();
        faults.reset_counts();
        sleep(Duration::from_millis(250)).await;
        if refused == 0 {
            let met = async || Ok(faults.all_calls() > 0);
            until("a request meets an outage", met).await?;
        }
        refused += faults.all_calls();
        faults.heal();
    }
    recorder.note(0, &name, Op::Heal, Phase::Info);
    for task in tasks {
        let turns = task.soon().await?;
        ensure(turns > 0, "a client never had the lock")?;
    }
    let history = recorder.history();
    check(&history)?;
    everyone_served(&history, Duration::from_secs(5))?;
    no_loss_without_a_stop(&history)?;
    Ok(())
}

/// A server that is frozen for less than a lease: holds stand, requests go on.
async fn short_freeze_of_the_server_ends_no_hold(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    let guard = a.acquire().await?;
    let waiter = acquire(&b);
    ctx.server()?.freeze()?;
    let response = timeout(ctx.ttl() / 3, b.inspect()).await;
    ctx.server()?.thaw()?;
    let failed = !matches!(response, Ok(Ok(_)));
    ensure(failed, "the server was not frozen")?;
    sleep(ctx.ttl()).await;
    guard.check()?;
    guard.release().await?;
    waiter.soon().await??.release().await?;
    Ok(())
}

/// A server that was killed and started again serves the clients it had.
async fn clients_recover_from_a_restart_of_the_server(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.locks().await?;
    a.acquire().await?.release().await?;
    restarted(ctx).await?;
    let guard = soon(a.acquire()).await??;
    let waiter = acquire(&b);
    guard.release().await?;
    waiter.soon().await??.release().await?;
    Ok(())
}

/// Restarts the server. Other processes than before serve it then.
pub(super) async fn restarted(ctx: &Ctx) -> Outcome {
    let server = ctx.server()?;
    let before = server.pids();
    server.restart().await?;
    let after = server.pids();
    let others = before.len() == after.len() && !after.iter().any(|pid| before.contains(pid));
    ensure(
        others && !after.is_empty(),
        format!("processes {before:?} became {after:?}"),
    )
}

/// Connections that are reset in the middle of a hold and of a wait.
async fn clients_recover_from_reset_connections(ctx: &Ctx) -> Outcome {
    let name = ctx.name();
    let (store, proxy) = ctx.store_through_proxy().await?;
    let a = ctx.builder(store).build()?.lock(name.as_str())?;
    let b = ctx.client().await?.lock(name.as_str())?;
    let made = || proxy.counts().connections;
    let guard = a.acquire().await?;
    let waiter = acquire(&b);
    let first = made();
    proxy.reset();
    // Lost or not, both sides agree on it in the end.
    drop(guard.release().await);
    let guard = waiter.soon().await??;
    let waiter = acquire(&a);
    let second = made();
    proxy.reset();
    guard.release().await?;
    waiter.soon().await??.release().await?;
    let all = made();
    ensure(
        0 < first && first < second && second < all,
        format!("{first}, {second} and {all} connections"),
    )
}

/// A lock becomes free while the waiter cannot be notified: the waiter does not wait for its next poll.
async fn waiter_tries_again_when_its_wake_ups_come_back(ctx: &Ctx) -> Outcome {
    let (lease, name) = (ctx.long(), ctx.name());
    let (store, proxy) = ctx.store_through_proxy().await?;
    let a = ctx.client().await?.lock(name.as_str())?.with_lease(lease)?;
    let b = ctx.builder(store).build()?.lock(name)?.with_lease(lease)?;
    let guard = a.acquire().await?;
    let mut waiter = acquire(&b);
    ctx.queued(&a, 1).await?;
    waiter.waits_for(Duration::from_millis(200)).await?;
    proxy.refuse(true);
    proxy.reset();
    guard.release().await?;
    waiter.waits_for(Duration::from_millis(200)).await?;
    proxy.heal();
    // Less than what is left until the next look.
    let soon = Duration::from_secs(2);
    within(soon, waiter.soon()).await???.release().await?;
    Ok(())
}

/// Bytes that vanish in either direction, and a network that is repaired.
async fn clients_recover_from_a_black_hole(ctx: &Ctx) -> Outcome {
    use crate::proxy::{Direction, Flow};
    let name = ctx.name();
    let (store, proxy) = ctx.store_through_proxy().await?;
    let client = ctx.builder(store).timeout(Duration::from_millis(400));
    let lock = client.build()?.lock(name.as_str())?;
    for (direction, flow) in [
        (Direction::Request, Flow::Hold),
        (Direction::Reply, Flow::Hold),
        (Direction::Request, Flow::Discard),
        (Direction::Reply, Flow::Discard),
    ] {
        let guard = soon(lock.acquire()).await??;
        proxy.flow(direction, flow);
        within(ctx.ttl() * 2, guard.lost()).await?;
        proxy.heal();
        drop(guard);
    }
    soon(lock.acquire()).await??.check()?;
    Ok(())
}
