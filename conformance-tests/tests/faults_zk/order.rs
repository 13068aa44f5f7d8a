//! Who is served when.

use std::path::Path;

use conformance_tests::taker::Taker;
use conformance_tests::task::{acquire, until, within};
use conformance_tests::{Failure, Outcome, ensure};
use zookeeper_client::{Acls, CreateMode};

use crate::world::{LONG, Plot, SOON, client};

/// Each waiter is a process of its own; one is this one, with a session beside that of the holder.
pub(crate) async fn nine_waiters_in_nine_processes_are_served_in_order() -> Outcome {
    let plot = Plot::new().await?;
    let program = Path::new(env!("CARGO_BIN_EXE_lock-taker"));
    let url = format!(
        "zk://127.0.0.1:{}/?root={}&ttl={}ms",
        plot.port,
        plot.root,
        LONG.as_millis()
    );
    let held = plot.lock().await?.acquire().await?;
    let mut takers = Vec::new();
    for _ in 0..2 {
        let mut four = Vec::new();
        for _ in 0..4 {
            four.push(Taker::start(program, &url, LONG).await?);
        }
        takers.push(four);
    }
    // In turn from one and the other, and one of this process in the middle.
    let mut waiting = 1;
    let mine = client(plot.builder().session(LONG)).await?.lock("jobs")?;
    let mut own = None;
    let mut order = Vec::new();
    for place in 0..4 {
        for (group, four) in takers.iter_mut().enumerate() {
            four[place].send("acquire jobs").await?;
            waiting += 1;
            plot.queued(waiting).await?;
            order.push((group, place));
        }
        if place == 1 {
            own = Some(acquire(&mine));
            waiting += 1;
            plot.queued(waiting).await?;
        }
    }
    let mut last = held.token().get();
    held.release().await?;
    for (served, (group, place)) in order.into_iter().enumerate() {
        if served == 4
            && let Some(own) = own.take()
        {
            let guard = within(SOON, own.soon()).await???;
            ensure(guard.token().get() > last, "served out of order")?;
            last = guard.token().get();
            guard.release().await?;
        }
        let taker = &mut takers[group][place];
        let event = taker.answer(SOON).await?;
        let token = event.and_then(|event| event.token);
        let token = token.ok_or_else(|| Failure::new("not granted"))?;
        ensure(
            token > last,
            format!("{token} after {last}: served out of order"),
        )?;
        last = token;
        taker.run("release").await?;
    }
    plot.queued(0).await
}

/// Numbers of other programs near the end of 32 bits, and below zero: who was made first is first.
pub(crate) async fn order_of_creation_counts_after_the_last_number() -> Outcome {
    let plot = Plot::new().await?;
    let lock = plot.lock().await?;
    lock.acquire().await?.release().await?;
    let made = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    let foreign = ["2147483647", "-2147483648", "2147483646"];
    for number in foreign {
        let path = format!(
            "{}/_c_00000000-0000-4000-8000-000000000000-lock-{number}",
            plot.dir()
        );
        plot.bare.create(&path, b"", &made).await?;
    }
    ensure(lock.try_acquire().await?.is_none(), "a try got in")?;
    let mut waiter = acquire(&lock);
    plot.queued(4).await?;
    let other = plot.lock().await?;
    let mut after = acquire(&other);
    plot.queued(5).await?;
    let state = other
        .inspect()
        .await?
        .ok_or_else(|| Failure::new("there is no holder"))?;
    let mut holders = state.holder_ids();
    let first = holders.any(|holder| holder.contains("lock-2147483647"));
    ensure(first, format!("{state:?}"))?;
    for number in foreign {
        waiter
            .waits_for(std::time::Duration::from_millis(150))
            .await?;
        let path = format!(
            "{}/_c_00000000-0000-4000-8000-000000000000-lock-{number}",
            plot.dir()
        );
        plot.bare.delete(&path, None).await?;
    }
    let guard = within(SOON, waiter.soon()).await???;
    after
        .waits_for(std::time::Duration::from_millis(150))
        .await?;
    guard.release().await?;
    within(SOON, after.soon()).await???.release().await?;
    plot.queued(0).await
}

/// The server removes the empty queue, and its numbers begin again: tokens do not.
pub(crate) async fn empty_queue_is_deleted_and_tokens_still_grow() -> Outcome {
    let plot = Plot::new().await?;
    let lock = plot.lock().await?;
    let mut last = None;
    for _ in 0..2 {
        for _ in 0..3 {
            let guard = lock.acquire().await?;
            ensure(last < Some(guard.token()), "the token did not grow")?;
            last = Some(guard.token());
            guard.release().await?;
        }
        until("the empty queue is removed", async || {
            Ok(plot.bare.check_stat(&plot.dir()).await?.is_none())
        })
        .await?;
    }
    let guard = lock.acquire().await?;
    ensure(last < Some(guard.token()), "the token did not grow")?;
    let queue = plot.queue().await?;
    let first = queue.iter().any(|node| node.ends_with("-lock-0000000000"));
    ensure(first, format!("{queue:?}"))?;
    guard.release().await?;
    Ok(())
}
