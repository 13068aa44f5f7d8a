//! Readers and writers: readers hold together, a writer holds alone, and neither side starves. INV-18, INV-19,
//! INV-20.

use std::time::Duration;

use lockkit_core::contract::{Attempt, LockState, Mode, Renewal, Ticket};
use lockkit_core::layers::{Fault, Operation, Rule};
use lockkit_core::{Guard, Lease, Lock, RwLock, Waiting, queue_window};
use tokio::time::{Instant, sleep};

use crate::case::{Case, Need};
use crate::checker::check;
use crate::ctx::Ctx;
use crate::failure::{Failure, Outcome, ensure};
use crate::history::Recorder;
use crate::requests::{granted, must_renew, renewed};
use crate::taker::Mixed;
use crate::task::{AT_ONCE, PATIENCE, Task, acquire, soon, spawn, until, within};

pub(super) fn cases() -> Vec<Case> {
    let cases = vec![
        Case::new(readers_hold_together),
        Case::new(writer_waits_for_the_last_reader),
        Case::new(waiting_writer_is_not_passed),
        Case::new(dead_writer_delays_readers_briefly).needs(Need::LeasePerHold),
        Case::new(withdrawn_writer_lets_readers_in),
        Case::new(one_release_lets_all_readers_in),
        Case::new(five_hundred_readers_are_served)
            .needs(Need::Fifo)
            .needs(Need::Push)
            .on_the_whole_machine(),
        Case::new(dead_reader_ends_alone)
            .needs(Need::LeasePerHold)
            .needs(Need::StoreEndsLeases),
        Case::new(short_reader_ends_no_other).needs(Need::LeasePerHold),
        Case::new(ended_reader_is_not_renewed)
            .needs(Need::LeasePerHold)
            .needs(Need::StoreEndsLeases),
        Case::new(lock_of_the_same_name_excludes_readers_and_writers),
        Case::new(each_reader_has_a_token_of_its_own),
        Case::new(all_holders_are_shown_and_broken),
        Case::new(reader_without_replies_holds_once),
        Case::new(holders_always_fit),
    ];
    cases
        .into_iter()
        .map(|case| case.needs(Need::Shares))
        .collect()
}

/// The same fresh lock as each of `N` clients sees it.
async fn locks<const N: usize>(ctx: &Ctx) -> Outcome<[RwLock; N]> {
    let name = ctx.name();
    let mut locks = Vec::new();
    for _ in 0..N {
        locks.push(ctx.client().await?.rw_lock(name.as_str())?);
    }
    let wrong = |locks: Vec<_>| Failure::new(format!("{} locks", locks.len()));
    locks.try_into().map_err(wrong)
}

fn reader(ctx: &Ctx, name: &str) -> Outcome<Ticket> {
    Ok(ctx.ticket(name)?.with_mode(Mode::Read))
}

async fn refused(lock: &Lock, why: &str) -> Outcome {
    ensure(lock.try_acquire().await?.is_none(), why)
}

async fn served(waiter: Task<lockkit_core::Result<Guard>>) -> Outcome<Guard> {
    Ok(waiter.soon().await??)
}

/// Two readers hold at the same time, and no writer beside them.
async fn readers_hold_together(ctx: &Ctx) -> Outcome {
    let [a, b, c] = locks(ctx).await?;
    let one = a.read().acquire().await?;
    let other = b.read().try_acquire().await?;
    let other = other.ok_or_else(|| Failure::new("a second reader was refused"))?;
    refused(&c.write(), "a writer holds beside readers").await?;
    one.check()?;
    other.check()?;
    one.release().await?;
    other.release().await?;
    let writer = c.write().try_acquire().await?;
    let writer = writer.ok_or_else(|| Failure::new("a free lock was refused to a writer"))?;
    refused(&a.read(), "a reader holds beside a writer").await?;
    refused(&b.write(), "two writers hold").await?;
    writer.release().await?;
    ensure(a.read().inspect().await?.is_none(), "the lock is not free")
}

/// Not for the first one that goes.
async fn writer_waits_for_the_last_reader(ctx: &Ctx) -> Outcome {
    let [a, b, c] = locks(ctx).await?;
    let one = a.read().acquire().await?;
    let other = b.read().acquire().await?;
    let mut writer = acquire(&c.write());
    ctx.queued(&a.read(), 1).await?;
    one.release().await?;
    writer.waits_for(ctx.ttl() / 3).await?;
    other.check()?;
    other.release().await?;
    served(writer).await?.release().await?;
    Ok(())
}

/// While a writer waits for a reader, no later reader gets in.
async fn waiting_writer_is_not_passed(ctx: &Ctx) -> Outcome {
    let [a, b, c] = locks(ctx).await?;
    let first = a.read().acquire().await?;
    let mut writer = acquire(&b.write());
    ctx.queued(&a.read(), 1).await?;
    refused(&c.read(), "a try to read passed a waiting writer").await?;
    let mut late = acquire(&c.read());
    late.waits_for(ctx.ttl() / 3).await?;
    writer.waits_for(Duration::from_millis(1)).await?;
    first.release().await?;
    let written = served(writer).await?;
    late.waits_for(Duration::from_millis(50)).await?;
    let token = written.token();
    written.release().await?;
    let read = served(late).await?;
    ensure(read.token() > token, "a reader has an earlier token")?;
    Ok(read.release().await?)
}

/// A writer that died while it waited holds readers up for one window, and not for its lease.
async fn dead_writer_delays_readers_briefly(ctx: &Ctx) -> Outcome {
    let [a, b] = locks(ctx).await?;
    let first = a.read().acquire().await?;
    let ttl = ctx.longest(Duration::from_secs(30));
    let dead = ctx.ticket(a.name().as_str())?;
    let dead = dead.with_mode(Mode::Write).with_ttl(ttl);
    let answer = ctx.store().await?.attempt(&dead).await?;
    ensure(
        matches!(answer, Attempt::Held { .. }),
        "a writer holds beside a reader",
    )?;
    let window = queue_window(ctx.capabilities(), ttl);
    let limit = window + ctx.capabilities().poll.max + AT_ONCE * 2;
    let second = within(limit, b.read().acquire()).await??;
    first.check()?;
    Ok(second.release().await?)
}

/// A writer that gives up lets in the readers that waited behind it.
async fn withdrawn_writer_lets_readers_in(ctx: &Ctx) -> Outcome {
    let [a, b, c] = locks(ctx).await?;
    let first = a.read().acquire().await?;
    let writer = acquire(&b.write());
    ctx.queued(&a.read(), 1).await?;
    let mut late = acquire(&c.read().with_lease(ctx.long())?);
    late.waits_for(Duration::from_millis(100)).await?;
    writer.cancel().await;
    let limit = AT_ONCE + ctx.capabilities().poll.max;
    let second = within(limit, served(late)).await??;
    first.check()?;
    Ok(second.release().await?)
}

/// The end of a writer lets in all readers that wait, and not one after the other.
async fn one_release_lets_all_readers_in(ctx: &Ctx) -> Outcome {
    let [a] = locks(ctx).await?;
    let written = a.write().acquire().await?;
    let mut readers = Vec::new();
    for count in 1..=8 {
        let lock = ctx.client().await?.rw_lock(a.name())?.read();
        readers.push(acquire(&lock.with_lease(ctx.long())?));
        ctx.queued(&a.read(), count).await?;
    }
    written.release().await?;
    // Sooner than those that are woken attempt again by themselves.
    let limit = match ctx.capabilities().waiting {
        Waiting::Push => AT_ONCE,
        _ => AT_ONCE + ctx.capabilities().poll.max,
    };
    let all = async {
        let mut guards = Vec::new();
        for reader in readers {
            guards.push(served(reader).await?);
        }
        Outcome::Ok(guards)
    };
    let guards = within(limit, all).await??;
    for guard in &guards {
        guard.check()?;
    }
    refused(&a.write(), "a writer holds beside readers").await
}

/// More readers than a store lets in with one step.
async fn five_hundred_readers_are_served(ctx: &Ctx) -> Outcome {
    let [a] = locks(ctx).await?;
    let lease = ctx.long();
    // On a busy machine a short lease ends before all of them wait.
    let written = a.write().with_lease(lease)?.acquire().await?;
    let mut readers = Vec::new();
    for _ in 0..8 {
        let lock = ctx.client().await?.rw_lock(a.name())?.read();
        let lock = lock.with_lease(lease)?;
        readers.extend((0..64).map(|_| acquire(&lock)));
    }
    ctx.queued(&a.read(), 512).await?;
    written.release().await?;
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(served(reader).await?);
    }
    // A slow machine does not serve so many within a short lease.
    if lease.ttl() > AT_ONCE * 4 {
        guards.iter().try_for_each(Guard::check)?;
    }
    Ok(())
}

/// The lease of a reader that died ends, although others are renewed.
async fn dead_reader_ends_alone(ctx: &Ctx) -> Outcome {
    let [a, b] = locks(ctx).await?;
    let living = a.read().acquire().await?;
    let dead = reader(ctx, a.name().as_str())?;
    let answer = ctx.store().await?.attempt(&dead).await?;
    ensure(
        matches!(answer, Attempt::Granted(_)),
        "a second reader was refused",
    )?;
    sleep(ctx.freed_after()).await;
    let mut writer = acquire(&b.write());
    writer.waits_for(ctx.ttl() / 4).await?;
    living.check()?;
    living.release().await?;
    let limit = AT_ONCE + ctx.capabilities().poll.max;
    within(limit, served(writer)).await??.release().await?;
    Ok(())
}

/// A short lease ends without the long one of another reader.
async fn short_reader_ends_no_other(ctx: &Ctx) -> Outcome {
    let [a, b] = locks(ctx).await?;
    let long = Lease::fixed(ctx.longest(ctx.ttl() * 10));
    let long = a.read().with_lease(long)?.acquire().await?;
    let store = ctx.store().await?;
    for _ in 0..2 {
        let short = reader(ctx, a.name().as_str())?;
        granted(&*store, &short).await?;
        store.release(&short).await?;
        let short = reader(ctx, a.name().as_str())?;
        granted(&*store, &short).await?;
        must_renew(&*store, &short).await?;
    }
    sleep(ctx.freed_after()).await;
    long.check()?;
    refused(&b.write(), "the end of a short lease ended a long one").await?;
    Ok(long.release().await?)
}

/// A reader whose lease has ended is not revived by a renewal, also while another reader holds.
async fn ended_reader_is_not_renewed(ctx: &Ctx) -> Outcome {
    let [a] = locks(ctx).await?;
    let living = a.read().acquire().await?;
    let store = ctx.store().await?;
    let ended = reader(ctx, a.name().as_str())?;
    granted(&*store, &ended).await?;
    sleep(ctx.freed_after()).await;
    let renewal = renewed(&*store, &ended).await??;
    ensure(renewal == Renewal::NotHeld, format!("{renewal:?}"))?;
    living.check()?;
    Ok(living.release().await?)
}

/// A name has one queue, whatever the modes.
async fn lock_of_the_same_name_excludes_readers_and_writers(ctx: &Ctx) -> Outcome {
    let [a] = locks(ctx).await?;
    let lock = ctx.client().await?.lock(a.name())?;
    let guard = lock.acquire().await?;
    refused(&a.read(), "a reader holds beside the lock").await?;
    refused(&a.write(), "a writer holds beside the lock").await?;
    guard.release().await?;
    for side in [a.read(), a.write()] {
        let guard = side.acquire().await?;
        refused(&lock, "the lock is held beside a reader or a writer").await?;
        guard.release().await?;
    }
    Ok(())
}

/// Larger than every token before it, also than that of a reader that still holds.
async fn each_reader_has_a_token_of_its_own(ctx: &Ctx) -> Outcome {
    let [a, b] = locks(ctx).await?;
    let mut last = None;
    for _ in 0..3 {
        let one = a.read().acquire().await?;
        let other = b.read().acquire().await?;
        let tokens = [one.token(), other.token()];
        one.release().await?;
        other.release().await?;
        let writer = b.write().acquire().await?;
        let tokens = [tokens[0], tokens[1], writer.token()];
        writer.release().await?;
        for token in tokens {
            ensure(last < Some(token), format!("{token} after {last:?}"))?;
            last = Some(token);
        }
    }
    Ok(())
}

/// An operator sees every reader, and a break ends all of them.
async fn all_holders_are_shown_and_broken(ctx: &Ctx) -> Outcome {
    let [a, b, c] = locks(ctx).await?;
    let (one, other) = (a.read().acquire().await?, b.read().acquire().await?);
    let state = c.write().inspect().await?;
    let state = state.ok_or_else(|| Failure::new("the lock is free"))?;
    for guard in [&one, &other] {
        let id = guard.holder().to_string();
        let shown = state.holders.iter().any(|holder| holder.id.contains(&id));
        ensure(shown, format!("{id} is not in {state:?}"))?;
    }
    ensure(
        state.token == Some(one.token().max(other.token())),
        format!("{state:?}"),
    )?;
    let was = c.write().break_lock().await?;
    ensure(
        was.is_some_and(|was| was.holders.len() == 2),
        "not both were broken",
    )?;
    let writer = soon(c.write().acquire()).await??;
    until("both readers are lost", async || {
        Ok(one.check().is_err() && other.check().is_err())
    })
    .await?;
    Ok(writer.release().await?)
}

/// Its attempt and its release are done once, beside another reader; a late attempt makes no hold that lasts.
async fn reader_without_replies_holds_once(ctx: &Ctx) -> Outcome {
    let [a, b] = locks(ctx).await?;
    let other = a.read().acquire().await?;
    let (client, faults) = ctx.faulty().await?;
    let lock = client.rw_lock(a.name())?.read();
    faults.inject(Rule::new(Fault::DropReply).on(Operation::Attempt).times(1));
    let guard = soon(lock.acquire()).await??;
    readers(&a, &[&other, &guard]).await?;
    faults.inject(Rule::new(Fault::DropReply).on(Operation::Release).times(1));
    soon(guard.release()).await??;
    ensure(faults.injected() == 2, "a fault did not take place")?;
    readers(&a, &[&other]).await?;
    let (store, late) = (ctx.store().await?, reader(ctx, a.name().as_str())?);
    granted(&*store, &late).await?;
    store.release(&late).await?;
    // It may be refused, which is an error here.
    drop(store.attempt(&late).await);
    other.check()?;
    other.release().await?;
    let writer = b.write();
    let writer = within(ctx.ttl() + ctx.freed_after(), writer.acquire());
    Ok(writer.await??.release().await?)
}

/// These hold, each once.
async fn readers(lock: &RwLock, guards: &[&Guard]) -> Outcome {
    let state = lock.read().inspect().await?;
    let mut shown: Vec<_> = state.iter().flat_map(LockState::holder_ids).collect();
    let mut expected: Vec<_> = guards.iter().map(|it| it.holder().to_string()).collect();
    shown.sort();
    expected.sort();
    ensure(shown == expected, format!("{state:?}"))?;
    let last = guards.iter().map(|guard| guard.token()).max();
    let token = state.as_ref().and_then(|state| state.token);
    ensure(token == last, format!("{state:?}"))
}

/// Clients in random modes for six seconds, and longer if they had few turns by then: all holders of each moment fit
/// each other.
async fn holders_always_fit(ctx: &Ctx) -> Outcome {
    let (names, recorder) = ([ctx.name(), ctx.name()], Recorder::new());
    let mut workers = Vec::new();
    for n in 0..12 {
        // Two clients hold both names together now and then, which keeps the others waiting.
        let names = &names[..if n < 2 { 2 } else { 1 }];
        workers.push(Mixed::new(ctx.client().await?, names, recorder.clone()));
    }
    let (mut turns, began) = (0, Instant::now());
    while turns <= 60 {
        let late = began.elapsed() > PATIENCE;
        ensure(!late, format!("only {turns} turns"))?;
        let work = |worker: Mixed| async move { worker.work(Duration::from_secs(6)).await };
        let tasks: Vec<_> = workers.iter().cloned().map(|it| spawn(work(it))).collect();
        for task in tasks {
            let its = task.soon().await??;
            ensure(its > 0, "a client had no turn")?;
            turns += its;
        }
    }
    Ok(check(&recorder.history())?)
}
