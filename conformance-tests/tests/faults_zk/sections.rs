//! Sections: what is written with a release, while replies are lost and callers go.

use std::path::Path;
use std::time::Duration;

use conformance_tests::proxy::{Direction, Dropped, Flow, Proxy};
use conformance_tests::section_history::SectionHistory;
use conformance_tests::task::{poll_times, soon, spawn, within};
use conformance_tests::{Failure, Outcome, TestSuite, ensure};
use lockkit_core::memory::MemoryStore;
use lockkit_core::{Error, LockClient, Outcome as Effect};
use lockkit_zk::{Entered, FencedError, Section, Write, Written};
use tokio::time::{sleep, timeout};
use zookeeper_client::{Acls, CreateMode};

use crate::nodes::expire;
use crate::wire::{Fault, Wire};
use crate::world::{LONG, Plot, SOON, TTL, client};

/// The number of a transaction on the wire.
const MULTI: i32 = 14;

pub(crate) fn add(suite: TestSuite) -> TestSuite {
    suite
        .test(commit_is_one_request)
        .test(section_that_waited_reads_the_last_commit)
        .test(sections_follow_each_other)
        .test(section_whose_hold_has_ended_writes_nothing)
        .test(section_whose_session_ended_on_the_way_writes_nothing)
        .test(commit_without_a_reply_writes_once)
        .test(commit_returns_its_true_outcome_whichever_request_fails)
        .test(refused_commit_writes_nothing_and_frees_the_lock)
        .test(section_dropped_at_any_moment_leaves_nothing)
        .test(section_refuses_other_modes_and_stores)
}

/// A part of the tree with a node that sections write.
struct Shop {
    plot: Plot,
    stock: String,
}

impl Shop {
    async fn new() -> Outcome<Self> {
        let plot = Plot::new().await?;
        let stock = format!("{}-stock", plot.root);
        let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
        plot.bare.create(&stock, b"0", &persistent).await?;
        Ok(Self { plot, stock })
    }

    async fn section(&self) -> Outcome<(LockClient, Section)> {
        let client = client(self.plot.builder().session(LONG)).await?;
        let section = Section::of(&client.lock("jobs")?);
        Ok((client, section))
    }

    fn set(&self, value: i64) -> [Write; 1] {
        [Write::set(self.stock.as_str(), value.to_string())]
    }

    /// The value, and how often it was written.
    async fn read(&self) -> Outcome<(i64, i32)> {
        self.plot.bare.sync("/").await?;
        let (data, stat) = self.plot.bare.get_data(&self.stock).await?;
        Ok((String::from_utf8(data)?.parse()?, stat.version))
    }
}

async fn commit_is_one_request() -> Outcome {
    let shop = Shop::new().await?;
    let proxy = Proxy::start(([127, 0, 0, 1], shop.plot.port).into()).await?;
    let behind = shop.plot.builder_at(proxy.addr().port()).session(LONG);
    let section = Section::of(&client(behind).await?.lock("jobs")?);
    let mut trips = Vec::new();
    for turn in 1..20 {
        let entered = section.enter().await?;
        let before = proxy.counts().round_trips;
        let written = entered.commit(&shop.set(turn)).await?;
        trips.push(proxy.counts().round_trips - before);
        let version = i32::try_from(turn)?;
        ensure(
            written == [Written::Set { version }],
            format!("{written:?}"),
        )?;
        shop.plot.queued(0).await?;
    }
    // Pings of the session are counted as well.
    trips.sort_unstable();
    ensure(trips[trips.len() / 2] == 1, format!("{trips:?}"))
}

async fn section_that_waited_reads_the_last_commit() -> Outcome {
    let shop = Shop::new().await?;
    let (_, holder) = shop.section().await?;
    let (_, waiter) = shop.section().await?;
    for turn in 1..6 {
        let entered = holder.enter().await?;
        let waiting = spawn({
            let waiter = waiter.clone();
            async move { waiter.enter().await }
        });
        shop.plot.queued(2).await?;
        ensure(waiter.try_enter().await?.is_none(), "it is held")?;
        entered.commit(&shop.set(turn)).await?;
        let entered = within(SOON, waiting.soon()).await???;
        let (seen, _) = shop.read().await?;
        ensure(seen == turn, format!("{seen} instead of {turn}"))?;
        entered.commit(&[]).await?;
    }
    Ok(())
}

/// In processes that are killed and stopped.
async fn sections_follow_each_other() -> Outcome {
    let plot = Plot::new().await?;
    let proxy = Proxy::start(([127, 0, 0, 1], plot.port).into()).await?;
    let program = Path::new(env!("CARGO_BIN_EXE_lock-taker"));
    let urls = [plot.port, proxy.addr().port()]
        .map(|port| format!("zk://127.0.0.1:{port}?root={}&ttl=1s", plot.root));
    let history = SectionHistory::new(program, urls, Duration::from_secs(1));
    history.behind(proxy).check().await
}

fn refused<T: std::fmt::Debug>(result: &Result<T, FencedError>) -> Outcome {
    ensure(
        matches!(result, Err(FencedError::Fenced)),
        format!("{result:?}"),
    )
}

async fn section_whose_hold_has_ended_writes_nothing() -> Outcome {
    let shop = Shop::new().await?;
    let (client, section) = shop.section().await?;
    let (_, other) = shop.section().await?;
    // Its node was deleted, and another client has the lock.
    let entered = section.enter().await?;
    shop.plot.delete(0).await?;
    let next = within(SOON, other.enter()).await??;
    refused(&entered.commit(&shop.set(1)).await)?;
    next.check()?;
    next.commit(&[]).await?;
    // Dropped, it writes nothing.
    drop(section.enter().await?);
    drop(section.enter().await?.commit(&shop.set(1)));
    soon(client.drain()).await?;
    let client = crate::world::client(shop.plot.builder()).await?;
    let section = Section::of(&client.lock("jobs")?);
    let entered = section.enter().await?;
    expire(&client).await?;
    refused(&entered.commit(&shop.set(1)).await)?;
    let read = shop.read().await?;
    ensure(read == (0, 0), format!("{read:?}"))?;
    within(SOON, section.enter()).await??.commit(&[]).await?;
    Ok(())
}

/// The commit is on its way when the session ends.
async fn section_whose_session_ended_on_the_way_writes_nothing() -> Outcome {
    let shop = Shop::new().await?;
    let proxy = Proxy::start(([127, 0, 0, 1], shop.plot.port).into()).await?;
    let paused = client(shop.plot.builder_at(proxy.addr().port())).await?;
    let (_, other) = shop.section().await?;
    let entered = Section::of(&paused.lock("jobs")?).enter().await?;
    let waiting = spawn(async move { other.enter().await });
    shop.plot.queued(2).await?;
    for direction in [Direction::Request, Direction::Reply] {
        proxy.flow(direction, Flow::Hold);
    }
    let writes = shop.set(1);
    let committing = spawn(async move { entered.commit(&writes).await });
    let next = within(TTL * 3 + SOON, waiting.soon()).await???;
    proxy.heal();
    let committed = committing.soon().await?;
    ensure(committed.is_err(), "a late commit was carried out")?;
    soon(paused.drain()).await?;
    next.commit(&shop.set(7)).await?;
    let read = shop.read().await?;
    ensure(read == (7, 1), format!("{read:?}"))
}

async fn commit_without_a_reply_writes_once() -> Outcome {
    let shop = Shop::new().await?;
    let proxy = Proxy::start(([127, 0, 0, 1], shop.plot.port).into()).await?;
    let client = client(shop.plot.builder_at(proxy.addr().port())).await?;
    let section = Section::of(&client.lock("jobs")?);
    for (turn, how) in [(1, Dropped::Reset), (2, Dropped::Silence)] {
        let entered = section.enter().await?;
        proxy.drop_reply(how, |bytes| crate::network::asks(bytes, MULTI));
        let committed = within(SOON, entered.commit(&shop.set(1))).await?;
        let unknown = matches!(&committed, Err(FencedError::Backend(error)) if error.outcome() == Effect::Indeterminate);
        ensure(unknown, format!("{how:?}: {committed:?}"))?;
        soon(client.drain()).await?;
        let (_, writes) = shop.read().await?;
        ensure(writes == turn, format!("{how:?}: {writes} writes"))?;
    }
    let dropped = proxy.counts().dropped_replies;
    ensure(dropped == 2, format!("{dropped} replies were lost"))
}

/// What was reported of a commit: whether it was carried out, if that is known.
fn told<T: std::fmt::Debug>(result: &Result<T, FencedError>) -> Option<bool> {
    match result {
        Ok(_) => Some(true),
        Err(FencedError::Backend(error)) if error.outcome() == Effect::Indeterminate => None,
        Err(_) => Some(false),
    }
}

async fn commit_returns_its_true_outcome_whichever_request_fails() -> Outcome {
    let shop = Shop::new().await?;
    let wire = Wire::start(shop.plot.port).await?;
    let behind = shop.plot.builder_at(wire.port).session(LONG);
    let client = client(behind).await?;
    let section = Section::of(&client.lock("jobs")?);
    let (_, other) = shop.section().await?;
    for fault in [
        Fault::Refused(-102), // no rights
        Fault::Refused(-127), // throttled
        Fault::Refused(-118), // session moved
        Fault::Refused(-1),
        Fault::Failed(-1),
        Fault::CutBefore,
        Fault::CutAfter,
    ] {
        let what = |what: &str| format!("{fault:?}: {what}");
        let entered = within(SOON, section.enter()).await??;
        let (_, before) = shop.read().await?;
        wire.fail(0, fault);
        let committed = within(SOON, entered.commit(&shop.set(1))).await?;
        ensure(wire.heal(), what("nothing failed"))?;
        soon(client.drain()).await?;
        let free = other.try_enter().await?;
        let free = free.ok_or_else(|| Failure::new(what("it is held")))?;
        let (_, after) = shop.read().await?;
        let fits = match told(&committed) {
            Some(done) => after - before == i32::from(done),
            None => after - before <= 1,
        };
        ensure(fits, what(&format!("{committed:?}, {before}, {after}")))?;
        free.commit(&[]).await?;
    }
    Ok(())
}

async fn refused_commit_writes_nothing_and_frees_the_lock() -> Outcome {
    let shop = Shop::new().await?;
    let (client, section) = shop.section().await?;
    let [set] = shop.set(1);
    let no_path = Write::set("no path", "");
    let missing = Write::delete(format!("{}/none", shop.stock));
    for (write, why) in [(missing, "write 1 was refused"), (no_path, "")] {
        let entered = section.enter().await?;
        let refused = entered.commit(&[set.clone(), write]).await;
        let fits = matches!(&refused, Err(FencedError::Backend(error))
            if error.outcome() == Effect::Rejected && format!("{error:?}").contains(why));
        ensure(fits, format!("{refused:?}"))?;
        soon(client.drain()).await?;
        shop.plot.queued(0).await?;
    }
    // The hold of two guards is not ended by one of them.
    let entered = section.enter().await?;
    let other = entered.reenter()?;
    let refused = entered.commit(&shop.set(1)).await;
    ensure(told(&refused) == Some(false), format!("{refused:?}"))?;
    ensure(other.guard_count() == 1, "it has more guards")?;
    other.release().await?;
    let read = shop.read().await?;
    ensure(read == (0, 0), format!("{read:?}"))
}

async fn section_dropped_at_any_moment_leaves_nothing() -> Outcome {
    let shop = Shop::new().await?;
    let (client, dropped) = shop.section().await?;
    let (_, other) = shop.section().await?;
    let free = async || -> Outcome<Entered> {
        soon(client.drain()).await?;
        let free = other.try_enter().await?;
        free.ok_or_else(|| Failure::new("it is held"))
    };
    for polls in 0..12 {
        for waits in [false, true] {
            let held = match waits {
                true => Some(other.enter().await?),
                false => None,
            };
            let entering = spawn({
                let dropped = dropped.clone();
                async move { poll_times(dropped.enter(), polls).await }
            });
            if let Some(held) = held {
                sleep(Duration::from_millis(1)).await;
                held.commit(&[]).await?;
            }
            drop(entering.soon().await?);
            free().await?.commit(&[]).await?;
        }
        let (_, before) = shop.read().await?;
        let entered = dropped.enter().await?;
        let done = poll_times(entered.commit(&shop.set(1)), polls).await;
        let entered = free().await?;
        let (_, after) = shop.read().await?;
        let fits = match done {
            Some(_) => after == before + 1,
            None => after <= before + 1,
        };
        ensure(fits, format!("written {} times", after - before))?;
        entered.commit(&[]).await?;
    }
    for _ in 0..30 {
        let span = Duration::from_micros(fastrand::u64(0..8_000));
        drop(timeout(span, dropped.enter()).await);
    }
    free().await?.commit(&[]).await?;
    shop.plot.queued(0).await
}

async fn section_refuses_other_modes_and_stores() -> Outcome {
    let shop = Shop::new().await?;
    let (client, _) = shop.section().await?;
    let kept = client.lock("jobs")?.with_min_hold(Duration::from_secs(1));
    for lock in [kept, client.semaphore("permits", 2)?] {
        let refused = Section::of(&lock).enter().await.err();
        ensure(
            matches!(refused, Some(Error::InvalidOption { .. })),
            format!("{refused:?}"),
        )?;
    }
    let lock = LockClient::new(MemoryStore::new())?.lock("jobs")?;
    let refused = Section::of(&lock).enter_timeout(SOON).await.err();
    ensure(
        matches!(refused, Some(Error::Unsupported { .. })),
        format!("{refused:?}"),
    )
}
