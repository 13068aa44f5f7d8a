//! Recorded histories under contention and faults, checked as a whole.

use std::time::Duration;

use lockkit_core::EndsBy;
use lockkit_core::layers::{Faults, Operation};
use tokio::time::sleep;

use crate::case::{Case, Need};
use crate::checker::{check, everyone_served, no_loss_without_a_stop};
use crate::ctx::Ctx;
use crate::failure::{Failure, Outcome, ensure};
use crate::history::{Event, History, Op, Phase, Recorder, now};
use crate::taker::{Mixed, Taker, Worker};
use crate::task::{soon, spawn, until, within};

/// How long clients contend.
const SPAN: Duration = Duration::from_secs(4);

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(sixteen_clients),
        Case::new(sixteen_clients_in_three_processes).needs(Need::Taker),
        Case::new(clients_under_random_faults),
        Case::new(processes_that_are_killed_and_frozen).needs(Need::Taker),
    ]
}

/// Sixteen clients contend for one lock for four seconds, and lose nothing.
async fn sixteen_clients(ctx: &Ctx) -> Outcome {
    let (name, recorder) = (ctx.name(), Recorder::new());
    let mut tasks = Vec::new();
    for _ in 0..16 {
        let worker = Worker::new(ctx.client().await?.lock(name.as_str())?, recorder.clone());
        tasks.push(spawn(async move { worker.work(SPAN).await }));
    }
    let mut turns = 0;
    for task in tasks {
        turns += task.soon().await?;
    }
    ensure(turns >= 16, format!("only {turns} turns in {SPAN:?}"))?;
    let history = recorder.history();
    judge(&history)?;
    no_loss_without_a_stop(&history)?;
    Ok(())
}

/// Fourteen clients here, and one in each of two other processes.
async fn sixteen_clients_in_three_processes(ctx: &Ctx) -> Outcome {
    let (name, recorder) = (ctx.name(), Recorder::new());
    let mut takers = Vec::new();
    for _ in 0..2 {
        let mut taker = ctx.taker().await?;
        taker
            .send(&format!("work {name} {}", SPAN.as_millis()))
            .await?;
        takers.push(taker);
    }
    let mut tasks = Vec::new();
    for _ in 0..14 {
        let worker = Worker::new(ctx.client().await?.lock(name.as_str())?, recorder.clone());
        tasks.push(spawn(async move { worker.work(SPAN).await }));
    }
    for task in tasks {
        task.soon().await?;
    }
    let mut histories = vec![recorder.history()];
    for mut taker in takers {
        taker.answer(Ctx::PATIENCE).await?;
        let history = taker.history();
        ensure(history.events().iter().any(stands), "a process never held")?;
        histories.push(history);
    }
    let history = History::merged(histories);
    judge(&history)?;
    no_loss_without_a_stop(&history)?;
    Ok(())
}

/// Six clients in random modes with delays, lost replies, refusals and late requests, from a seed that a
/// failure shows; and one that loses what it holds.
async fn clients_under_random_faults(ctx: &Ctx) -> Outcome {
    let seed = fastrand::u64(..);
    let result = random_faults(ctx, seed).await;
    result.map_err(|failure| failure.with_detail(&format!("seed {seed}")))
}

async fn random_faults(ctx: &Ctx, seed: u64) -> Outcome {
    let (names, recorder) = ([ctx.name(), ctx.name()], Recorder::new());
    let span = SPAN + ctx.ttl() * 3 / 2;
    let mut tasks = Vec::new();
    let mut all_faults = Vec::new();
    for n in 0..6 {
        let (store, faults) = ctx.faulty_store_from(seed.wrapping_add(n)).await?;
        faults.chaos(0.05, ctx.ttl() / 8);
        let builder = ctx.builder(store).timeout(Duration::from_millis(400));
        all_faults.push(faults);
        let names = &names[..if n < 2 { 2 } else { 1 }];
        let worker = Mixed::new(builder.build()?, names, recorder.clone()).with_long_holds();
        tasks.push(spawn(async move { worker.work(span).await }));
    }
    recorder.note(0, "", Op::Fault, Phase::Info);
    sleep(SPAN / 4).await;
    loses_its_hold(ctx, &names[0], &recorder).await?;
    sleep(SPAN / 4).await;
    for faults in &all_faults {
        faults.heal();
    }
    recorder.note(0, "", Op::Heal, Phase::Info);
    for task in tasks {
        task.soon().await??;
    }
    let injected: u64 = all_faults.iter().map(Faults::injected).sum();
    ensure(injected > 0, "no fault took place")?;
    let history = recorder.history();
    judge(&history)?;
    everyone_served(&history, Duration::from_secs(10))?;
    Ok(())
}

/// A client whose requests do not reach the store any more after its first renewal.
async fn loses_its_hold(ctx: &Ctx, name: &str, recorder: &Recorder) -> Outcome {
    let (client, faults) = ctx.faulty().await?;
    let worker = Worker::new(client.lock(name)?, recorder.clone());
    let hold = recorder.next_hold();
    let guard = soon(worker.acquire(hold)).await?;
    let guard = guard.ok_or_else(|| Failure::new("not acquired"))?;
    let watch = spawn(worker.watch(hold, &guard));
    soon(faults.called(Operation::Renew, 1)).await?;
    worker.check(hold, &guard);
    faults.black_hole();
    watch.soon().await?;
    worker.check(hold, &guard);
    faults.heal();
    Ok(())
}

/// Three processes that contend with each other and with a client here, in random modes; one after the other is
/// frozen and killed.
async fn processes_that_are_killed_and_frozen(ctx: &Ctx) -> Outcome {
    let (names, recorder) = ([ctx.name(), ctx.name()], Recorder::new());
    let mut takers = Vec::new();
    for _ in 0..3 {
        let mut taker = ctx.taker().await?;
        taker
            .send(&format!("mix 60000 {}", names.join(" ")))
            .await?;
        takers.push(taker);
    }
    let worker = Mixed::new(ctx.client().await?, &names, recorder.clone());
    // It ends with the case.
    let _mine = spawn(async move { worker.work(Ctx::PATIENCE * 3).await });
    let mut histories = Vec::new();
    for mut taker in takers {
        sleep(SPAN / 8).await;
        freeze(ctx, &taker, &recorder).await?;
        sleep(SPAN / 8).await;
        taker.kill().await?;
        // What it wrote before its end is still in the pipe.
        let ended = taker.answer(Ctx::PATIENCE).await;
        ensure(ended.is_err(), "the process outlived its kill")?;
        let history = taker.history();
        ensure(!history.events().is_empty(), "the process did nothing")?;
        histories.push(history);
    }
    served_since(&recorder, now()).await?;
    histories.push(recorder.history());
    judge(&History::merged(histories))
}

/// Freezes a process for longer than its leases last. The client here is served meanwhile, unless a frozen process
/// keeps what it holds.
async fn freeze(ctx: &Ctx, taker: &Taker, recorder: &Recorder) -> Outcome {
    let longer = ctx.ttl() * 3 / 2;
    let mut served = Ok(());
    // A process that is frozen in the middle of a transaction can keep all others from the store.
    for _ in 0..3 {
        taker.stop()?;
        let stopped = now();
        sleep(longer).await;
        if ctx.capabilities().ends_by != EndsBy::Process {
            served = within(longer, served_since(recorder, stopped))
                .await
                .flatten();
        }
        taker.resume()?;
        if served.is_ok() {
            break;
        }
        sleep(SPAN / 8).await;
    }
    served
}

/// Waits until a client of this process has held after this moment.
async fn served_since(recorder: &Recorder, since: u64) -> Outcome {
    let held = |event: &Event| event.at > since && stands(event);
    let served = async || Ok(recorder.history().events().iter().any(held));
    until("another client is served", served).await
}

/// Checks what must always hold, and that there was something to check.
fn judge(history: &History) -> Outcome {
    let looks = history.events().iter().filter(|event| stands(event));
    let looks = looks.count();
    ensure(looks >= 16, format!("only {looks} looks"))?;
    check(history).map_err(Failure::from)
}

/// The guard stood at a look.
fn stands(event: &Event) -> bool {
    event.op == Op::Check && event.phase == Phase::Ok
}
