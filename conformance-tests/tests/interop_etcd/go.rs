//! Go's `concurrency.Mutex` and this library, on the same names of the same server.

use std::time::Duration;

use conformance_tests::figures::OPTIMISED;
use conformance_tests::foreign::{GoEtcd, Peer};
use conformance_tests::servers::EtcdCluster;
use conformance_tests::task::{acquire, spawn, until, within};
use conformance_tests::{Failure, Outcome, TestSuite, ensure};
use lockkit_core::{Error, LockClient};
use tokio::time::Instant;

use crate::world::{SOON, client, one_queue, waiting};

/// Go is optional.
pub(crate) fn tests(no_server: Option<String>) -> TestSuite {
    let slow = (!OPTIMISED).then(|| "it measures an optimized build: add `--release`".to_owned());
    TestSuite::new("go-etcd", no_server)
        .needing(GoEtcd::missing())
        .test(each_excludes_the_other)
        .test(each_wakes_the_other)
        .test(one_queue_for_both)
        .test(client_that_reuses_its_key_counts_as_present)
        .test(counts_as_a_writer_beside_our_readers)
        .test(elect_one_leader_together)
        .needing(slow)
        .test(hands_over_ten_times_as_often)
}

async fn world() -> Outcome<(EtcdCluster, Peer, LockClient)> {
    let cluster = EtcdCluster::of(1).await?;
    let go = GoEtcd::start(&cluster).await?;
    let client = client(&cluster).await?;
    Ok((cluster, go, client))
}

async fn each_excludes_the_other() -> Outcome {
    let (_cluster, mut go, client) = world().await?;
    let lock = client.lock("jobs/a")?;
    let theirs = go.token("t lock jobs/a 0").await?;
    ensure(lock.try_acquire().await?.is_none(), "both hold")?;
    go.expect("t unlock jobs/a", "done").await?;
    let guard = lock.try_acquire().await?;
    let guard = guard.ok_or_else(|| Failure::new("released, but not for us"))?;
    ensure(guard.token().get() > theirs, "the token did not grow")?;
    go.expect("t lock jobs/a 0", "missed").await?;
    go.expect("u lock jobs/a 300", "missed").await?;
    guard.check()?;
    let ours = guard.token().get();
    guard.release().await?;
    let theirs = go.token("t lock jobs/a 0").await?;
    ensure(theirs > ours, "the token did not grow")?;
    go.expect("t unlock jobs/a", "done").await
}

/// With `concurrency.Election`: candidates of both queue up, and each sees the other's leader.
async fn elect_one_leader_together() -> Outcome {
    let (_cluster, mut go, client) = world().await?;
    let election = client.election("shard/7")?;
    let term = go.token("t campaign shard/7 10.0.0.1:7001").await?;
    let leader = election.leader().await?;
    let leader = leader.ok_or_else(|| Failure::new("nobody leads"))?;
    ensure(
        leader.value.as_deref() == Some("10.0.0.1:7001"),
        format!("{leader:?}"),
    )?;
    ensure(
        leader.term.is_some_and(|seen| seen.get() == term),
        format!("{leader:?} in term {term}"),
    )?;
    let candidate = election.clone();
    let mut campaign = spawn(async move { candidate.campaign("10.0.0.2:7001").await });
    campaign.waits_for(Duration::from_millis(100)).await?;
    go.expect("t resign shard/7", "done").await?;
    let ours = campaign.soon().await??;
    ensure(ours.token().get() > term, "the term did not grow")?;
    go.expect("u leader shard/7", "10.0.0.2:7001").await?;
    go.send("t campaign shard/7 10.0.0.3:7001").await?;
    waiting(&client.lock("shard/7")?, 1).await?;
    ours.release().await?;
    go.token_of("t").await?;
    let leader = election.leader().await?.and_then(|leader| leader.value);
    ensure(
        leader.as_deref() == Some("10.0.0.3:7001"),
        format!("{leader:?}"),
    )
}

async fn each_wakes_the_other() -> Outcome {
    let (_cluster, mut go, client) = world().await?;
    let lock = client.lock("jobs")?;
    for _ in 0..5 {
        go.token("t lock jobs 0").await?;
        let mut waiter = acquire(&lock);
        waiter.waits_for(Duration::from_millis(50)).await?;
        go.expect("t unlock jobs", "done").await?;
        let guard = within(Duration::from_secs(2), waiter.soon()).await???;
        go.send("t lock jobs 20000").await?;
        waiting(&lock, 1).await?;
        guard.release().await?;
        go.token_of("t").await?;
        go.expect("t unlock jobs", "done").await?;
    }
    Ok(())
}

async fn one_queue_for_both() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    one_queue(&cluster, GoEtcd::start(&cluster).await?).await
}

/// Their session has one key for a name. It is deleted and created again while we wait.
async fn client_that_reuses_its_key_counts_as_present() -> Outcome {
    let (_cluster, mut go, client) = world().await?;
    let lock = client.lock("jobs")?;
    let turns = spawn(async move {
        for _ in 0..20 {
            lock.acquire().await?.release().await?;
        }
        Ok::<_, Error>(())
    });
    for _ in 0..20 {
        go.token("t lock jobs 20000").await?;
        go.expect("t unlock jobs", "done").await?;
    }
    turns.soon().await??;
    Ok(())
}

/// Their mutex waits for all our readers and permits, and these wait for it.
async fn counts_as_a_writer_beside_our_readers() -> Outcome {
    let (cluster, mut go, client) = world().await?;
    let (ours, permit) = (client.rw_lock("jobs")?, client.semaphore("jobs", 4)?);
    let other = self::client(&cluster).await?.rw_lock("jobs")?;
    go.token("t lock jobs 0").await?;
    for lock in [&ours.read(), &ours.write(), &permit] {
        ensure(lock.try_acquire().await?.is_none(), "both hold")?;
    }
    let (one, another) = (acquire(&ours.read()), acquire(&permit));
    waiting(&permit, 2).await?;
    go.expect("t unlock jobs", "done").await?;
    let (one, another) = (
        within(SOON, one.soon()).await???,
        within(SOON, another.soon()).await???,
    );
    go.expect("t lock jobs 0", "missed").await?;
    go.send("t lock jobs 20000").await?;
    until("they wait", async || {
        let state = permit.inspect().await?;
        Ok(state.is_some_and(|state| state.holders.len() == 2 && state.waiters == Some(1)))
    })
    .await?;
    ensure(
        other.read().try_acquire().await?.is_none(),
        "it passed a waiting writer",
    )?;
    let mut late = acquire(&other.read());
    late.waits_for(Duration::from_millis(200)).await?;
    one.release().await?;
    late.waits_for(Duration::from_millis(200)).await?;
    another.release().await?;
    go.token_of("t").await?;
    late.waits_for(Duration::from_millis(200)).await?;
    go.expect("t unlock jobs", "done").await?;
    within(SOON, late.soon()).await???.release().await?;
    Ok(())
}

async fn hands_over_ten_times_as_often() -> Outcome {
    const CROWD: usize = 8;
    const SPAN: Duration = Duration::from_secs(3);
    let (cluster, mut go, _client) = world().await?;
    let mut tasks = Vec::new();
    let mut locks = Vec::new();
    for _ in 0..CROWD {
        locks.push(client(&cluster).await?.lock("ours")?);
    }
    let end = Instant::now() + SPAN;
    for lock in locks {
        tasks.push(spawn(async move {
            let mut turns = 0_u32;
            while Instant::now() < end {
                lock.acquire().await?.release().await?;
                turns += 1;
            }
            Ok::<_, Error>(turns)
        }));
    }
    let mut ours = 0;
    for task in tasks {
        ours += task.soon().await??;
    }
    let answer = go.ask("t crowd theirs 8 3000").await?;
    let theirs = answer.strip_prefix("done ").and_then(|it| it.parse().ok());
    let theirs: u32 = theirs.ok_or_else(|| Failure::new(answer))?;
    let ratio = f64::from(ours) / f64::from(theirs.max(1));
    println!("{CROWD}, loopback: {ours} hand-offs in {SPAN:?}, Go's mutex {theirs}: {ratio:.1}");
    // Theirs waits for a timer of the server.
    ensure(ratio >= 8.0, format!("{ratio:.1} times Go's mutex"))
}
