//! A Redis Cluster whose slots move and whose masters fail.

use std::time::Duration;

use conformance_tests::servers::{Certificates, RedisCluster, RedisServer, partner};
use conformance_tests::task::{acquire, hand_over, soak_length, until, within};
use conformance_tests::{Failure, Outcome, TestSuite, ensure};
use lockkit_core::contract::{DistributedLock as _, Renewal};
use lockkit_core::{Error, Guard, Lease, LockClient, Outcome as Effect};
use lockkit_redis::{Fenced, FencedError, RedisStore, RedisStoreBuilder, Script};
use tokio::time::{Instant, sleep};

use crate::quarantine::{client_for, granted_at};
use crate::sentinel::refuses_strangers;
use crate::world::{LONG, Turns, client_of, longest_of_most, store, usable_soon};

/// The lease of the tests in which one must be renewed, and the quarantine.
pub(crate) const TTL: Duration = Duration::from_secs(3);
const SHORT: Duration = Duration::from_millis(500);
pub(crate) const SOON: Duration = Duration::from_secs(5);
pub(crate) const NAME: &str = "jobs/cluster";
pub(crate) const WAYS: [&str; 3] = ["fifo", "resp2", "poll"];

pub(crate) fn add(suite: TestSuite) -> TestSuite {
    suite
        .test(hold_and_waiters_survive_a_slow_move_of_their_slot)
        .test(moves_of_slots_let_no_two_in)
        .test(master_that_gets_a_slot_grants_its_own_locks)
        .test(name_without_a_master_is_served_once_there_is_one)
        .test(promoted_replica_keeps_holds_and_serves_waiters)
        .test(cluster_is_usable_soon_after_each_promotion)
        .test(planned_failover_is_followed)
        .test(grant_that_a_promotion_lost_ends_before_another_begins)
        .test(without_quarantine_a_promotion_gives_a_lock_twice)
        .test(frozen_master_costs_the_others_nothing)
        .test(move_of_the_lowest_slot_ends_no_hold_of_another)
        .test(failovers_to_and_fro_begin_a_quarantine)
        .test(masters_are_found_and_followed_with_tls)
        .test(one_living_seed_is_enough)
        .test(wrong_kind_of_server_is_refused_with_the_right_scheme)
        .test(names_whose_keys_fall_apart_are_refused)
        .test(guarded_work_needs_keys_in_the_slot_of_the_lock)
}

pub(crate) fn all(cluster: &RedisCluster, way: &str) -> RedisStoreBuilder {
    let nodes = cluster.nodes().iter();
    let hosts = nodes.map(|node| ("127.0.0.1", node.port()));
    store(way, 0).cluster(hosts)
}

/// How soon it is usable would hide behind a quarantine.
pub(crate) async fn client(
    cluster: &RedisCluster,
    way: &str,
    ttl: Duration,
) -> Outcome<LockClient> {
    client_of(all(cluster, way).quarantine(None).connect().await?, ttl)
}

/// A name for each master, and the number of the node that has it.
pub(crate) async fn names_of_all(cluster: &RedisCluster) -> Outcome<Vec<(usize, String)>> {
    let mut names = Vec::<(usize, String)>::new();
    for number in 0.. {
        let name = format!("{NAME}/{number}");
        let master = cluster.master_of(&name).await?;
        if names.iter().all(|(other, _)| *other != master) {
            names.push((master, name));
        }
        if names.len() == 3 {
            break;
        }
    }
    names.sort();
    Ok(names)
}

/// Key by key, with pauses in which the lock and its token are apart, and in which both have left the rest: another
/// lock of the same slot, whose renewal goes out with that of the first.
async fn hold_and_waiters_survive_a_slow_move_of_their_slot() -> Outcome {
    for way in WAYS {
        let cluster = RedisCluster::forgetful().await?;
        let (holder, other) = (
            client(&cluster, way, TTL).await?,
            client(&cluster, way, TTL).await?,
        );
        let guard = holder.lock(NAME)?.acquire().await?;
        let beside = holder.lock(format!("beside/{{{NAME}}}"))?;
        let beside = beside.acquire().await?;
        let mut waiter = acquire(&other.lock(NAME)?);
        waiter.waits_for(Duration::from_millis(300)).await?;
        let (slot, from) = (cluster.slot_of(NAME).await?, cluster.master_of(NAME).await?);
        let way_of_it = [from, (from + 1) % 3];
        cluster.begin_move(slot, way_of_it).await?;
        cluster.move_keys(&[NAME], way_of_it).await?;
        sleep(TTL / 3).await;
        let token_key = format!("redisson_lock_token:{{{NAME}}}");
        cluster.move_keys(&[&token_key], way_of_it).await?;
        // Longer than the lease: it is renewed where it is.
        sleep(TTL * 2).await;
        guard.check()?;
        beside.check()?;
        let store = holder.store::<RedisStore>();
        let store = store.ok_or_else(|| Failure::new("the store is not one of Redis"))?;
        let both = [&guard, &beside].map(|guard| guard.ticket().clone());
        for renewed in store.renew(&both).await {
            let renewed = renewed?;
            let is_renewed = matches!(renewed, Renewal::Renewed { .. });
            ensure(is_renewed, format!("{way}: {renewed:?}"))?;
        }
        waiter.waits_for(Duration::from_millis(10)).await?;
        cluster.end_move(slot, way_of_it).await?;
        let moved = Instant::now();
        let next = within(SOON, hand_over(guard, waiter)).await??;
        println!("{way}: served {:?} after the move", moved.elapsed());
        let there = cluster.nodes()[way_of_it[1]].ask(&["EXISTS", NAME]).await?;
        ensure(there == ["1"], "the hold is not at the new master")?;
        next.release().await?;
        beside.release().await?;
    }
    Ok(())
}

/// It was promoted, and is asked first for a lock that is on its way to it.
async fn master_that_gets_a_slot_grants_its_own_locks() -> Outcome {
    let cluster = RedisCluster::forgetful().await?;
    let (slot, from) = (cluster.slot_of(NAME).await?, cluster.master_of(NAME).await?);
    let names = names_of_all(&cluster).await?;
    let (former, own) = &names[(from + 1) % 3];
    // It grants no longer lease than its quarantine.
    let store = all(&cluster, "fifo").quarantine(Some(SHORT));
    let client = client_of(store.connect().await?, SHORT)?;
    cluster.nodes()[*former].process().kill();
    cluster.promoted(partner(*former)).await?;
    // Until the other nodes and the client know the new master.
    sleep(Duration::from_secs(2)).await;
    let way_of_it = [from, partner(*former)];
    cluster.begin_move(slot, way_of_it).await?;
    // Where it is asked, it cannot make several keys yet.
    let mut moving = acquire(&client.lock(NAME)?);
    moving.waits_for(Duration::from_millis(300)).await?;
    let guard = within(SOON, client.lock(own)?.acquire()).await??;
    guard.release().await?;
    cluster.end_move(slot, way_of_it).await?;
    within(SOON, moving.soon()).await???.release().await?;
    Ok(())
}

/// As while a cluster is made.
async fn name_without_a_master_is_served_once_there_is_one() -> Outcome {
    let words = [
        "--appendonly",
        "no",
        "--cluster-require-full-coverage",
        "no",
    ];
    let cluster = RedisCluster::start(&words.map(str::to_owned)).await?;
    let (slot, master) = (cluster.slot_of(NAME).await?, cluster.master_of(NAME).await?);
    let (slot, master) = (slot.to_string(), &cluster.nodes()[master]);
    // First the master, whose word the others take.
    for node in [master].into_iter().chain(cluster.nodes()) {
        let known = node.ask(&["CLUSTER", "DELSLOTS", &slot]).await;
        ensure(known.is_ok() || node.port() == master.port(), "not deleted")?;
    }
    let client = client(&cluster, "fifo", LONG).await?;
    let waiter = acquire(&client.lock(NAME)?);
    sleep(Duration::from_millis(300)).await;
    master.ask(&["CLUSTER", "ADDSLOTS", &slot]).await?;
    let guard = within(SOON, waiter.soon()).await???;
    Ok(guard.release().await?)
}

/// Many requests are under way while a slot moves to and fro.
async fn moves_of_slots_let_no_two_in() -> Outcome {
    let cluster = RedisCluster::forgetful().await?;
    let slot = cluster.slot_of(NAME).await?;
    let kept = client(&cluster, "fifo", TTL).await?;
    let kept = kept.lock(format!("kept/{{{NAME}}}"))?.acquire().await?;
    let mut locks = Vec::new();
    for way in WAYS {
        for _ in 0..4 {
            locks.push(client(&cluster, way, LONG).await?.lock(NAME)?);
        }
    }
    let turns = Turns::begin(locks);
    let mut from = cluster.master_of(NAME).await?;
    for _ in 0..6 {
        let way_of_it = [from, (from + 1) % 3];
        cluster.begin_move(slot, way_of_it).await?;
        sleep(Duration::from_millis(100)).await;
        cluster.end_move(slot, way_of_it).await?;
        from = way_of_it[1];
        turns.another().await?;
    }
    turns.end().await?;
    kept.check()?;
    Ok(kept.release().await?)
}

async fn promoted_replica_keeps_holds_and_serves_waiters() -> Outcome {
    for way in WAYS {
        let cluster = RedisCluster::forgetful().await?;
        let holder = client(&cluster, way, LONG).await?;
        // It does not look by itself.
        let other = all(&cluster, way).quarantine(None).recheck(LONG);
        let other = client_of(other.connect().await?, LONG)?;
        let guard = holder.lock(NAME)?.acquire().await?;
        let mut waiter = acquire(&other.lock(NAME)?);
        waiter.waits_for(Duration::from_millis(300)).await?;
        let master = cluster.master_of(NAME).await?;
        let replica = &cluster.nodes()[master + 3];
        until("the replica has the hold", async || {
            let keys = replica.ask(&["DBSIZE"]).await?;
            Ok(keys[0].parse::<u32>()? >= 2)
        })
        .await?;
        cluster.nodes()[master].process().kill();
        cluster.promoted(master + 3).await?;
        let promoted = Instant::now();
        let near = holder.lock(format!("{{{NAME}}}/near"))?;
        within(SOON, near.acquire()).await??.release().await?;
        let took = promoted.elapsed();
        println!("{way}: usable {took:?} after the promotion");
        ensure(
            took < Duration::from_millis(1500),
            format!("{way}: {took:?}"),
        )?;
        guard.check()?;
        waiter.waits_for(Duration::from_millis(10)).await?;
        let next = within(SOON, hand_over(guard, waiter)).await??;
        next.release().await?;
    }
    Ok(())
}

async fn cluster_is_usable_soon_after_each_promotion() -> Outcome {
    let cluster = RedisCluster::forgetful().await?;
    let lock = client(&cluster, "fifo", LONG).await?.lock(NAME)?;
    // Twenty in a minute.
    let failovers = soak_length(Duration::from_secs(12))?.as_secs() / 3;
    let mut times = Vec::new();
    for _ in 0..failovers {
        lock.acquire().await?.release().await?;
        let master = cluster.master_of(NAME).await?;
        cluster.nodes()[master].process().kill();
        cluster.promoted(partner(master)).await?;
        let promoted = Instant::now();
        within(SOON, lock.acquire()).await??.release().await?;
        times.push(promoted.elapsed());
        cluster.nodes()[master].process().restart()?;
        cluster.ready().await?;
    }
    usable_soon(times)
}

/// The former master keeps its connections.
async fn planned_failover_is_followed() -> Outcome {
    for way in WAYS {
        let cluster = RedisCluster::forgetful().await?;
        let client = client(&cluster, way, LONG).await?;
        let guard = client.lock(NAME)?.acquire().await?;
        let replica = cluster.master_of(NAME).await? + 3;
        cluster.nodes()[replica]
            .ask(&["CLUSTER", "FAILOVER"])
            .await?;
        cluster.promoted(replica).await?;
        guard.check()?;
        guard.release().await?;
        let guard = within(SOON, client.lock(NAME)?.acquire()).await??;
        let there = cluster.nodes()[replica].ask(&["EXISTS", NAME]).await?;
        ensure(there == ["1"], "the hold is not at the new master")?;
        guard.release().await?;
    }
    Ok(())
}

/// The replica is promoted without the first client's hold, which is not renewed. Returns both holds, and how long after
/// the promotion the second one began.
async fn lose_a_grant(
    cluster: &RedisCluster,
    ttl: Duration,
    store: RedisStoreBuilder,
) -> Outcome<(Guard, Guard, Duration)> {
    let mut clients = Vec::new();
    for _ in 0..2 {
        clients.push(client_for(store.clone(), ttl).await?);
    }
    let master = cluster.master_of(NAME).await?;
    cluster.freeze_replica(master).await?;
    let lost = clients[0].lock(NAME)?.acquire().await?;
    let replica = &cluster.nodes()[partner(master)];
    cluster.nodes()[master].process().kill();
    replica.process().resume()?;
    // A vote would take a second. The lost lease is to end as late as it may.
    replica.ask(&["CLUSTER", "FAILOVER", "TAKEOVER"]).await?;
    cluster.promoted(partner(master)).await?;
    let promoted = Instant::now();
    let next = granted_at(&clients[1], NAME).await?;
    Ok((lost, next, promoted.elapsed()))
}

async fn grant_that_a_promotion_lost_ends_before_another_begins() -> Outcome {
    for way in WAYS {
        let cluster = RedisCluster::forgetful().await?;
        let (lost, next, after) = lose_a_grant(&cluster, TTL, all(&cluster, way)).await?;
        println!("{way}: granted {after:?} after the promotion");
        ensure(lost.check().is_err(), format!("{way}: two hold the lock"))?;
        ensure(next.token() > lost.token(), "the token has not grown")?;
        ensure(
            after < TTL + Duration::from_millis(1500),
            format!("{way}: {after:?}"),
        )?;
        next.release().await?;
    }
    Ok(())
}

/// It shows that the test above loses the grant.
async fn without_quarantine_a_promotion_gives_a_lock_twice() -> Outcome {
    let cluster = RedisCluster::forgetful().await?;
    let (lost, next, _) =
        lose_a_grant(&cluster, LONG, all(&cluster, "fifo").quarantine(None)).await?;
    lost.check()?;
    next.check()?;
    ensure(next.token() > lost.token(), "the token has not grown")
}

/// The key of the quarantine of a master is in its lowest slot.
async fn move_of_the_lowest_slot_ends_no_hold_of_another() -> Outcome {
    let cluster = RedisCluster::forgetful().await?;
    let store = all(&cluster, "fifo").ttl(TTL);
    let client = client_of(store.connect().await?, TTL)?;
    let names = names_of_all(&cluster).await?;
    let (master, name) = &names[0];
    let guard = granted_at(&client, name).await?;
    let node = &cluster.nodes()[*master];
    let key = node.ask(&["KEYS", "lockkit_primary:*"]).await?.concat();
    let slot = cluster.slot_of(&key).await?;
    let way_of_it = [*master, names[1].0];
    cluster.begin_move(slot, way_of_it).await?;
    cluster.move_keys(&[&key], way_of_it).await?;
    for kind in ["normal", "pubsub"] {
        node.ask(&["CLIENT", "KILL", "TYPE", kind]).await?;
    }
    sleep(TTL * 2).await;
    guard.check()?;
    guard.release().await?;
    cluster.end_move(slot, way_of_it).await?;
    let guard = within(SOON * 2, granted_at(&client, name)).await??;
    guard.release().await?;
    Ok(())
}

/// The client makes no request meanwhile, and its connection may live through both.
async fn failovers_to_and_fro_begin_a_quarantine() -> Outcome {
    let cluster = RedisCluster::forgetful().await?;
    // Far longer than a failover.
    let quarantine = TTL * 3;
    let client = client_for(all(&cluster, "fifo"), quarantine).await?;
    granted_at(&client, NAME).await?.release().await?;
    let master = cluster.master_of(NAME).await?;
    cluster.fail_over_as_planned(master).await?;
    // Within two of their timeouts, the nodes vote once for a slot.
    sleep(TTL).await;
    let back = Instant::now();
    cluster.fail_over_as_planned(partner(master)).await?;
    let guard = granted_at(&client, NAME).await?;
    let took = back.elapsed();
    ensure(took >= quarantine, format!("granted after {took:?}"))?;
    guard.release().await?;
    Ok(())
}

/// Its replica is frozen, too, so that nobody takes over.
async fn frozen_master_costs_the_others_nothing() -> Outcome {
    let words = "--appendonly no --cluster-require-full-coverage no";
    let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
    let cluster = RedisCluster::start(&words).await?;
    // With the usual limit of a request: one that a busy machine delays is a long cycle and no failure.
    let store = all(&cluster, "fifo").quarantine(None).connect().await?;
    let client = LockClient::builder(store).lease(Lease::renewed(TTL));
    let client = client.build()?;
    let names = names_of_all(&cluster).await?;
    let mut guards = Vec::new();
    for number in 0..1000 {
        for (master, name) in &names {
            let lock = client.lock(format!("{{{name}}}/{number}"))?;
            guards.push((*master, lock.acquire().await?));
        }
    }
    let frozen = names[0].0;
    for node in [frozen + 3, frozen] {
        cluster.nodes()[node].process().stop()?;
    }
    let (began, mut cycles) = (Instant::now(), Vec::new());
    while began.elapsed() < TTL * 2 {
        for (_, name) in &names[1..] {
            let start = Instant::now();
            let guard = client.lock(name.as_str())?.acquire().await?;
            guard.release().await?;
            cycles.push(start.elapsed());
        }
        sleep(Duration::from_millis(10)).await;
    }
    let max = cycles.iter().max().copied();
    let longest = longest_of_most(cycles);
    println!("nine of ten cycles on the other masters took {longest:?} or less, all {max:?}");
    ensure(longest < Duration::from_millis(100), format!("{longest:?}"))?;
    for (master, guard) in guards {
        let lost = guard.check().is_err();
        ensure(lost == (master == frozen), format!("{master}: {lost}"))?;
        drop(guard);
    }
    for node in [frozen, frozen + 3] {
        cluster.nodes()[node].process().resume()?;
    }
    cluster.ready().await?;
    let again = client.lock(names[0].1.as_str())?;
    Ok(within(SOON, again.acquire()).await??.release().await?)
}

async fn one_living_seed_is_enough() -> Outcome {
    let cluster = RedisCluster::forgetful().await?;
    let dead = conformance_tests::servers::free_port()?;
    let alive = cluster.nodes()[4].port();
    let seeds = |ports: &[u16]| {
        let hosts: Vec<_> = ports.iter().map(|&port| ("127.0.0.1", port)).collect();
        store("fifo", 0).cluster(hosts).connect()
    };
    let store = seeds(&[dead, dead, dead, alive]).await?;
    let client = client_of(store, Duration::from_secs(2))?;
    for (_, name) in names_of_all(&cluster).await? {
        let guard = client.lock(name)?.acquire_timeout(SOON * 8).await?;
        guard.release().await?;
    }
    let error = seeds(&[dead]).await.err();
    let error = error.ok_or_else(|| Failure::new("it was opened"))?;
    ensure(error.outcome() == Effect::Unavailable, error.to_string())?;
    let told = Failure::from(error).to_string();
    ensure(told.contains(&format!("127.0.0.1:{dead}")), told)
}

async fn wrong_kind_of_server_is_refused_with_the_right_scheme() -> Outcome {
    let cluster = RedisCluster::forgetful().await?;
    let one = RedisServer::forgetful().await?;
    let node = cluster.nodes()[0].port();
    for (opened, scheme) in [
        (store("fifo", node).connect().await, "`redis+cluster://"),
        (
            RedisStore::builder()
                .cluster([("127.0.0.1", one.port())])
                .connect()
                .await,
            "`redis://`",
        ),
    ] {
        let error = opened.err().ok_or_else(|| Failure::new("it was opened"))?;
        ensure(error.outcome() == Effect::Rejected, error.to_string())?;
        let told = Failure::from(error).to_string();
        ensure(told.contains(scheme), told)?;
    }
    Ok(())
}

async fn names_whose_keys_fall_apart_are_refused() -> Outcome {
    let cluster = RedisCluster::forgetful().await?;
    let client = client(&cluster, "fifo", LONG).await?;
    for name in ["a}b{", "{}x", "a}b", "a{b", "{", "}"] {
        let refused = client.lock(name)?.acquire().await.err();
        let Some(Error::Backend(error)) = refused else {
            return Err(Failure::new(format!("{name}: {refused:?}")));
        };
        ensure(error.outcome() == Effect::Rejected, error.to_string())?;
        let told = Failure::from(error).to_string();
        ensure(told.contains("`{tag}`"), told)?;
    }
    for name in ["{a}", "{a}b", "a{b}c", "lock:{user:42}"] {
        client.lock(name)?.acquire().await?.release().await?;
    }
    Ok(())
}

async fn guarded_work_needs_keys_in_the_slot_of_the_lock() -> Outcome {
    let cluster = RedisCluster::forgetful().await?;
    let client = client(&cluster, "fifo", LONG).await?;
    let guard = client.lock("lock:{cart:7}")?.acquire().await?;
    let fenced = Fenced::by(&client, &guard).ok_or_else(|| Failure::new("no store"))?;
    let script = Script::new("redis.call('SET', KEYS[1], ARGV[1]) return 1");
    fenced
        .script(&script, &["{cart:7}:state"], &[b"paid"])
        .await?;
    let elsewhere = fenced
        .script(&script, &["{cart:8}:state"], &[b"paid"])
        .await;
    let Err(FencedError::Backend(error)) = elsewhere else {
        return Err(Failure::new(format!("{elsewhere:?}")));
    };
    // It was not begun.
    ensure(error.outcome() == Effect::Rejected, error.to_string())?;
    let master = cluster.master_of("{cart:7}").await?;
    let state = cluster.nodes()[master]
        .ask(&["GET", "{cart:7}:state"])
        .await?;
    ensure(state == ["paid"], format!("{state:?}"))?;
    guard.release().await?;
    Ok(())
}

async fn masters_are_found_and_followed_with_tls() -> Outcome {
    let certificates = Certificates::make()?;
    let cluster = RedisCluster::secure(&certificates).await?;
    let url = format!("{}?quarantine=off", cluster.secure_url());
    refuses_strangers(&url).await?;
    let url = format!("{url}&ca={}", certificates.path("ca.crt").display());
    let client = within(SOON, lockkit::connect(url)).await??;
    for (_, name) in names_of_all(&cluster).await? {
        client.lock(name)?.acquire().await?.release().await?;
    }
    let master = cluster.master_of(NAME).await?;
    cluster.nodes()[master].process().kill();
    cluster.promoted(master + 3).await?;
    let guard = within(SOON, client.lock(NAME)?.acquire()).await??;
    Ok(guard.release().await?)
}
