//! Sections: what is read with a grant, and written with a release, while replies are lost and callers go.

use std::path::Path;
use std::time::Duration;

use conformance_tests::proxy::{Direction, Flow};
use conformance_tests::section_history::SectionHistory;
use conformance_tests::servers::EtcdCluster;
use conformance_tests::task::{poll_times, soon, spawn, until, within};
use conformance_tests::{Failure, Outcome, TestSuite, ensure};
use etcd_client::{Client, Compare, CompareOp, GetResponse, PutOptions, Txn, TxnOp};
use lockkit_core::memory::MemoryStore;
use lockkit_core::{Error, LockClient, Outcome as Effect};
use lockkit_etcd::{Entered, FencedError, Names, Section};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::world::{LONG, SOON, TTL, behind, builder, client, client_of, keys, proxy, store};

const NAME: &str = "cart:7";
const COUNTER: &str = "stock/counter";

pub(crate) fn add(suite: TestSuite) -> TestSuite {
    suite
        .test(section_is_two_requests)
        .test(section_that_waited_reads_the_last_commit)
        .test(sections_follow_each_other)
        .test(section_reads_keys_and_prefixes)
        .test(section_whose_hold_has_ended_writes_nothing)
        .test(section_whose_lease_ended_on_the_way_writes_nothing)
        .test(commit_without_a_reply_writes_once)
        .test(refused_commit_writes_nothing_and_frees_the_lock)
        .test(refused_read_frees_the_lock)
        .test(section_dropped_at_any_moment_leaves_nothing)
        .test(section_refuses_other_modes_and_stores)
        .test(owner_reads_again)
}

fn section(client: &LockClient) -> Outcome<Section> {
    Ok(Section::of(&client.lock(NAME)?).read(COUNTER))
}

fn number(get: Option<&GetResponse>) -> Outcome<i64> {
    match get.and_then(|get| get.kvs().first()) {
        Some(kv) => Ok(kv.value_str()?.parse()?),
        None => Ok(0),
    }
}

fn put(value: i64) -> Txn {
    Txn::new().and_then([TxnOp::put(COUNTER, value.to_string(), None)])
}

/// The value of the counter, and how often it was written.
async fn counter(asker: &mut Client) -> Outcome<(i64, i64)> {
    let found = asker.get(COUNTER, None).await?;
    let writes = found.kvs().first().map_or(0, |kv| kv.version());
    Ok((number(Some(&found))?, writes))
}

/// How many requests to read and write keys the server has answered.
async fn requests(cluster: &EtcdCluster) -> Outcome<u64> {
    let mut server = TcpStream::connect(("127.0.0.1", cluster.ports()[0])).await?;
    server.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
    let mut metrics = String::new();
    server.read_to_string(&mut metrics).await?;
    let keys = |line: &&str| {
        line.starts_with("grpc_server_handled_total") && line.contains("etcdserverpb.KV\"")
    };
    let mut sum = 0;
    for line in metrics.lines().filter(keys) {
        let count = line.rsplit(' ').next().unwrap_or_default();
        sum += count.parse::<u64>()?;
    }
    Ok(sum)
}

async fn section_is_two_requests() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let section = section(&client(&cluster, LONG).await?)?;
    section.enter().await?.0.commit(put(0)).await?;
    for turn in 1..10 {
        let before = requests(&cluster).await?;
        let (entered, found) = section.enter().await?;
        ensure(number(found.first())? == turn - 1, format!("{found:?}"))?;
        let between = requests(&cluster).await?;
        entered.commit(put(turn)).await?;
        let counts = (between - before, requests(&cluster).await? - between);
        ensure(counts == (1, 1), format!("{counts:?} requests"))?;
    }
    Ok(())
}

async fn section_that_waited_reads_the_last_commit() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let holder = section(&client(&cluster, LONG).await?)?;
    let client = client(&cluster, LONG).await?;
    let waiter = section(&client)?;
    let lock = client.lock(NAME)?;
    let mut fewest = u64::MAX;
    for _ in 0..5 {
        let (entered, found) = holder.enter().await?;
        let next = number(found.first())? + 1;
        let waiting = spawn({
            let waiter = waiter.clone();
            async move { waiter.enter().await }
        });
        until("it waits", async || {
            let state = lock.inspect().await?;
            Ok(state.and_then(|state| state.waiters) == Some(1))
        })
        .await?;
        ensure(waiter.try_enter().await?.is_none(), "it is held")?;
        // Its watch opens, and it lists the keys once more.
        sleep(Duration::from_millis(150)).await;
        let before = requests(&cluster).await?;
        entered.commit(put(next)).await?;
        let (entered, found) = within(SOON, waiting.soon()).await???;
        let seen = number(found.first())?;
        ensure(seen == next, format!("{seen} instead of {next}"))?;
        entered.commit(put(next)).await?;
        fewest = fewest.min(requests(&cluster).await? - before);
    }
    // The first commit, a read and the second one.
    ensure(fewest == 3, format!("{fewest} requests"))
}

/// In processes that are killed and stopped, also while the leader stands still.
async fn sections_follow_each_other() -> Outcome {
    let cluster = EtcdCluster::of(3).await?;
    let proxy = proxy(&cluster).await?;
    let program = Path::new(env!("CARGO_BIN_EXE_lock-taker"));
    let hosts = [cluster.endpoints(), proxy.addr().to_string()];
    let urls = hosts.map(|hosts| format!("etcd://{hosts}"));
    let history = SectionHistory::new(program, urls, TTL).behind(proxy);
    let stop = async {
        sleep(TTL / 2).await;
        let leader = cluster.process(cluster.leader().await?);
        leader.stop()?;
        sleep(TTL / 4).await;
        leader.resume()
    };
    let (checked, stopped) = tokio::join!(history.check(), stop);
    stopped.and(checked)
}

async fn leaves_nothing(cluster: &EtcdCluster, clients: &[LockClient]) -> Outcome {
    for client in clients {
        soon(client.drain()).await?;
    }
    let mut asker = cluster.client().await?;
    until("no key is left", async || {
        Ok(keys(&mut asker).await?.is_empty())
    })
    .await
}

/// A prefix of the client's and raw names change the key of the lock alone.
async fn section_reads_keys_and_prefixes() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let store = builder(&cluster.ports()).names(Names::Raw);
    let client = LockClient::builder(store.connect().await?);
    let client = client.prefix("app/").build()?;
    let section = Section::of(&client.lock(NAME)?);
    let section = section.read_prefix("stock/").read("other");
    let (entered, found) = section.enter().await?;
    let counts: Vec<_> = found.iter().map(GetResponse::count).collect();
    ensure(counts == [0, 0], format!("{counts:?}"))?;
    let work = ["stock/1", "stock/2", "other"].map(|key| TxnOp::put(key, "7", None));
    entered.commit(Txn::new().and_then(work)).await?;
    let (entered, found) = section.enter().await?;
    let counts: Vec<_> = found.iter().map(GetResponse::count).collect();
    ensure(counts == [2, 1], format!("{counts:?}"))?;
    // A condition of the work that does not hold is a result.
    let work = Txn::new()
        .when([Compare::value("other", CompareOp::Equal, "8")])
        .and_then([TxnOp::put("other", "9", None)]);
    let done = entered.commit(work).await?;
    ensure(!done.succeeded(), "the condition is false")?;
    let entered = section.try_enter().await?;
    let (entered, found) = entered.ok_or_else(|| Failure::new("it is held"))?;
    let other = number(found.get(1))?;
    ensure(other == 7, format!("{other}"))?;
    entered.commit(Txn::new()).await?;
    // A section that reads nothing.
    let (entered, found) = Section::of(&client.lock(NAME)?).enter().await?;
    ensure(found.is_empty(), format!("{found:?}"))?;
    let late = section.enter_timeout(Duration::from_millis(20)).await;
    ensure(
        matches!(late, Err(Error::Timeout { .. })),
        format!("{late:?}"),
    )?;
    entered.into_guard().release().await?;
    Ok(())
}

fn refused<T: std::fmt::Debug>(result: &Result<T, FencedError>) -> Outcome {
    ensure(
        matches!(result, Err(FencedError::Fenced)),
        format!("{result:?}"),
    )
}

async fn section_whose_hold_has_ended_writes_nothing() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let store = store(&cluster).await?;
    let section = section(&client_of(&store, LONG)?)?;
    // Its key was deleted, which no event has reported.
    let (entered, _) = section.enter().await?;
    let there = keys(&mut asker).await?;
    for key in &there {
        asker.delete(key.as_str(), None).await?;
    }
    refused(&entered.commit(put(1)).await)?;
    // Another client has the lock, in the same place.
    let (entered, _) = section.enter().await?;
    let there = keys(&mut asker).await?;
    let key = there.first().ok_or_else(|| Failure::new("no key"))?;
    asker.delete(key.as_str(), None).await?;
    asker.put(key.as_str(), "other", None).await?;
    refused(&entered.commit(put(1)).await)?;
    let (value, writes) = counter(&mut asker).await?;
    ensure((value, writes) == (0, 0), "a stale holder wrote")?;
    // Dropped, it writes nothing.
    drop(section.enter().await?);
    let (entered, _) = within(SOON, section.enter()).await??;
    drop(entered.commit(put(1)));
    let (entered, found) = within(SOON, section.enter()).await??;
    ensure(number(found.first())? == 0, "it was dropped, and wrote")?;
    let lease = crate::world::lease(&store)?;
    asker.lease_revoke(lease).await?;
    refused(&entered.commit(put(1)).await)?;
    let (value, _) = counter(&mut asker).await?;
    ensure(value == 0, "a stale holder wrote")
}

/// The commit is on its way when the lease ends.
async fn section_whose_lease_ended_on_the_way_writes_nothing() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let proxy = proxy(&cluster).await?;
    let paused = behind(&proxy, TTL).await?;
    let direct = section(&client(&cluster, TTL).await?)?;
    let (entered, _) = section(&paused)?.enter().await?;
    proxy.flow(Direction::Request, Flow::Hold);
    let committing = spawn(async move { entered.commit(put(1)).await });
    let (next, found) = within(SOON, direct.enter()).await??;
    ensure(number(found.first())? == 0, format!("{found:?}"))?;
    proxy.heal();
    let committed = committing.soon().await?;
    ensure(committed.is_err(), "a late commit was executed")?;
    soon(paused.drain()).await?;
    next.commit(put(7)).await?;
    let counted = counter(&mut asker).await?;
    ensure(counted == (7, 1), format!("{counted:?}"))?;
    // Nor does one that knows that its lease has ended.
    let (held, _) = within(SOON, section(&paused)?.enter()).await??;
    proxy.flow(Direction::Request, Flow::Hold);
    soon(held.lost()).await?;
    refused(&held.commit(put(1)).await)?;
    proxy.heal();
    let (_entered, found) = within(SOON, direct.enter()).await??;
    ensure(number(found.first())? == 7, format!("{found:?}"))
}

/// How a commit fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// It is executed, and then the connection is reset.
    Reset,
    /// It is executed, and nothing comes back.
    Silence,
    /// It finds no connection at first.
    Refused,
}

/// The reply to the commit is lost, or the servers cannot be reached at first.
async fn commit_without_a_reply_writes_once() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let reader = section(&client(&cluster, LONG).await?)?;
    for cut in [Cut::Reset, Cut::Silence, Cut::Refused] {
        let proxy = proxy(&cluster).await?;
        let client = behind(&proxy, LONG).await?;
        let (entered, _) = section(&client)?.enter().await?;
        let (_, before) = counter(&mut asker).await?;
        match cut {
            // The first bytes that come back need not be the reply: only the counter shows that it was executed.
            Cut::Reset | Cut::Silence => proxy.flow(Direction::Reply, Flow::Hold),
            Cut::Refused => {
                proxy.refuse(true);
                proxy.reset();
            }
        }
        let committing = spawn(async move { entered.commit(put(1)).await });
        if cut == Cut::Refused {
            sleep(Duration::from_millis(200)).await;
            proxy.refuse(false);
        } else {
            until("the commit is executed", async || {
                Ok(counter(&mut asker).await?.1 > before)
            })
            .await?;
        }
        if cut == Cut::Reset {
            proxy.reset();
            proxy.flow(Direction::Reply, Flow::Pass);
        }
        let result = within(SOON, committing.soon()).await??;
        let reported = match &result {
            Ok(_) => None,
            Err(FencedError::Backend(error)) => Some(error.outcome()),
            Err(other) => return Err(Failure::new(format!("{cut:?}: {other:?}"))),
        };
        let fits = match reported {
            None => cut == Cut::Refused,
            Some(outcome) => outcome == Effect::Indeterminate,
        };
        ensure(fits, format!("{cut:?}: {reported:?}"))?;
        proxy.flow(Direction::Reply, Flow::Pass);
        soon(client.drain()).await?;
        let (after, _) = within(SOON, reader.enter()).await??;
        let (_, written) = counter(&mut asker).await?;
        let written = written - before;
        let unsent = cut == Cut::Refused && reported.is_some() && written == 0;
        ensure(
            written == 1 || unsent,
            format!("{cut:?}: written {written} times"),
        )?;
        after.into_guard().release().await?;
    }
    Ok(())
}

async fn refused_commit_writes_nothing_and_frees_the_lock() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let client = client(&cluster, LONG).await?;
    let section = section(&client)?;
    let op = |key: String| TxnOp::put(key, "", None);
    let counter = || op(COUNTER.to_owned());
    let many = (0..200).map(|number| op(format!("many/{number}")));
    let ended = PutOptions::new().with_lease(17);
    for (work, text) in [
        (vec![counter(), counter()], "duplicate key"),
        (many.collect(), "too many operations"),
        (
            vec![counter(), TxnOp::put("leased", "", Some(ended))],
            "a lease of the transaction",
        ),
    ] {
        let (entered, _) = within(SOON, section.enter()).await??;
        let refused = entered.commit(Txn::new().and_then(work)).await;
        let Err(FencedError::Backend(error)) = refused else {
            return Err(Failure::new(format!("{refused:?}")));
        };
        ensure(error.outcome() == Effect::Rejected, format!("{error:?}"))?;
        let why = std::error::Error::source(&error).map(ToString::to_string);
        let why = why.unwrap_or_default();
        ensure(why.contains(text), why)?;
        soon(client.drain()).await?;
        let free = section.try_enter().await?;
        let (entered, found) = free.ok_or_else(|| Failure::new("it is held"))?;
        ensure(number(found.first())? == 0, "half of it was written")?;
        entered.into_guard().release().await?;
    }
    // The hold of two guards is not ended by one of them.
    let (entered, _) = section.enter().await?;
    let other = entered.reenter()?;
    let refused = entered.commit(put(1)).await;
    let rejected = |error: &FencedError| matches!(error, FencedError::Backend(error) if error.outcome() == Effect::Rejected);
    ensure(
        refused.as_ref().is_err_and(rejected),
        format!("{refused:?}"),
    )?;
    ensure(other.guard_count() == 1, "it has more guards")?;
    other.release().await?;
    let found = asker.get(COUNTER, None).await?;
    ensure(found.kvs().is_empty(), "it was written")
}

async fn refused_read_frees_the_lock() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let client = client(&cluster, LONG).await?;
    let lock = client.lock(NAME)?.with_owner(&client.owner())?;
    let mut section = Section::of(&lock);
    for number in 0..200 {
        section = section.read(format!("many/{number}"));
    }
    let refused = async || {
        let refused = within(SOON, section.enter()).await?.err();
        let rejected = |error: &Error| matches!(error, Error::Backend(error) if error.outcome() == Effect::Rejected);
        ensure(
            refused.as_ref().is_some_and(rejected),
            format!("{refused:?}"),
        )
    };
    refused().await?;
    let outer = lock.try_acquire().await?;
    let outer = outer.ok_or_else(|| Failure::new("it is held"))?;
    // Under the hold of its owner.
    refused().await?;
    ensure(outer.guard_count() == 1, "the section kept its guard")?;
    outer.release().await?;
    leaves_nothing(&cluster, &[client]).await
}

async fn section_dropped_at_any_moment_leaves_nothing() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let client = client(&cluster, LONG).await?;
    let other = section(&crate::world::client(&cluster, LONG).await?)?;
    let dropped = section(&client)?;
    let free = async || -> Outcome<(Entered, Vec<GetResponse>)> {
        soon(client.drain()).await?;
        let free = other.try_enter().await?;
        free.ok_or_else(|| Failure::new("it is held"))
    };
    for polls in 0..15 {
        for waits in [false, true] {
            let held = match waits {
                true => Some(other.enter().await?.0),
                false => None,
            };
            let entering = spawn({
                let dropped = dropped.clone();
                async move { poll_times(dropped.enter(), polls).await }
            });
            if let Some(held) = held {
                sleep(Duration::from_micros(500)).await;
                held.commit(Txn::new()).await?;
            }
            drop(entering.soon().await?);
            free().await?.0.commit(Txn::new()).await?;
        }
        let (_, before) = counter(&mut asker).await?;
        let (entered, _) = dropped.enter().await?;
        let done = poll_times(entered.commit(put(1)), polls).await;
        let (entered, _) = free().await?;
        let (_, after) = counter(&mut asker).await?;
        let fits = match done {
            Some(_) => after == before + 1,
            None => after <= before + 1,
        };
        ensure(fits, format!("written {} times", after - before))?;
        entered.commit(Txn::new()).await?;
    }
    for _ in 0..50 {
        let span = Duration::from_micros(fastrand::u64(0..5_000));
        drop(timeout(span, dropped.enter()).await);
    }
    free().await?.0.commit(Txn::new()).await?;
    leaves_nothing(&cluster, &[client]).await
}

async fn section_refuses_other_modes_and_stores() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let client = client(&cluster, LONG).await?;
    let kept = client.lock(NAME)?.with_min_hold(Duration::from_secs(1));
    for lock in [kept, client.semaphore("permits", 2)?] {
        let refused = Section::of(&lock).enter().await.err();
        ensure(
            matches!(refused, Some(Error::InvalidOption { .. })),
            format!("{refused:?}"),
        )?;
    }
    let lock = LockClient::new(MemoryStore::new())?.lock(NAME)?;
    let refused = Section::of(&lock).try_enter().await.err();
    ensure(
        matches!(refused, Some(Error::Unsupported { .. })),
        format!("{refused:?}"),
    )
}

async fn owner_reads_again() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let client = client(&cluster, LONG).await?;
    let lock = client.lock(NAME)?.with_owner(&client.owner())?;
    let section = Section::of(&lock).read(COUNTER);
    let (outer, _) = section.enter().await?;
    asker.put(COUNTER, "5", None).await?;
    let (inner, found) = section.enter().await?;
    ensure(number(found.first())? == 5, format!("{found:?}"))?;
    ensure(inner.token() == outer.token(), "it is another hold")?;
    drop(inner);
    outer.commit(put(6)).await?;
    let (again, found) = section.enter().await?;
    ensure(number(found.first())? == 6, format!("{found:?}"))?;
    for key in keys(&mut asker).await? {
        asker.delete(key, None).await?;
    }
    // A hold that has ended reads nothing.
    let lost = section.enter().await.err();
    ensure(
        matches!(lost, Some(Error::Lost { .. })),
        format!("{lost:?}"),
    )?;
    drop(again);
    Ok(())
}
