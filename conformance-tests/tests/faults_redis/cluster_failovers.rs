//! Masters of a Redis Cluster that are replaced while they live: cut off from the others, or frozen.

use std::time::Duration;

use conformance_tests::loss::loss_of;
use conformance_tests::proxy::{Fate, Proxy};
use conformance_tests::servers::{RedisCluster, RedisServer, partner};
use conformance_tests::task::{acquire, spawn, until, within};
use conformance_tests::{Outcome, TestSuite, ensure};
use lockkit_core::{LockClient, Outcome as Effect};
use lockkit_redis::RedisStoreBuilder;
use tokio::time::{Instant, sleep};

use crate::cluster::{NAME, SOON, WAYS, all, client};
use crate::quarantine::{client_for, granted_at};
use crate::world::client_of;

/// The lease and the quarantine.
const TTL: Duration = Duration::from_secs(4);
/// Longer than it takes to leave a frozen master on a busy machine.
const LONGER: Duration = Duration::from_secs(10);
/// How soon after a promotion. The waiter may have paused for a second after its last failure.
const LEFT: Duration = Duration::from_secs(2);
/// How soon after the quarantine.
const USABLE: Duration = Duration::from_millis(1500);
/// The user of the client that is cut off together with its master.
const CUT_OFF: &str = "user-of-the-minority";

pub(crate) fn add(suite: TestSuite) -> TestSuite {
    suite
        .test(master_in_a_minority_keeps_no_hold_beside_its_successor)
        .test(frozen_master_that_comes_back_grants_nothing)
        .test(successor_of_a_frozen_master_serves_at_once)
        .test(planned_failover_costs_a_waiter_one_quarantine)
}

/// Cuts a node off from all others: none of their messages arrives, in either direction.
async fn cut_off(buses: &[Proxy], nodes: &[RedisServer], node: usize) -> Outcome {
    let id = nodes[node].ask(&["CLUSTER", "MYID"]).await?.concat();
    for (at, bus) in buses.iter().enumerate() {
        let id = id.clone();
        // The header of each message names its sender.
        bus.judge(move |message| match message.get(40..80) {
            Some(sender) if sender == id.as_bytes() => Fate::Cut,
            _ => Fate::Pass,
        });
        if at == node {
            bus.refuse(true);
            bus.reset();
        }
    }
    Ok(())
}

/// Lets the client that is cut off do all.
async fn allow_all(nodes: &[RedisServer]) -> Outcome {
    for node in nodes {
        let rights = ["on", "nopass", "~*", "&*", "+@all"];
        let user = [&["ACL", "SETUSER", CUT_OFF], &rights[..]].concat();
        node.ask(&user).await?;
    }
    Ok(())
}

/// Nobody else reaches the master, and its clients reach no other node.
fn cut_off_clients(ways: &[Proxy], master: usize) {
    for (at, way) in ways.iter().enumerate() {
        if at == master {
            // Those who are connected stay so.
            way.refuse(true);
            continue;
        }
        way.judge(
            |request| match String::from_utf8_lossy(request).contains(CUT_OFF) {
                true => Fate::Cut,
                false => Fate::Pass,
            },
        );
        way.reset();
    }
}

/// Its replica has not got the hold, and is promoted by the majority. The holder reaches its master alone, which stops
/// by itself.
async fn master_in_a_minority_keeps_no_hold_beside_its_successor() -> Outcome {
    let cluster = RedisCluster::forgetful().await?;
    let nodes = cluster.nodes();
    allow_all(nodes).await?;
    let (ways, buses) = (
        cluster.behind_proxies().await?,
        cluster.buses_behind_proxies().await?,
    );
    let master = cluster.master_of(NAME).await?;
    let holder = all(&cluster, "fifo").user(CUT_OFF).password("none");
    let holder = client_of(holder.ttl(TTL).connect().await?, TTL)?;
    let lock = holder.lock(NAME)?;
    lock.acquire().await?.release().await?;
    cluster.freeze_replica(master).await?;
    let guard = lock.acquire().await?;
    cut_off_clients(&ways, master);
    cut_off(&buses, nodes, master).await?;
    let (cut, loss) = (Instant::now(), loss_of(guard));
    nodes[partner(master)].process().resume()?;
    until("the master stops", async || {
        let info = nodes[master].ask(&["CLUSTER", "INFO"]).await?.concat();
        Ok(info.contains("cluster_state:fail"))
    })
    .await?;
    let stopped = cut.elapsed();
    cluster.promoted(partner(master)).await?;
    println!(
        "stopped after {stopped:?}, replaced after {:?}",
        cut.elapsed()
    );
    let other = client_for(all(&cluster, "fifo"), TTL).await?;
    let next = granted_at(&other, NAME).await?;
    let granted = Instant::now();
    let (reason, lost, guard) = within(SOON, loss.soon()).await??;
    println!(
        "lost after {:?} ({reason}), granted after {:?}",
        lost - cut,
        granted - cut
    );
    ensure(lost <= granted, "two hold the lock")?;
    ensure(lost - cut >= TTL / 2, "it was lost before its deadline")?;
    ensure(guard.check().is_err(), "a lost guard passes its check")?;
    ensure(next.token() > guard.token(), "the token has not grown")?;
    let refused = lock.try_acquire().await;
    ensure(refused.is_err(), format!("{refused:?} in the minority"))?;
    ways.iter().chain(&buses).for_each(Proxy::heal);
    let waiter = acquire(&lock);
    next.release().await?;
    Ok(within(SOON * 2, waiter.soon()).await???.release().await?)
}

/// A client for each way of waiting that has a connection to the master, and then asks it for nothing.
async fn idle_clients(store: impl Fn(&str) -> RedisStoreBuilder) -> Outcome<Vec<LockClient>> {
    let mut clients = Vec::new();
    for way in WAYS {
        let client = client_for(store(way), LONGER).await?;
        client.lock(NAME)?.acquire().await?.release().await?;
        clients.push(client);
    }
    Ok(clients)
}

/// Clients that were idle meanwhile ask for a lock that its successor has granted.
async fn frozen_master_that_comes_back_grants_nothing() -> Outcome {
    let cluster = RedisCluster::forgetful().await?;
    let idle = idle_clients(|way| all(&cluster, way)).await?;
    let holder = client_of(all(&cluster, "fifo").ttl(LONGER).connect().await?, LONGER)?;
    let kept = holder.lock(format!("kept/{{{NAME}}}"))?.acquire().await?;
    let master = cluster.master_of(NAME).await?;
    let [former, present] = [master, partner(master)].map(|node| &cluster.nodes()[node]);
    until("the replica has the hold", async || {
        Ok(present.ask(&["DBSIZE"]).await? == former.ask(&["DBSIZE"]).await?)
    })
    .await?;
    former.process().stop()?;
    let frozen = Instant::now();
    cluster.promoted(partner(master)).await?;
    let held = granted_at(&holder, NAME).await?;
    let granted = frozen.elapsed();
    println!("granted {granted:?} after the freeze");
    ensure(granted >= LONGER, format!("granted after {granted:?}"))?;
    let tries = idle.iter().map(|client| {
        let client = client.clone();
        spawn(async move {
            let Some(guard) = client.lock(NAME)?.try_acquire().await? else {
                return Ok(None);
            };
            guard.check().map(|()| Some(guard))
        })
    });
    let tries: Vec<_> = tries.collect();
    // They are sent.
    sleep(Duration::from_millis(100)).await;
    former.process().resume()?;
    for tried in tries {
        match tried.soon().await? {
            Ok(tried) => ensure(tried.is_none(), "two hold the lock")?,
            Err(lockkit_core::Error::Backend(error)) => {
                ensure(error.outcome() != Effect::Rejected, error.to_string())?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    cluster.ready().await?;
    held.check()?;
    kept.check()?;
    let waiters = idle.iter().map(|client| {
        let client = client.clone();
        spawn(async move { client.lock(NAME)?.acquire().await?.release().await })
    });
    let waiters: Vec<_> = waiters.collect();
    held.release().await?;
    for waiter in waiters {
        within(SOON, waiter.soon()).await???;
    }
    Ok(kept.release().await?)
}

/// It is promoted while the client opens a connection to the frozen one, which takes up to `connect_timeout`.
async fn successor_of_a_frozen_master_serves_at_once() -> Outcome {
    let cluster = RedisCluster::forgetful().await?;
    let master = cluster.master_of(NAME).await?;
    for way in WAYS {
        let client = client(&cluster, way, TTL).await?;
        client.lock(NAME)?.acquire().await?.release().await?;
        let nodes = [master, partner(master)].map(|node| &cluster.nodes()[node]);
        for node in nodes {
            node.process().stop()?;
        }
        let waiter = acquire(&client.lock(NAME)?);
        // Longer than to notice the silence.
        sleep(Duration::from_millis(700)).await;
        nodes[1].process().resume()?;
        cluster.promoted(partner(master)).await?;
        let promoted = Instant::now();
        waiter.soon().await??.release().await?;
        let took = promoted.elapsed();
        println!("{way}: granted {took:?} after the promotion");
        ensure(took < LEFT, format!("{way}: {took:?}"))?;
        nodes[0].process().resume()?;
        cluster.ready().await?;
        cluster.fail_over_as_planned(partner(master)).await?;
    }
    Ok(())
}

/// The server knows of no client when it is promoted: the first one to come follows the former master's word.
async fn planned_failover_costs_a_waiter_one_quarantine() -> Outcome {
    let cluster = RedisCluster::forgetful().await?;
    let mut master = cluster.master_of(NAME).await?;
    for way in WAYS {
        let client = client_for(all(&cluster, way), TTL).await?;
        granted_at(&client, NAME).await?.release().await?;
        cluster.fail_over_as_planned(master).await?;
        let promoted = Instant::now();
        granted_at(&client, NAME).await?.release().await?;
        let took = promoted.elapsed();
        println!("{way}: granted {took:?} after the failover");
        ensure(took < TTL + USABLE, format!("{way}: {took:?}"))?;
        master = partner(master);
    }
    Ok(())
}
