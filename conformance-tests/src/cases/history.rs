//! Recorded histories under contention and faults, checked as a whole.

use std::time::Duration;

use crate::case::{Case, Need};
use crate::checker::{check, everyone_served, no_spurious_loss};
use crate::ctx::Ctx;
use crate::failure::{Failure, Outcome, ensure};
use crate::history::{History, Op, Phase, Recorder};
use crate::taker::{Mixed, Worker};
use crate::task::spawn;

/// How long clients contend.
const SPAN: Duration = Duration::from_secs(4);

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(sixteen_clients),
        Case::new(sixteen_clients_in_two_processes).needs(Need::Taker),
        Case::new(clients_under_random_faults),
        Case::new(processes_that_are_killed_and_frozen).needs(Need::Taker),
    ]
}

/// Sixteen clients contend for one lock for four seconds.
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
    no_spurious_loss(&history, Duration::ZERO)?;
    Ok(())
}

/// Eight clients here and eight in another process.
async fn sixteen_clients_in_two_processes(ctx: &Ctx) -> Outcome {
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
        ensure(!taker.history().events().is_empty(), "a process was idle")?;
        histories.push(taker.history());
    }
    judge(&History::merged(histories))
}

/// Six clients in random modes with delays, lost replies, refusals and late requests, from a seed that a
/// failure shows.
async fn clients_under_random_faults(ctx: &Ctx) -> Outcome {
    let seed = fastrand::u64(..);
    let result = random_faults(ctx, seed).await;
    result.map_err(|failure| failure.with_detail(&format!("seed {seed}")))
}

async fn random_faults(ctx: &Ctx, seed: u64) -> Outcome {
    let (names, recorder) = ([ctx.name(), ctx.name()], Recorder::new());
    let mut tasks = Vec::new();
    let mut all_faults = Vec::new();
    for n in 0..6 {
        let (store, faults) = ctx.faulty_store_from(seed.wrapping_add(n)).await?;
        faults.chaos(0.05, ctx.ttl() / 8);
        let builder = ctx.builder(store).timeout(Duration::from_millis(400));
        all_faults.push(faults);
        let names = &names[..if n < 2 { 2 } else { 1 }];
        let worker = Mixed::new(builder.build()?, names, recorder.clone());
        tasks.push(spawn(async move { worker.work(SPAN).await }));
    }
    recorder.note(0, "", Op::Fault, Phase::Info);
    tokio::time::sleep(SPAN / 2).await;
    for faults in &all_faults {
        faults.heal();
    }
    recorder.note(0, "", Op::Heal, Phase::Info);
    for task in tasks {
        task.soon().await??;
    }
    let history = recorder.history();
    judge(&history)?;
    everyone_served(&history, Duration::from_secs(10))?;
    Ok(())
}

/// Three processes that contend in random modes; one after the other is frozen and killed.
async fn processes_that_are_killed_and_frozen(ctx: &Ctx) -> Outcome {
    let (names, recorder) = ([ctx.name(), ctx.name()], Recorder::new());
    let worker = Mixed::new(ctx.client().await?, &names, recorder.clone());
    let mine = spawn(async move { worker.work(SPAN * 2).await });
    let mut histories = Vec::new();
    for _ in 0..3 {
        let mut taker = ctx.taker().await?;
        taker
            .send(&format!("mix 60000 {}", names.join(" ")))
            .await?;
        tokio::time::sleep(SPAN / 8).await;
        taker.stop()?;
        tokio::time::sleep(ctx.ttl() * 3 / 2).await;
        taker.resume()?;
        tokio::time::sleep(SPAN / 8).await;
        taker.kill().await?;
        // What it wrote before its end is still in the pipe.
        let ended = taker.answer(Ctx::PATIENCE).await;
        ensure(ended.is_err(), "the process outlived its kill")?;
        histories.push(taker.history());
    }
    let turns = mine.soon().await??;
    ensure(turns > 0, "no other client was served")?;
    histories.push(recorder.history());
    judge(&History::merged(histories))
}

/// Checks what must always hold, and that there was something to check.
fn judge(history: &History) -> Outcome {
    let looks = |event: &&crate::history::Event| event.op == Op::Check && event.phase == Phase::Ok;
    let looks = history.events().iter().filter(looks).count();
    ensure(looks >= 16, format!("only {looks} looks"))?;
    check(history).map_err(Failure::from)
}
