//! A Redis Cluster all connections to which are reset, or whose nodes say for a while that the cluster is down.

use std::time::Duration;

use conformance_tests::loss::loss_of;
use conformance_tests::proxy::{Fate, Proxy};
use conformance_tests::servers::{RedisCluster, partner};
use conformance_tests::task::{acquire, hand_over, until, within};
use conformance_tests::{Failure, Outcome, TestSuite, ensure};
use lockkit_core::{Error, Guard, LockClient, LossReason, Outcome as Effect};
use tokio::time::{Instant, sleep};

use crate::cluster::{NAME, SOON, TTL, WAYS, client, names_of_all};
use crate::redlock_faults::Fault;
use crate::world::{LONG, Turns, longest_of_most};

pub(crate) fn add(suite: TestSuite) -> TestSuite {
    suite
        .test(reset_of_all_connections_loses_neither_holds_nor_waiters)
        .test(cluster_that_is_down_ends_holds_at_their_deadlines_only)
        .test(node_that_says_that_the_cluster_is_down_costs_the_others_nothing)
}

const DOWN: Fault = Fault::Refused("-CLUSTERDOWN The cluster is down\r\n");

/// A lock of each master, in a client for each way of waiting.
async fn guards_of_all(
    cluster: &RedisCluster,
    names: &[(usize, String)],
    ttl: Duration,
) -> Outcome<Vec<(usize, Guard)>> {
    let mut guards = Vec::new();
    for way in WAYS {
        let client = client(cluster, way, ttl).await?;
        for (master, name) in names {
            let lock = client.lock(format!("{way}/{ttl:?}/{{{name}}}"))?;
            guards.push((*master, lock.acquire().await?));
        }
    }
    Ok(guards)
}

async fn reset_of_all_connections_loses_neither_holds_nor_waiters() -> Outcome {
    let cluster = RedisCluster::forgetful().await?;
    let ways = cluster.behind_proxies().await?;
    let connections = || ways.iter().map(|way| way.counts().connections).sum::<u64>();
    let names = names_of_all(&cluster).await?;
    let kept = guards_of_all(&cluster, &names, TTL).await?;
    let holder = client(&cluster, "fifo", LONG).await?;
    let held = holder.lock(NAME)?.acquire().await?;
    let mut waiter = acquire(&client(&cluster, "fifo", LONG).await?.lock(NAME)?);
    let mut turns = Vec::new();
    for (_, name) in &names {
        let mut locks = Vec::new();
        for way in WAYS {
            locks.push(client(&cluster, way, LONG).await?.lock(name.as_str())?);
        }
        turns.push(Turns::begin(locks));
    }
    let (began, before, mut resets) = (Instant::now(), connections(), 0);
    // All of them are renewed after a reset.
    while began.elapsed() < TTL * 2 {
        ways.iter().for_each(Proxy::reset);
        resets += 1;
        // A connection that ends within a second of its beginning counts as failed, and a release tells of it.
        sleep(TTL / 2).await;
        for turns in &turns {
            turns.another().await?;
        }
    }
    for turns in turns {
        turns.end().await?;
    }
    let made = connections() - before;
    println!("{resets} resets, {made} connections were made anew");
    ensure(made >= resets * 9, format!("{made} new connections"))?;
    for (_, guard) in kept {
        guard.check()?;
        guard.release().await?;
    }
    waiter.waits_for(Duration::from_millis(10)).await?;
    let next = within(SOON, hand_over(held, waiter)).await??;
    Ok(next.release().await?)
}

/// Fails if a hold ends before or long after the deadline that it has now, or passes its check afterwards.
async fn ends_at_its_deadline(guard: Guard) -> Outcome {
    let (now, left) = (Instant::now(), guard.remaining());
    let (reason, lost, guard) = within(left + SOON, loss_of(guard).soon()).await??;
    let after = lost - now;
    ensure(
        after >= left,
        format!("{left:?} left, lost {after:?} later"),
    )?;
    ensure(reason == LossReason::Expired, format!("lost: {reason}"))?;
    ensure(guard.check().is_err(), "a lost guard passes its check")
}

/// How often a node has refused a request because of the cluster.
async fn refusals(cluster: &RedisCluster, node: usize) -> Outcome<u64> {
    let stats = cluster.nodes()[node].ask(&["INFO", "errorstats"]).await?;
    let stats = stats.concat();
    let count = stats.split_once("errorstat_CLUSTERDOWN:count=");
    let count = count.and_then(|(_, rest)| rest.lines().next());
    Ok(count.map_or(Ok(0), str::parse)?)
}

/// A try and an acquire with a limit fail in their time, and may be repeated.
async fn is_unavailable(client: &LockClient, name: &str) -> Outcome {
    const LIMIT: Duration = Duration::from_secs(1);
    let lock = client.lock(format!("tried/{{{name}}}"))?;
    let tried = within(SOON, lock.try_acquire()).await?;
    let Err(Error::Backend(error)) = tried else {
        return Err(Failure::new(format!(
            "{tried:?} from a cluster that is down"
        )));
    };
    ensure(error.outcome() == Effect::Unavailable, error.to_string())?;
    let began = Instant::now();
    let waited = within(LIMIT + SOON, lock.acquire_timeout(LIMIT)).await?;
    ensure(waited.is_err(), "granted by a cluster that is down")?;
    let took = began.elapsed();
    ensure(took >= LIMIT, format!("given up after {took:?}"))
}

/// Another master and its replica are frozen, so that no node serves any slot.
async fn cluster_that_is_down_ends_holds_at_their_deadlines_only() -> Outcome {
    let cluster = RedisCluster::forgetful().await?;
    let names = names_of_all(&cluster).await?;
    let (frozen, names) = (names[2].0, &names[..2]);
    let long = guards_of_all(&cluster, names, LONG).await?;
    let short = guards_of_all(&cluster, &names[..1], TTL).await?;
    let other = client(&cluster, "fifo", LONG).await?;
    let (node, name) = &names[0];
    let lock = other.lock(name.as_str())?;
    lock.acquire().await?.release().await?;
    for node in [partner(frozen), frozen] {
        cluster.nodes()[node].process().stop()?;
    }
    until("the cluster is down", async || {
        let info = cluster.nodes()[*node].ask(&["CLUSTER", "INFO"]).await?;
        Ok(info.concat().contains("cluster_state:fail"))
    })
    .await?;
    let waiter = acquire(&lock);
    let before = refusals(&cluster, *node).await?;
    is_unavailable(&other, name).await?;
    let tries = refusals(&cluster, *node).await? - before;
    ensure(tries > 2, format!("{tries} requests"))?;
    let mut last = None;
    for (_, guard) in short {
        last = last.max(Some(guard.token()));
        ends_at_its_deadline(guard).await?;
    }
    for node in [partner(frozen), frozen] {
        cluster.nodes()[node].process().resume()?;
    }
    cluster.ready().await?;
    within(SOON, waiter.soon()).await???.release().await?;
    let again = other.lock(format!("{}/{TTL:?}/{{{name}}}", WAYS[2]))?;
    let again = within(SOON, again.acquire()).await??;
    ensure(Some(again.token()) > last, "the token has not grown")?;
    again.release().await?;
    for (_, guard) in long {
        guard.check()?;
        guard.release().await?;
    }
    Ok(())
}

/// One that lags behind, or lies: the others see a cluster that is whole.
async fn node_that_says_that_the_cluster_is_down_costs_the_others_nothing() -> Outcome {
    let cluster = RedisCluster::forgetful().await?;
    let ways = cluster.behind_proxies().await?;
    let names = names_of_all(&cluster).await?;
    let (down, name) = &names[0];
    let client = client(&cluster, "fifo", TTL).await?;
    let mut guards = Vec::new();
    for (master, name) in &names {
        for number in 0..100 {
            let lock = client.lock(format!("{{{name}}}/{number}"))?;
            guards.push((*master, lock.acquire().await?));
        }
    }
    ways[*down].judge(|request| {
        let request = String::from_utf8_lossy(request);
        match request.contains("EVALSHA") {
            true => DOWN.fate(&request),
            false => Fate::Pass,
        }
    });
    let waiter = acquire(&client.lock(name.as_str())?);
    let (began, mut cycles) = (Instant::now(), Vec::new());
    while began.elapsed() < TTL * 2 {
        for (_, name) in &names[1..] {
            let start = Instant::now();
            client
                .lock(name.as_str())?
                .acquire()
                .await?
                .release()
                .await?;
            cycles.push(start.elapsed());
        }
        sleep(Duration::from_millis(10)).await;
    }
    let longest = longest_of_most(cycles);
    println!("nine of ten cycles on the other masters took {longest:?} or less");
    ensure(longest < Duration::from_millis(100), format!("{longest:?}"))?;
    for (master, guard) in guards {
        let lost = guard.check().is_err();
        ensure(lost == (master == *down), format!("{master}: {lost}"))?;
        drop(guard);
    }
    ensure(!waiter.is_finished(), "granted by a node that is down")?;
    ways[*down].heal();
    Ok(within(SOON, waiter.soon()).await???.release().await?)
}
