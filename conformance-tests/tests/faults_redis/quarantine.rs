//! Failovers and restarts that lose what was granted: what a quarantine and `acks` keep from two clients.

use std::time::Duration;

use conformance_tests::proxy::Proxy;
use conformance_tests::servers::{FakeSentinel, MASTER, RedisServer, SentinelGroup};
use conformance_tests::task::{acquire, until, within};
use conformance_tests::{Failure, Outcome, TestSuite, ensure};
use lockkit_core::contract::{DistributedLock as _, Release, Ticket};
use lockkit_core::{
    Error, Failover, Guard, HolderId, Lease, LockClient, LockName, Outcome as Effect,
};
use lockkit_redis::RedisStoreBuilder;
use tokio::time::{Instant, sleep};

use crate::cluster::WAYS;
use crate::sentinel::promoted;
use crate::world::{LONG, client_of, store};

/// The lease and the quarantine: a failover takes less than half of it.
const TTL: Duration = Duration::from_secs(4);
/// What Sentinels add to it.
const FORMER_MASTER_SERVES: Duration = Duration::from_secs(5);
/// How soon after its end the lock is granted.
const SOON: Duration = Duration::from_millis(1500);
const NAME: &str = "jobs/quarantine";

pub(crate) fn add(suite: TestSuite) -> TestSuite {
    suite
        .test(lost_grant_ends_before_another_begins)
        .test(without_quarantine_a_lost_grant_is_given_twice)
        .test(lost_release_that_is_repeated_lets_nobody_in)
        .test(connection_that_lived_through_two_failovers_is_left)
        .test(each_failover_begins_a_quarantine_on_a_master_that_was_not_demoted)
        .test(restarted_server_grants_after_the_longest_lease)
        .test(longer_quarantine_of_a_later_client_counts)
        .test(master_that_sentinels_do_not_reach_grants_nothing_without_its_replica)
        .test(new_id_without_a_failover_costs_no_quarantine)
        .test(leases_are_no_longer_than_the_quarantine)
        .test(user_without_info_is_refused_with_a_way_out)
        .test(grant_that_no_replica_has_is_none)
        .test(hold_ends_in_time_when_no_replica_has_it)
        .test(waiter_does_not_trust_a_message_that_no_replica_has)
}

pub(crate) fn behind(group: &SentinelGroup, way: &str) -> RedisStoreBuilder {
    let hosts = group.ports().into_iter().map(|port| ("127.0.0.1", port));
    store(way, 0).ttl(TTL).sentinel(hosts, MASTER)
}

/// Its leases are not renewed, so that it believes in them until they end.
async fn client(store: RedisStoreBuilder) -> Outcome<LockClient> {
    client_for(store, TTL).await
}

pub(crate) async fn client_for(store: RedisStoreBuilder, ttl: Duration) -> Outcome<LockClient> {
    let client = LockClient::builder(store.ttl(ttl).connect().await?).lease(Lease::fixed(ttl));
    Ok(client.timeout(Duration::from_millis(400)).build()?)
}

/// Tries until it gets the lock.
async fn granted(client: &LockClient) -> Outcome<Guard> {
    granted_at(client, NAME).await
}

pub(crate) async fn granted_at(client: &LockClient, name: &str) -> Outcome<Guard> {
    let lock = client.lock(name)?;
    let mut guard = None;
    let tries = until("the lock is granted", async || {
        guard = lock.try_acquire().await.ok().flatten();
        Ok(guard.is_some())
    });
    tries.await?;
    guard.ok_or_else(|| Failure::new("no guard"))
}

/// The replica is promoted without the first client's hold. Returns both holds, and how long after the promotion the
/// second one began.
async fn lose_a_grant(
    group: &SentinelGroup,
    stores: [RedisStoreBuilder; 2],
) -> Outcome<(Guard, Guard, Duration)> {
    let [first, second] = stores;
    let (first, second) = (client(first).await?, client(second).await?);
    group.freeze_replica().await?;
    let lost = first.lock(NAME)?.acquire().await?;
    group.fail_over()?;
    let (at, next) = tokio::try_join!(promoted(&group.servers()[1]), granted(&second))?;
    Ok((lost, next, at.elapsed()))
}

async fn lost_grant_ends_before_another_begins() -> Outcome {
    for way in WAYS {
        let group = SentinelGroup::forgetful().await?;
        let stores = [(); 2].map(|()| behind(&group, way));
        let promised = stores[0].capabilities().failover;
        ensure(promised == Failover::Guarded, format!("{promised:?}"))?;
        let (lost, next, after) = lose_a_grant(&group, stores).await?;
        println!("{way}: granted {after:?} after the promotion");
        ensure(lost.check().is_err(), format!("{way}: two hold the lock"))?;
        ensure(next.token() > lost.token(), "the token has not grown")?;
        let quarantine = TTL + FORMER_MASTER_SERVES;
        ensure(after >= quarantine, format!("{way}: {after:?}"))?;
        ensure(after < quarantine + SOON, format!("{way}: {after:?}"))?;
        next.release().await?;
    }
    Ok(())
}

/// It shows that the test above loses the grant.
async fn without_quarantine_a_lost_grant_is_given_twice() -> Outcome {
    let group = SentinelGroup::forgetful().await?;
    let stores = [(); 2].map(|()| behind(&group, "fifo").quarantine(None));
    let promised = stores[0].capabilities().failover;
    ensure(promised == Failover::Fenced, format!("{promised:?}"))?;
    let (lost, next, _) = lose_a_grant(&group, stores).await?;
    lost.check()?;
    next.check()?;
    ensure(next.token() > lost.token(), "the token has not grown")
}

/// The lock was passed to the first waiter. The new master does not know it, and finds that waiter dead.
async fn lost_release_that_is_repeated_lets_nobody_in() -> Outcome {
    let group = SentinelGroup::forgetful().await?;
    let name = LockName::new(NAME)?;
    let holder = behind(&group, "fifo").connect().await?;
    let ticket = Ticket::new(
        name,
        HolderId::new(lockkit_core::ClientId::random(), 1),
        LONG,
    );
    holder.attempt(&ticket).await?;
    let short = behind(&group, "fifo").recheck(Duration::from_millis(300));
    let long = behind(&group, "fifo").recheck(Duration::from_secs(5));
    // The second one's place outlasts the failover.
    let (first, second) = (
        client_for(short, TTL * 2).await?,
        client_for(long, TTL * 2).await?,
    );
    let master = &group.servers()[0];
    let queued = async |count: &str| {
        until("they wait", async || {
            Ok(master
                .ask(&["LLEN", "lockkit_queue:{jobs/quarantine}"])
                .await?
                == [count])
        })
        .await
    };
    let one = acquire(&first.lock(NAME)?);
    queued("1").await?;
    let two = acquire(&second.lock(NAME)?);
    queued("2").await?;
    group.freeze_replica().await?;
    holder.release(&ticket).await?;
    let one = within(SOON, one.soon()).await???;
    group.fail_over()?;
    promoted(&group.servers()[1]).await?;
    let mut again = None;
    until("the new master has the release", async || {
        again = holder.release(&ticket).await.ok();
        Ok(again.is_some())
    })
    .await?;
    ensure(again == Some(Release::Released), format!("{again:?}"))?;
    let held = group.servers()[1].ask(&["EXISTS", NAME]).await?;
    ensure(held == ["0"], "the lock was passed on in the quarantine")?;
    let two = two.soon().await??;
    ensure(one.check().is_err(), "two hold the lock")?;
    ensure(two.token() > one.token(), "the token has not grown")?;
    two.release().await?;
    Ok(())
}

/// Sentinels end such connections, other tools may not.
async fn connection_that_lived_through_two_failovers_is_left() -> Outcome {
    for way in WAYS {
        let server = RedisServer::forgetful().await?;
        let client = client(store(way, server.port()).quarantine(TTL)).await?;
        // It may have been started without its data.
        granted(&client).await?.release().await?;
        let calls = server.calls("role").await?;
        server.ask(&["REPLICAOF", "127.0.0.1", "1"]).await?;
        server.ask(&["REPLICAOF", "NO", "ONE"]).await?;
        let back = Instant::now();
        granted(&client).await?.release().await?;
        let took = back.elapsed();
        println!("{way}: granted {took:?} after the server was the primary again");
        ensure(took >= TTL, format!("{way}: {took:?}"))?;
        ensure(took < TTL + SOON * 2, format!("{way}: {took:?}"))?;
        ensure(
            server.calls("role").await? == calls,
            "it asks for more than it needs",
        )?;
    }
    Ok(())
}

/// Sentinels made another server the master and then this one again, before they had demoted it: nobody but they
/// knows that others may have had the lock meanwhile.
async fn each_failover_begins_a_quarantine_on_a_master_that_was_not_demoted() -> Outcome {
    let (first, second) = (
        RedisServer::forgetful().await?,
        RedisServer::forgetful().await?,
    );
    first.has_lost_nothing().await?;
    let at = |server: &RedisServer| ([127, 0, 0, 1], server.port()).into();
    let sentinel = FakeSentinel::naming(at(&first), 1, Duration::ZERO).await?;
    let ttl = Duration::from_secs(1);
    let hosts = [("127.0.0.1", sentinel.port())];
    let store = store("fifo", 0).sentinel(hosts, MASTER);
    let client = client_for(store, ttl).await?;
    granted(&client).await?.release().await?;
    let lock = client.lock(NAME)?;
    for misses in [false, true] {
        if !misses {
            sentinel.name(at(&second), 2);
            until("the client is at the second", async || {
                Ok(second.calls("role").await? == 1)
            })
            .await?;
        }
        sentinel.name(at(&first), if misses { 5 } else { 3 });
        let named = Instant::now();
        until("the client sees it", async || {
            Ok(lock.try_acquire().await?.is_none())
        })
        .await?;
        granted(&client).await?.release().await?;
        let took = named.elapsed();
        println!("granted {took:?} after it was the master again");
        ensure(took >= ttl + FORMER_MASTER_SERVES, format!("{took:?}"))?;
    }
    Ok(())
}

async fn restarted_server_grants_after_the_longest_lease() -> Outcome {
    for keeps in ["yes", "no"] {
        let words = ["--appendonly", keeps];
        let server = RedisServer::start(&std::env::current_exe()?, words).await?;
        server.has_lost_nothing().await?;
        let options = || store("fifo", server.port()).quarantine(TTL);
        let (first, second) = (client(options()).await?, client(options()).await?);
        // It counts the seconds since its start by the clock: the first one is over at once.
        let micros: u64 = server.ask(&["TIME"]).await?[1].parse()?;
        sleep(Duration::from_micros((1_960_000 - micros) % 1_000_000)).await;
        let lost = first.lock(NAME)?.acquire().await?;
        server.process().kill();
        server.process().restart()?;
        let restarted = Instant::now();
        let next = granted(&second).await?;
        let took = restarted.elapsed();
        println!("appendonly {keeps}: granted {took:?} after the restart");
        ensure(lost.check().is_err(), "two hold the lock")?;
        ensure(next.token() > lost.token(), "the token has not grown")?;
        ensure(
            took < TTL + Duration::from_secs(1) + SOON,
            format!("{took:?}"),
        )?;
        next.release().await?;
    }
    Ok(())
}

/// A server whose last replica has left for long takes another id.
async fn new_id_without_a_failover_costs_no_quarantine() -> Outcome {
    let guard = std::env::current_exe()?;
    let server = RedisServer::start(&guard, ["--repl-backlog-ttl", "1"]).await?;
    server.has_lost_nothing().await?;
    let client = client(store("fifo", server.port()).quarantine(LONG)).await?;
    granted(&client).await?.release().await?;
    let state = async || Ok::<_, Failure>(server.ask(&["INFO", "replication"]).await?.concat());
    let id = |state: String| {
        state
            .lines()
            .find(|line| line.starts_with("master_replid:"))
            .map(str::to_owned)
    };
    let port = server.port().to_string();
    let follow = [
        "--replicaof",
        &format!("127.0.0.1 {port}"),
        "--repl-diskless-sync-delay",
        "0",
    ];
    let replica = RedisServer::start(&guard, follow).await?;
    until("it has a replica", async || {
        Ok(state().await?.contains("state=online"))
    })
    .await?;
    let before = id(state().await?);
    replica.process().kill();
    until("it has another id", async || {
        Ok(id(state().await?) != before)
    })
    .await?;
    let changed = Instant::now();
    granted(&client).await?.release().await?;
    ensure(changed.elapsed() < SOON, format!("{:?}", changed.elapsed()))
}

async fn leases_are_no_longer_than_the_quarantine() -> Outcome {
    let server = RedisServer::forgetful().await?;
    server.has_lost_nothing().await?;
    let url = |rest: &str| format!("{}?{rest}", server.url());
    let refused = lockkit::connect(url("quarantine=5s&ttl=6s")).await;
    ensure(
        matches!(refused, Err(Error::Unsupported { .. })),
        "6 s are too long",
    )?;
    // The default lease is the nearest one.
    let client = lockkit::connect(url("quarantine=5s")).await?;
    let lock = client.lock(NAME)?;
    lock.acquire().await?.release().await?;
    let longest = Duration::from_secs(5);
    let guard = lock.with_lease(Lease::fixed(longest))?.acquire().await?;
    guard.extend(longest).await?;
    let refused = guard.extend(Duration::from_secs(6)).await;
    ensure(
        matches!(refused, Err(Error::Unsupported { .. })),
        format!("{refused:?}"),
    )?;
    guard.release().await?;
    Ok(())
}

/// The server has forgotten who asked for a longer one, and that client is slow to connect again.
async fn longer_quarantine_of_a_later_client_counts() -> Outcome {
    let server = RedisServer::forgetful().await?;
    server.has_lost_nothing().await?;
    let way = Proxy::start(([127, 0, 0, 1], server.port()).into()).await?;
    let brief = Duration::from_secs(2);
    let soon = client_for(store("fifo", server.port()).quarantine(brief), brief).await?;
    let late = client(store("fifo", way.addr().port()).quarantine(TTL)).await?;
    let lost = late.lock(NAME)?.acquire().await?;
    way.refuse(true);
    way.reset();
    server.process().kill();
    server.process().restart()?;
    until("a client has asked for its quarantine", async || {
        let longest = server.ask(&["HGET", "lockkit_primary", "longest"]).await;
        Ok(longest.is_ok_and(|longest| longest == ["2000"]))
    })
    .await?;
    way.refuse(false);
    let next = granted(&soon).await?;
    ensure(lost.check().is_err(), "two hold the lock")?;
    ensure(next.token() > lost.token(), "the token has not grown")?;
    next.release().await?;
    Ok(())
}

/// Clients on its side of the network go on to use it.
async fn master_that_sentinels_do_not_reach_grants_nothing_without_its_replica() -> Outcome {
    let (old, new) = (
        RedisServer::forgetful().await?,
        RedisServer::forgetful().await?,
    );
    old.has_lost_nothing().await?;
    let port = old.port().to_string();
    new.ask(&["REPLICAOF", "127.0.0.1", &port]).await?;
    until("the replica follows", async || {
        let state = new.ask(&["INFO", "replication"]).await?.concat();
        Ok(state.contains("master_link_status:up"))
    })
    .await?;
    let at = |server: &RedisServer| ([127, 0, 0, 1], server.port()).into();
    let (here, there) = (
        FakeSentinel::naming(at(&old), 1, Duration::ZERO).await?,
        FakeSentinel::naming(at(&old), 1, Duration::ZERO).await?,
    );
    let behind = |sentinel: &FakeSentinel| {
        let store = store("fifo", 0).ttl(TTL).acks(1);
        store.sentinel([("127.0.0.1", sentinel.port())], MASTER)
    };
    // Its leases are renewed where they can be.
    let cut_off = client_of(behind(&here).connect().await?, TTL)?;
    let follower = client(behind(&there).acks(0)).await?;
    let guard = cut_off.lock(NAME)?.acquire().await?;
    new.ask(&["REPLICAOF", "NO", "ONE"]).await?;
    there.name(at(&new), 2);
    let promoted = Instant::now();
    let next = granted(&follower).await?;
    let after = promoted.elapsed();
    ensure(guard.check().is_err(), "two hold the lock")?;
    let quarantine = TTL + FORMER_MASTER_SERVES;
    ensure(after >= quarantine, format!("{after:?}"))?;
    let refused = cut_off.lock("jobs/other")?;
    let refused = refused.acquire_timeout(Duration::from_secs(1)).await;
    ensure(refused.is_err(), "the former master grants locks")?;
    next.release().await?;
    Ok(())
}

async fn user_without_info_is_refused_with_a_way_out() -> Outcome {
    let server = RedisServer::forgetful().await?;
    server.ask(&["ACL", "SETUSER", "default", "-info"]).await?;
    let opened = store("fifo", server.port()).quarantine(TTL).connect().await;
    let error = opened.err().ok_or_else(|| Failure::new("it was opened"))?;
    ensure(error.outcome() == Effect::Rejected, error.to_string())?;
    let told = Failure::from(error).to_string();
    ensure(told.contains("`quarantine=off`"), told)?;
    store("fifo", server.port()).connect().await?;
    Ok(())
}

fn acked(group: &SentinelGroup, way: &str) -> RedisStoreBuilder {
    behind(group, way).quarantine(None).acks(1)
}

async fn grant_that_no_replica_has_is_none() -> Outcome {
    for way in WAYS {
        let group = SentinelGroup::forgetful().await?;
        group.replicates().await?;
        let one = client(acked(&group, way)).await?;
        // It has no replica then.
        let two = client(behind(&group, way).quarantine(None)).await?;
        one.lock(NAME)?.acquire().await?.release().await?;
        group.freeze_replica().await?;
        let lock = one.lock(NAME)?;
        let refused = lock.acquire_timeout(Duration::from_secs(1)).await;
        ensure(refused.is_err(), format!("{way}: it was granted"))?;
        group.fail_over()?;
        let next = granted(&two).await?;
        next.check()?;
        next.release().await?;
    }
    Ok(())
}

async fn hold_ends_in_time_when_no_replica_has_it() -> Outcome {
    let group = SentinelGroup::forgetful().await?;
    group.replicates().await?;
    let client = client_of(acked(&group, "fifo").connect().await?, TTL)?;
    let guard = client.lock(NAME)?.acquire().await?;
    sleep(TTL).await;
    guard.check()?;
    // The Sentinels do not replace the master for that.
    group.freeze_replica().await?;
    // No renewal was written later that counts.
    sleep(TTL).await;
    ensure(guard.check().is_err(), "it outlives its lease")?;
    within(SOON, guard.lost()).await?;
    group.servers()[1].process().resume()?;
    let again = within(TTL * 2, client.lock(NAME)?.acquire()).await??;
    again.release().await?;
    Ok(())
}

async fn waiter_does_not_trust_a_message_that_no_replica_has() -> Outcome {
    let group = SentinelGroup::forgetful().await?;
    group.replicates().await?;
    let (one, two) = (
        client(acked(&group, "fifo")).await?,
        client(acked(&group, "fifo")).await?,
    );
    let guard = one.lock(NAME)?.acquire().await?;
    let mut waiter = acquire(&two.lock(NAME)?);
    waiter.waits_for(Duration::from_millis(300)).await?;
    group.freeze_replica().await?;
    guard.release().await?;
    waiter.waits_for(Duration::from_secs(1)).await?;
    group.servers()[1].process().resume()?;
    let next = within(TTL * 2, waiter.soon()).await???;
    next.release().await?;
    Ok(())
}
