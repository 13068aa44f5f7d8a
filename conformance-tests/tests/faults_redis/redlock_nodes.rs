//! What the nodes of a Redlock accept, and requests to them that arrive late or twice.

use std::time::Duration;

use conformance_tests::proxy::{Direction, Flow, Proxy};
use conformance_tests::servers::{RedisServer, RedlockServers};
use conformance_tests::task::{acquire, hand_over, until, within};
use conformance_tests::{Failure, Outcome, TestSuite, ensure};
use lockkit_core::contract::{Attempt, DistributedLock as _, Renewal, Ticket};
use lockkit_core::{ClientId, Guard, HolderId, Lease, Lock, LockClient, LockName};
use lockkit_redis::RedisStore;
use tokio::time::sleep;

use crate::redlock::{
    Hosts, LATE, NAME, SOON, TTL, client, having, nodes, proxies, renewed, store, take_everywhere,
};
use crate::world::LONG;

pub(crate) fn add(suite: TestSuite) -> TestSuite {
    suite
        .test(token_is_larger_than_the_last_ones_of_a_majority)
        .test(token_that_is_too_large_raises_no_other)
        .test(renewal_without_a_majority_makes_no_hold)
        .test(node_accepts_only_larger_tokens)
        .test(late_withdrawal_does_not_end_the_later_hold)
        .test(try_leaves_nothing_at_a_slow_node)
        .test(flushed_scripts_of_nodes_leave_no_hold)
        .test(killed_connections_of_nodes_lose_nothing)
        .test(reset_of_all_connections_loses_nothing)
}

/// As after clients that saw a clock that is ahead.
async fn token_is_larger_than_the_last_ones_of_a_majority() -> Outcome {
    let servers = nodes(3).await?;
    let client = renewed(&servers, LONG).await?;
    let mut last = take(&client.lock(NAME)?).await?;
    for turn in 0..12 {
        let name = format!("jobs/{turn}");
        last += 2_000_000;
        for (at, node) in servers.nodes().iter().enumerate() {
            if at != turn % 3 {
                let key = format!("redisson_lock_token:{{{name}}}");
                node.ask(&["SET", &key, &last.to_string()]).await?;
            }
        }
        let lock = client.lock(name)?;
        let (token, next) = (take(&lock).await?, take(&lock).await?);
        ensure(token > last, format!("{token} after {last}"))?;
        ensure(next > token, format!("{next} after {token}"))?;
        last = next;
    }
    Ok(())
}

/// As after a mistake of a person. A store remembers the largest token that it has seen, of whatever name.
async fn token_that_is_too_large_raises_no_other() -> Outcome {
    let servers = nodes(3).await?;
    let client = renewed(&servers, LONG).await?;
    let before = take(&client.lock("jobs/before")?).await?;
    let key = "redisson_lock_token:{jobs}";
    let node = &servers.nodes()[0];
    for large in ["9223372036854770000", "9007199254740000"] {
        node.ask(&["SET", key, large]).await?;
        // The other two are a majority.
        take(&client.lock("jobs")?).await?;
        let after = take(&client.lock("jobs/after")?).await?;
        let told = format!("{after} after {before}, beside {large}");
        ensure(after > before && after < before + 60_000_000, told)?;
    }
    Ok(())
}

async fn renewal_without_a_majority_makes_no_hold() -> Outcome {
    let servers = RedlockServers::forgetful().await?;
    let store = store(servers.hosts().collect(), TTL).connect().await?;
    let holder = HolderId::new(ClientId::random(), 1);
    let ticket = Ticket::new(LockName::new(NAME)?, holder, TTL);
    let granted = store.attempt(&ticket).await?;
    ensure(
        matches!(granted, Attempt::Granted(_)),
        format!("{granted:?}"),
    )?;
    until("all have it", async || {
        Ok(having(servers.nodes()).await? == 5)
    })
    .await?;
    by_another(&servers.nodes()[..3], &["DEL", NAME]).await?;
    let renewed = store.renew(&[ticket]).await.remove(0)?;
    ensure(renewed == Renewal::NotHeld, format!("{renewed:?}"))?;
    sleep(Duration::from_millis(300)).await;
    ensure(having(servers.nodes()).await? == 2, "it was repaired")
}

/// Another program does something at these nodes.
async fn by_another(nodes: &[RedisServer], command: &[&str]) -> Outcome {
    for node in nodes {
        node.ask(command).await?;
    }
    Ok(())
}

async fn take(lock: &Lock) -> Outcome<u64> {
    let guard: Guard = lock.acquire().await?;
    let token = guard.token().get();
    guard.release().await?;
    Ok(token)
}

/// The words of the last script that a server has run with so many arguments.
async fn last_script(server: &RedisServer, arguments: usize) -> Outcome<Option<Vec<String>>> {
    let words = server.ask(&["SLOWLOG", "GET", "64"]).await?;
    let count = 3 + 5 + arguments;
    let scripts = words.windows(count + 1);
    let fits = |it: &&[String]| {
        // Behind the arguments comes the address of the client.
        it[0] == "EVALSHA" && it[2] == "5" && it[count].starts_with("127.0.0.1:")
    };
    let found = scripts.filter(fits).map(|it| it[..count].to_vec());
    Ok(found.into_iter().next())
}

async fn log_scripts(server: &RedisServer) -> Outcome {
    let all = ["CONFIG", "SET", "slowlog-log-slower-than", "0"];
    server.ask(&all).await?;
    Ok(())
}

async fn run(server: &RedisServer, words: &[String]) -> Outcome<Vec<String>> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    server.ask(&words).await
}

/// The step of a node itself, sent as a client has sent it before.
async fn node_accepts_only_larger_tokens() -> Outcome {
    let servers = nodes(3).await?;
    let node = &servers.nodes()[0];
    let lock = renewed(&servers, LONG).await?.lock(NAME)?;
    take_everywhere(&lock, servers.nodes()).await?;
    log_scripts(node).await?;
    let last = take_everywhere(&lock, servers.nodes()).await?;
    let step = last_script(node, 7).await?;
    let step = step.ok_or_else(|| Failure::new("no attempt is seen"))?;
    let attempt = async |number: u64, token: u64, raise: &str| {
        let mut words = step.clone();
        let holder = format!("6fa3d3a6-2b0c-4a53-9b0e-3a4d5c6b7a89:{number}");
        words[7] = format!("lockkit_gone:{{{NAME}}}:{holder}");
        words[9] = holder;
        words[12] = token.to_string();
        words[13] = raise.to_owned();
        let reply = run(node, &words).await?;
        let told = reply[..3.min(reply.len())].join(" ");
        Ok::<_, Failure>(told)
    };
    let far = last + 60_000_000;
    for (number, token, raise, expected) in [
        (1, last, "0", format!("1 0 {last}")),
        (1, last + 1, "0", format!("1 0 {last}")),
        (1, last, "1", format!("1 0 {last}")),
        (1, far, "1", format!("1 {far} {far}")),
        (1, far, "1", format!("1 {far} {far}")),
        (1, far + 5, "0", format!("1 {far} {far}")),
        (2, far + 5, "1", "0 ".to_owned()),
    ] {
        let told = attempt(number, token, raise).await?;
        let what = format!("{number} {token} {raise}: {told}");
        ensure(told.starts_with(&expected), what)?;
    }
    node.ask(&["DEL", NAME]).await?;
    for (number, token, raise, expected) in [
        (2, far, "0", format!("1 0 {far}")),
        (2, far, "1", format!("1 0 {far}")),
        (2, far - 1, "1", format!("1 0 {far}")),
        (2, far + 1, "1", format!("1 {0} {0}", far + 1)),
    ] {
        let told = attempt(number, token, raise).await?;
        let what = format!("{number} {token} {raise}: {told}");
        ensure(told == expected, what)?;
    }
    Ok(())
}

/// A waiter gives nodes up that are no majority. A copy of that request that arrives late does not touch what the
/// waiter gets later.
async fn late_withdrawal_does_not_end_the_later_hold() -> Outcome {
    let servers = RedlockServers::forgetful().await?;
    // Renewals give it to nodes that were busy.
    let lock = renewed(&servers, TTL).await?.lock(NAME)?;
    take_everywhere(&lock, servers.nodes()).await?;
    let (taken, free) = servers.nodes().split_at(3);
    by_another(taken, &["SET", NAME, "of-another", "PX", "60000"]).await?;
    log_scripts(&free[0]).await?;
    let waiter = acquire(&lock);
    let mut late = None;
    until("it has withdrawn", async || {
        late = last_script(&free[0], 6).await?;
        Ok(late.is_some())
    })
    .await?;
    by_another(taken, &["DEL", NAME]).await?;
    let guard = within(SOON, waiter.soon()).await???;
    until("all have it", async || {
        Ok(having(servers.nodes()).await? == 5)
    })
    .await?;
    run(&free[0], &late.unwrap_or_default()).await?;
    ensure(having(free).await? == 2, "the hold was ended at a node")?;
    guard.release().await?;
    Ok(())
}

async fn try_leaves_nothing_at_a_slow_node() -> Outcome {
    let servers = RedlockServers::forgetful().await?;
    let (proxies, hosts) = proxies(&servers).await?;
    // A try that waits for the slow node takes longer than `SOON`.
    let node = RedisStore::builder().ttl(LONG).response_timeout(SOON * 16);
    let store = store(hosts, LONG).options(node).connect().await?;
    let client = LockClient::builder(store).timeout(SOON * 2);
    let lock = client.lease(Lease::renewed(LONG)).build()?.lock(NAME)?;
    take_everywhere(&lock, servers.nodes()).await?;
    let (taken, free) = servers.nodes().split_at(3);
    by_another(taken, &["SET", NAME, "of-another", "PX", "60000"]).await?;
    let before = free[1].calls("evalsha").await?;
    proxies[4].flow(Direction::Request, Flow::Hold);
    let tried = within(SOON, lock.try_acquire()).await??;
    ensure(tried.is_none(), "two hold the lock")?;
    proxies[4].heal();
    until("the try has left nothing", async || {
        // The attempt arrives now, and then its release.
        let arrived = free[1].calls("evalsha").await? >= before + 2;
        Ok(arrived && having(free).await? == 0)
    })
    .await
}

/// The release, as the store sends it.
const RELEASE: &str = concat!(
    include_str!("../../../lockkit-redis/src/scripts/queue.lua"),
    include_str!("../../../lockkit-redis/src/scripts/ending.lua"),
    include_str!("../../../lockkit-redis/src/scripts/release.lua")
);

/// A node that does not know the script of an attempt needs a second request, which the release must not pass. These
/// two know the release, and are so slow that it is sent before their replies.
async fn flushed_scripts_of_nodes_leave_no_hold() -> Outcome {
    let servers = RedlockServers::forgetful().await?;
    let (proxies, hosts) = proxies(&servers).await?;
    let client = client(hosts, Lease::renewed(LONG)).await?;
    take(&client.lock("jobs/first")?).await?;
    for proxy in &proxies[3..] {
        proxy.delay_both(LATE / 2);
    }
    for turn in 0..3 {
        for node in &servers.nodes()[3..] {
            node.ask(&["SCRIPT", "FLUSH"]).await?;
            node.ask(&["SCRIPT", "LOAD", RELEASE]).await?;
        }
        take(&client.lock(format!("jobs/{turn}"))?).await?;
    }
    // Until the last request has arrived there.
    sleep(LATE * 2).await;
    for node in servers.nodes() {
        within(
            SOON,
            until("nothing is left", async || {
                Ok(node.ask(&["KEYS", "jobs/*"]).await?.is_empty())
            }),
        )
        .await??;
    }
    Ok(())
}

async fn killed_connections_of_nodes_lose_nothing() -> Outcome {
    let servers = RedlockServers::forgetful().await?;
    let nodes = servers.nodes();
    let kill = async || by_another(nodes, &["CLIENT", "KILL", "TYPE", "normal"]).await;
    cut_connections_lose_nothing(&servers, servers.hosts().collect(), kill).await
}

/// All at once, as a switch that restarts.
async fn reset_of_all_connections_loses_nothing() -> Outcome {
    let servers = RedlockServers::forgetful().await?;
    let (proxies, hosts) = proxies(&servers).await?;
    let connections = || proxies.iter().map(|it| it.counts().connections);
    let reset = async || {
        let before: Vec<u64> = connections().collect();
        proxies.iter().for_each(Proxy::reset);
        until("all are connected again", async || {
            Ok(connections()
                .zip(&before)
                .all(|(now, before)| now > *before))
        })
        .await
    };
    cut_connections_lose_nothing(&servers, hosts, reset).await
}

async fn cut_connections_lose_nothing(
    servers: &RedlockServers,
    hosts: Hosts,
    cut: impl AsyncFn() -> Outcome,
) -> Outcome {
    let lease = Lease::renewed(TTL);
    let (holder, other) = (
        client(hosts.clone(), lease).await?,
        client(hosts, lease).await?,
    );
    let guard = holder.lock(NAME)?.acquire().await?;
    let mut waiter = acquire(&other.lock(NAME)?);
    // Longer than the lease.
    for _ in 0..4 {
        cut().await?;
        waiter.waits_for(Duration::from_secs(1)).await?;
    }
    guard.check()?;
    let next = within(SOON, hand_over(guard, waiter)).await??;
    next.release().await?;
    until("nothing is left", async || {
        Ok(having(servers.nodes()).await? == 0)
    })
    .await
}
