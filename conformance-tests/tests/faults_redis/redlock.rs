//! Several servers of which some are dead, frozen, slow, restarted without data, or in the wrong list.

use std::time::Duration;

use conformance_tests::proxy::Proxy;
use conformance_tests::servers::{RedisServer, RedlockServers};
use conformance_tests::task::{acquire, until, within};
use conformance_tests::{Failure, Outcome, TestSuite, ensure};
use lockkit_core::{Error, Failover, Lease, Lock, LockClient, Outcome as Effect};
use lockkit_redis::{RedisStore, RedlockStore, RedlockStoreBuilder};
use tokio::time::{Instant, sleep};

use crate::quarantine::granted_at;
use crate::world::{LONG, Section, longest_of_most};

/// The lease and the quarantine.
pub(crate) const TTL: Duration = Duration::from_secs(3);
pub(crate) const SOON: Duration = Duration::from_secs(5);
pub(crate) const NAME: &str = "jobs/redlock";
/// How late a slow node is.
pub(crate) const LATE: Duration = Duration::from_millis(400);

pub(crate) fn add(suite: TestSuite) -> TestSuite {
    suite
        .test(two_nodes_killed_frozen_or_slow_are_not_noticed)
        .test(three_dead_nodes_are_an_outage_until_they_are_back)
        .test(nodes_restarted_without_data_grant_nothing_while_a_lease_lasts)
        .test(node_that_lost_a_hold_is_repaired_after_its_quarantine)
        .test(locks_of_other_programs_count_node_by_node)
        .test(hashes_of_an_application_at_a_majority_are_refused)
        .test(lists_that_share_no_majority_are_refused)
        .test(server_that_is_there_twice_counts_once)
        .test(slow_nodes_list_their_locks)
        .test(break_at_a_minority_is_indeterminate)
        .test(ticket_of_dead_nodes_is_forgotten)
        .test(eight_clients_take_turns)
}

pub(crate) type Hosts = Vec<(&'static str, u16)>;

pub(crate) fn store(hosts: Hosts, ttl: Duration) -> RedlockStoreBuilder {
    RedlockStore::builder(hosts).options(RedisStore::builder().ttl(ttl))
}

pub(crate) async fn client(hosts: Hosts, lease: Lease) -> Outcome<LockClient> {
    let store = store(hosts, lease.ttl()).connect().await?;
    Ok(LockClient::builder(store).lease(lease).build()?)
}

pub(crate) async fn renewed(servers: &RedlockServers, ttl: Duration) -> Outcome<LockClient> {
    client(servers.hosts().collect(), Lease::renewed(ttl)).await
}

pub(crate) async fn nodes(count: usize) -> Outcome<RedlockServers> {
    RedlockServers::start(count, &["--appendonly", "no"]).await
}

/// Proxies in front of the servers.
pub(crate) async fn proxies(servers: &RedlockServers) -> Outcome<(Vec<Proxy>, Hosts)> {
    let mut proxies = Vec::new();
    for node in servers.nodes() {
        proxies.push(Proxy::start(([127, 0, 0, 1], node.port()).into()).await?);
    }
    let hosts = proxies.iter().map(|it| ("127.0.0.1", it.addr().port()));
    let hosts = hosts.collect();
    Ok((proxies, hosts))
}

/// How many of the servers have a hold.
pub(crate) async fn having(nodes: &[RedisServer]) -> Outcome<usize> {
    having_at(nodes, NAME).await
}

pub(crate) async fn having_at(nodes: &[RedisServer], name: &str) -> Outcome<usize> {
    let mut count = 0;
    for node in nodes {
        count += usize::from(node.ask(&["HLEN", name]).await? == ["1"]);
    }
    Ok(count)
}

/// Takes the lock at all servers, and returns when none has it any more.
pub(crate) async fn take_everywhere(lock: &Lock, nodes: &[RedisServer]) -> Outcome<u64> {
    let guard = lock.acquire().await?;
    let token = guard.token().get();
    let name = lock.name().as_str();
    let all = async || Ok(having_at(nodes, name).await? == nodes.len());
    until("all have it", all).await?;
    guard.release().await?;
    until("none has it", async || {
        Ok(having_at(nodes, name).await? == 0)
    })
    .await?;
    Ok(token)
}

async fn two_nodes_killed_frozen_or_slow_are_not_noticed() -> Outcome {
    for how in ["killed", "frozen", "slow"] {
        let servers = RedlockServers::forgetful().await?;
        let (proxies, hosts) = proxies(&servers).await?;
        let client = client(hosts, Lease::renewed(TTL)).await?;
        let held = client.lock(NAME)?.acquire().await?;
        take_everywhere(&client.lock("jobs/turn")?, servers.nodes()).await?;
        // The first and one in the middle.
        for at in [0, 2] {
            match how {
                "killed" => servers.nodes()[at].process().kill(),
                "frozen" => servers.nodes()[at].process().stop()?,
                _ => proxies[at].delay_both(LATE / 2),
            }
        }
        let (mut cycles, began, mut last) = (Vec::new(), Instant::now(), held.token());
        let mut turns = 0;
        while began.elapsed() < TTL * 2 {
            // The same name again, and a fresh one.
            for name in ["jobs/turn".to_owned(), format!("jobs/{turns}")] {
                let start = Instant::now();
                let guard = client.lock(name)?.acquire().await?;
                let token = guard.token();
                guard.release().await?;
                cycles.push(start.elapsed());
                ensure(token > last, format!("{how}: the token has not grown"))?;
                last = token;
            }
            turns += 1;
            sleep(Duration::from_millis(10)).await;
        }
        // Single ones tell how busy this machine is.
        let longest = longest_of_most(cycles);
        println!("{how}: nine of ten cycles took {longest:?} or less");
        ensure(longest < LATE * 3 / 4, format!("{how}: {longest:?}"))?;
        held.check()?;
        held.release().await?;
    }
    Ok(())
}

async fn three_dead_nodes_are_an_outage_until_they_are_back() -> Outcome {
    let servers = RedlockServers::forgetful().await?;
    let client = renewed(&servers, TTL).await?;
    client.lock(NAME)?.acquire().await?.release().await?;
    let dead = &servers.nodes()[..3];
    dead.iter().for_each(|node| node.process().kill());
    let refused = client.lock(NAME)?.try_acquire().await;
    let Err(Error::Backend(error)) = refused else {
        return Err(Failure::new(format!("{refused:?}")));
    };
    ensure(error.outcome() != Effect::Rejected, error.to_string())?;
    let told = Failure::from(error).to_string();
    ensure(told.contains("of 5 nodes fail"), told)?;
    // What it had at the other two is given back.
    until("nothing is left", async || {
        Ok(having(&servers.nodes()[3..]).await? == 0)
    })
    .await?;
    let waiter = acquire(&client.lock(NAME)?);
    dead.iter().try_for_each(|node| node.process().restart())?;
    // They have lost their data.
    within(TTL + SOON, waiter.soon()).await???.release().await?;
    Ok(())
}

/// Each node needs several requests to list its locks.
async fn slow_nodes_list_their_locks() -> Outcome {
    let servers = nodes(3).await?;
    let (proxies, hosts) = proxies(&servers).await?;
    let client = client(hosts, Lease::renewed(LONG)).await?;
    let guard = client.lock(NAME)?.acquire().await?;
    for proxy in &proxies {
        proxy.delay_both(LATE / 6);
    }
    let found = client.list("jobs/").await?;
    ensure(found.len() == 1, format!("{found:?}"))?;
    proxies.iter().for_each(Proxy::heal);
    guard.release().await?;
    Ok(())
}

/// The others are away: a node has ended the hold, which is an effect.
async fn break_at_a_minority_is_indeterminate() -> Outcome {
    let servers = nodes(3).await?;
    let client = renewed(&servers, LONG).await?;
    let lock = client.lock(NAME)?;
    let guard = lock.acquire().await?;
    let all = async || Ok(having(servers.nodes()).await? == 3);
    until("all have it", all).await?;
    for node in &servers.nodes()[1..] {
        node.process().kill();
    }
    let unavailable = |error: &Error| matches!(error, Error::Backend(error) if error.outcome() == Effect::Unavailable);
    until("the two are given up", async || {
        Ok(lock.inspect().await.is_err_and(|it| unavailable(&it)))
    })
    .await?;
    let broken = lock.break_lock().await;
    let Err(Error::Backend(error)) = broken else {
        return Err(Failure::new(format!("{broken:?}")));
    };
    ensure(error.outcome() == Effect::Indeterminate, error.to_string())?;
    ensure(having(&servers.nodes()[..1]).await? == 0, "it is not ended")?;
    // Nothing is left there to end.
    let broken = lock.break_lock().await;
    ensure(broken.is_err_and(|it| unavailable(&it)), "an effect twice")?;
    drop(guard);
    Ok(())
}

/// The client gives its release up when the lease has ended.
async fn ticket_of_dead_nodes_is_forgotten() -> Outcome {
    let servers = nodes(3).await?;
    let store = store(servers.hosts().collect(), TTL).connect().await?;
    let client = LockClient::builder(store.clone()).lease(Lease::renewed(TTL));
    let client = client.build()?;
    let guard = client.lock(NAME)?.acquire().await?;
    servers.nodes().iter().for_each(|it| it.process().kill());
    drop(guard);
    within(TTL + SOON, client.drain()).await?;
    ensure(store.tickets() == 0, "a ticket is kept")
}

async fn nodes_restarted_without_data_grant_nothing_while_a_lease_lasts() -> Outcome {
    let servers = nodes(3).await?;
    let hosts = || servers.hosts().collect::<Hosts>();
    let holder = client(hosts(), Lease::fixed(TTL)).await?;
    let other = client(hosts(), Lease::fixed(TTL)).await?;
    let promised = holder.backend().capabilities().failover;
    ensure(promised == Failover::Majority, format!("{promised:?}"))?;
    let lost = holder.lock(NAME)?.acquire().await?;
    for node in &servers.nodes()[..2] {
        node.process().kill();
        node.process().restart()?;
    }
    let restarted = Instant::now();
    let next = granted_at(&other, NAME).await?;
    let took = restarted.elapsed();
    println!("granted {took:?} after the restart of two nodes");
    ensure(lost.check().is_err(), "two hold the lock")?;
    ensure(next.token() > lost.token(), "the token has not grown")?;
    // The server counts seconds since its start.
    ensure(
        took < TTL + Duration::from_millis(2500),
        format!("{took:?}"),
    )?;
    next.release().await?;
    Ok(())
}

async fn node_that_lost_a_hold_is_repaired_after_its_quarantine() -> Outcome {
    let servers = nodes(3).await?;
    let [first, second, _] = servers.nodes() else {
        return Err(Failure::new("three nodes"));
    };
    let client = renewed(&servers, TTL).await?;
    let guard = client.lock(NAME)?.acquire().await?;
    first.process().kill();
    first.process().restart()?;
    let restarted = Instant::now();
    let holder = guard.holder().to_string();
    until("it is repaired", async || {
        let held = first.ask(&["HEXISTS", NAME, &holder]).await;
        Ok(held.is_ok_and(|held| held == ["1"]))
    })
    .await?;
    let took = restarted.elapsed();
    println!("repaired {took:?} after the restart");
    ensure(took >= TTL, format!("{took:?}"))?;
    // A renewal, and the seconds that the server counts.
    ensure(took < TTL * 2 + Duration::from_secs(1), format!("{took:?}"))?;
    let state = client.lock(NAME)?.inspect().await?;
    let token = state.and_then(|state| state.token);
    ensure(token == Some(guard.token()), format!("{token:?}"))?;
    // It counts at once.
    second.process().kill();
    sleep(TTL * 2).await;
    guard.check()?;
    guard.release().await?;
    Ok(())
}

async fn locks_of_other_programs_count_node_by_node() -> Outcome {
    let servers = RedlockServers::forgetful().await?;
    let client = renewed(&servers, LONG).await?;
    let lock = client.lock(NAME)?;
    let (taken, free) = servers.nodes().split_at(3);
    let string: &[&str] = &["SET", NAME, "of-another", "PX", "60000", "NX"];
    let redisson = "6fa3d3a6-2b0c-4a53-9b0e-3a4d5c6b7a89:1";
    let hash: &[&str] = &["HSET", NAME, redisson, "1"];
    for words in [string, hash] {
        for node in taken {
            node.ask(words).await?;
            node.ask(&["PEXPIRE", NAME, "60000"]).await?;
        }
        for _ in 0..20 {
            ensure(lock.try_acquire().await?.is_none(), "two hold the lock")?;
        }
        until("the tries have left nothing", async || {
            Ok(having(free).await? == 0)
        })
        .await?;
        let holders = lock.inspect().await?.map(|state| state.holders.len());
        ensure(holders == Some(1), format!("{holders:?} holders"))?;
        let waiter = acquire(&lock);
        taken[0].ask(&["DEL", NAME]).await?;
        let guard = within(SOON, waiter.soon()).await???;
        ensure(having(free).await? == 2, "not all free nodes are taken")?;
        guard.release().await?;
        let left = taken[1].ask(&["EXISTS", NAME]).await?;
        ensure(left == ["1"], "the lock of another program has gone")?;
        for node in taken {
            node.ask(&["DEL", NAME]).await?;
        }
    }
    Ok(())
}

async fn hashes_of_an_application_at_a_majority_are_refused() -> Outcome {
    let servers = RedlockServers::forgetful().await?;
    let lock = renewed(&servers, LONG).await?.lock(NAME)?;
    let (taken, free) = servers.nodes().split_at(3);
    for node in taken {
        node.ask(&["HSET", NAME, "name", "x"]).await?;
    }
    let refused = lock.try_acquire().await;
    let rejected = |error: &Error| matches!(error, Error::Backend(error) if error.outcome() == Effect::Rejected);
    ensure(
        refused.as_ref().is_err_and(rejected),
        format!("{refused:?}"),
    )?;
    until("the try has left nothing", async || {
        Ok(having(free).await? == 0)
    })
    .await?;
    for node in taken {
        let fields = node.ask(&["HGETALL", NAME]).await?;
        ensure(fields == ["name", "x"], format!("{fields:?}"))?;
    }
    Ok(())
}

/// Why a store cannot be opened.
async fn refusal(hosts: Hosts) -> Outcome<String> {
    let error = store(hosts, TTL).connect().await.err();
    let error = error.ok_or_else(|| Failure::new("it was opened"))?;
    let why = Failure::from(&error).to_string();
    ensure(error.outcome() == Effect::Rejected, &*why)?;
    Ok(why)
}

async fn lists_that_share_no_majority_are_refused() -> Outcome {
    let servers = RedlockServers::forgetful().await?;
    let all: Hosts = servers.hosts().collect();
    for (hosts, why) in [
        (all[..1].to_vec(), "1 servers: give three"),
        (all[..4].to_vec(), "4 servers: give three"),
        (vec![all[0], all[1], all[0]], "in the list twice"),
    ] {
        let told = refusal(hosts).await?;
        ensure(told.contains(why), told)?;
    }
    let way = Proxy::start(([127, 0, 0, 1], all[0].1).into()).await?;
    let twin = ("127.0.0.1", way.addr().port());
    let told = refusal(vec![all[0], twin, all[1]]).await?;
    ensure(told.contains("lead to one server"), told)?;
    for node in servers.nodes() {
        node.ask(&["HDEL", "lockkit_primary", "members"]).await?;
    }
    client(all.clone(), Lease::renewed(TTL)).await?;
    for hosts in [all[..3].to_vec(), [&all[..4], &[twin]].concat()] {
        let told = refusal(hosts).await?;
        let port = all[4].1.to_string();
        ensure(told.contains("give all the same list"), told.clone())?;
        ensure(told.contains(&port), told)?;
    }
    // In another order it is the same.
    client(all.into_iter().rev().collect(), Lease::renewed(TTL)).await?;
    Ok(())
}

/// A node that is there only later may be one that is there already.
async fn server_that_is_there_twice_counts_once() -> Outcome {
    let servers = nodes(2).await?;
    let way = Proxy::start(([127, 0, 0, 1], servers.nodes()[0].port()).into()).await?;
    way.refuse(true);
    let mut hosts: Hosts = servers.hosts().collect();
    hosts.push(("127.0.0.1", way.addr().port()));
    let client = client(hosts, Lease::renewed(TTL)).await?;
    let lock = client.lock(NAME)?;
    lock.acquire().await?.release().await?;
    way.refuse(false);
    until("the third is there", async || {
        Ok(way.counts().round_trips > 2)
    })
    .await?;
    servers.nodes()[1].process().kill();
    for _ in 0..5 {
        let refused = lock.try_acquire().await;
        ensure(refused.is_err(), "one server has made a majority")?;
        sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

async fn eight_clients_take_turns() -> Outcome {
    let servers = RedlockServers::forgetful().await?;
    let mut locks = Vec::new();
    for _ in 0..8 {
        locks.push(renewed(&servers, LONG).await?.lock(NAME)?);
    }
    Section::default().share(&locks, 10).await
}
